"""What recording costs: the same loop of PyTorch steps with and without the recorder, in turns within one process.

python overhead_torch.py PACKAGE_FOLDER [ROUNDS]      prints one JSON document

A step is padded to a millisecond with work of its own. The recorder's functions are put in for some steps and taken out for the next, so
that whatever else the machine does hits both alike. Of each round counts the step that three quarters are slower than, which other programs seldom
interrupted. Printed are the medians over rounds, by the clock and by the CPU time of the training thread (which no other program lengthens by taking
the core), and the cost of the calls themselves.
"""

import json
import os
import sys
import tempfile
import time

sys.path.insert(0, sys.argv[1])
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 40
folder = tempfile.mkdtemp()
os.environ["PACELINE_RUN_FOLDER"] = os.path.join(folder, "run")

import torch
from torch import nn
from torch.utils.data import DataLoader

from paceline._auto import Recorder
from paceline._torch import instrument

torch.set_num_threads(1)
plain = (torch.autograd.backward, DataLoader.__iter__)
recorder = Recorder()
instrument(torch, recorder)
recorded = (torch.autograd.backward, DataLoader.__iter__)
model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [(torch.randn(64), torch.randn(64)) for _ in range(32)]
hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
kept = dict(hooks)


def use(functions, hook):
    torch.autograd.backward, DataLoader.__iter__ = functions
    hooks.clear()
    hooks.update(kept if hook else {})


def padding(seconds):
    """How many products fill a step up to that many seconds on this machine."""
    a, least = torch.ones(160, 160), float("inf")
    for _ in range(200):
        begun = time.perf_counter()
        for _ in range(4):
            a = a @ a * 1e-3
        least = min(least, (time.perf_counter() - begun) / 4)
    products = 1
    while least * products < seconds:
        products += 1
    return products


def steps(count):
    """Seconds of `count` steps of a millisecond each, by the clock and of the CPU."""
    times, spent = [], []
    loader = DataLoader(data, batch_size=8)
    while len(times) < count:
        begun, before = time.perf_counter(), time.thread_time()
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            a = torch.ones(160, 160)
            for _ in range(products):
                a = a @ a * 1e-3
            now, used = time.perf_counter(), time.thread_time()
            times.append(now - begun)
            spent.append(used - before)
            begun, before = now, used
    return sorted(times), sorted(spent)


use(recorded, True)
products = 1
bare = steps(200)[0][50]
products = 1 + padding(1e-3 - bare)
sides = {"plain": [], "recorded": []}
for number in range(rounds):
    order = [("plain", plain, False), ("recorded", recorded, True)]
    for name, functions, hook in order if number % 2 else reversed(order):
        use(functions, hook)
        steps(8)
        sides[name].append(steps(60))
middle = {name: sorted(run[0][len(run[0]) // 4] for run in runs)[rounds // 2] for name, runs in sides.items()}


def ratios_of(clock):
    """Recorded over plain, of each round."""
    pairs = zip(sides["plain"], sides["recorded"])
    return sorted(b[clock][len(b[clock]) // 4] / a[clock][len(a[clock]) // 4] for a, b in pairs)


ratios, of_cpu = ratios_of(0), ratios_of(1)

# The calls alone, without a step around them.
use(recorded, True)
run = recorder._run
begun = time.perf_counter()
for _ in range(20_000):
    run._add("input", 1e-6)
    run.step(0.5, examples=8)
calls = (time.perf_counter() - begun) / 20_000
print(
    json.dumps(
        {
            "step_ms": 1e3 * middle["plain"],
            "recorded_ms": 1e3 * middle["recorded"],
            "overhead_percent": 100 * (ratios[len(ratios) // 2] - 1),
            "quartiles_percent": {
                "low": 100 * (ratios[len(ratios) // 4] - 1),
                "high": 100 * (ratios[3 * len(ratios) // 4] - 1),
            },
            "cpu_overhead_percent": 100 * (of_cpu[len(of_cpu) // 2] - 1),
            "calls_us": 1e6 * calls,
        }
    )
)
