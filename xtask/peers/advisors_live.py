"""Searches for settings of trainings that really run: `paceline advise tune`, Optuna, scikit-optimize and random choice, in turns.

    python advisors_live.py PACELINE FOLDER --mnist DIR --seeds 4 --budget 12

Each search may spend the same seconds of runs; what a method itself thinks is kept apart. FOLDER/searches.jsonl gets a line for each
search; those that are there are not made again. Prints them all as one JSON list.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

# Runs before a model is asked, for theirs; as with recorded jobs.
START = 3
MOST_RUNS = 60
METHODS = ["paceline", "tpe", "gp", "skopt", "random"]

# A setting is a range on a logarithmic scale (whole numbers or not) or a list of choices.
RATE = ("lr", "log", 1e-4, 1.0)
BATCH = ("batch-size", "whole", 8, 512)
JOBS = {
    "softmax on MNIST": ("mnist", ["--model", "softmax", "--epochs", "3"], [RATE, BATCH]),
    "LeNet on drawn digits": (
        "digits",
        ["--model", "lenet", "--epochs", "1"],
        [RATE, BATCH, ("optimizer", "choice", ["sgd", "momentum", "adam"])],
    ),
    "softmax on drawn digits, strategies and workers": (
        "digits",
        ["--model", "softmax", "--epochs", "4"],
        [
            RATE,
            BATCH,
            ("strategy", "choice", ["one-device", "multi-worker", "ps-sync", "ps-async"]),
            ("workers", "whole", 1, 4),
        ],
    ),
}


def applies(name, point):
    """Workers are a setting of strategies that have several."""
    return name != "workers" or point["strategy"] != "one-device"


def space_file(settings):
    """The same space as `advise tune --space` has it."""
    lines = []
    for setting in settings:
        name, kind = setting[:2]
        lines.append(f"[{name}]")
        if kind == "choice":
            lines.append(f"choices = {json.dumps(setting[2])}")
        else:
            lines += [f"from = {setting[2]!r}", f"to = {setting[3]!r}", 'scale = "log"']
        if name == "workers":
            strategies = next(setting[2] for setting in settings if setting[0] == "strategy")
            others = [strategy for strategy in strategies if strategy != "one-device"]
            lines.append(f"when = {{ strategy = {json.dumps(others)} }}")
    return "\n".join(lines) + "\n"


class Runner:
    """Runs a training with settings, as `advise tune` does, and says what it cost and reached."""

    def __init__(self, program, words, folder):
        self.program, self.words, self.folder = program, words, folder

    def run(self, point):
        flags = [word for name, value in point.items() if applies(name, point) for word in (f"--{name}", str(value))]
        shutil.rmtree(self.folder, ignore_errors=True)
        command = [self.program, "train", *self.words, *flags, "--out", str(self.folder), "--json", "--quiet"]
        begun = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        shutil.rmtree(self.folder, ignore_errors=True)
        value = None
        if done.returncode == 0:
            value = json.loads(done.stdout)["final"]["test_loss"]
        if value is not None and not math.isfinite(value):
            value = None
        return seconds, value


class Random:
    def __init__(self, settings, seed):
        self.settings, self.random = settings, random.Random(seed)

    def ask(self):
        point = {}
        for name, kind, *rest in self.settings:
            if kind == "choice":
                point[name] = self.random.choice(rest[0])
            else:
                value = math.exp(self.random.uniform(math.log(rest[0]), math.log(rest[1])))
                point[name] = round(value) if kind == "whole" else value
        return point

    def tell(self, value):
        pass


class Optuna:
    def __init__(self, settings, seed, gaussian):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = (
            optuna.samplers.GPSampler(seed=seed, n_startup_trials=START, deterministic_objective=False)
            if gaussian
            else optuna.samplers.TPESampler(seed=seed, n_startup_trials=START, multivariate=True)
        )
        self.study = optuna.create_study(direction="minimize", sampler=sampler)
        self.settings = settings

    def ask(self):
        self.trial = self.study.ask()
        point = {}
        for name, kind, *rest in self.settings:
            if kind == "choice":
                point[name] = self.trial.suggest_categorical(name, rest[0])
            elif kind == "whole":
                point[name] = self.trial.suggest_int(name, *rest, log=True)
            else:
                point[name] = self.trial.suggest_float(name, *rest, log=True)
        return point

    def tell(self, value):
        self.study.tell(self.trial, value)


class Skopt:
    def __init__(self, settings, seed):
        import skopt

        dimensions = []
        for name, kind, *rest in settings:
            if kind == "choice":
                dimensions.append(skopt.space.Categorical(rest[0], name=name))
            else:
                make = skopt.space.Integer if kind == "whole" else skopt.space.Real
                dimensions.append(make(*rest, prior="log-uniform", name=name))
        self.names = [setting[0] for setting in settings]
        self.optimizer = skopt.Optimizer(
            dimensions,
            base_estimator="GP",
            acq_func="EI",
            n_initial_points=START,
            initial_point_generator="sobol",
            random_state=seed,
        )

    def ask(self):
        self.asked = self.optimizer.ask()
        plain = (value.item() if hasattr(value, "item") else value for value in self.asked)
        return dict(zip(self.names, plain))

    def tell(self, value):
        self.optimizer.tell(self.asked, value)


def theirs(method, settings, seed):
    if method == "random":
        return Random(settings, seed)
    if method == "skopt":
        return Skopt(settings, seed)
    return Optuna(settings, seed, method == "gp")


def search(method, settings, runner, seed, budget):
    """Runs until the money is spent: seconds and loss of each, and the seconds of thinking."""
    begun, spent, runs, told = time.monotonic(), 0.0, [], []
    asked = theirs(method, settings, seed)
    while spent < budget and len(runs) < MOST_RUNS:
        seconds, value = runner.run(asked.ask())
        spent += seconds
        runs.append([seconds, value])
        # What failed counts as the worst so far; losses differ by ratios.
        logarithm = math.log(value) if value is not None else max(told, default=5.0)
        told.append(logarithm)
        asked.tell(logarithm)
    return {"runs": runs, "thought": time.monotonic() - begun - spent}


def ours(program, words, settings, folder, seed, budget):
    shutil.rmtree(folder, ignore_errors=True)
    space = folder.with_suffix(".toml")
    space.write_text(space_file(settings))
    command = [program, "advise", "tune", "--space", str(space), "--objective", "test-loss", "--budget", f"{budget}s"]
    command += ["--max-runs", str(MOST_RUNS), "--seed", str(seed + 1), "--out", str(folder), "--json", "--quiet"]
    begun = time.monotonic()
    done = subprocess.run([*command, "--", "train", *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    # In the order in which they were made.
    with open(folder / "sweep.jsonl") as journal:
        rows = [json.loads(line) for line in journal]
    runs = []
    for row in rows:
        value = None if row["failure"] else row["output"]["final"]["test_loss"]
        runs.append([row["seconds"], value])
    shutil.rmtree(folder, ignore_errors=True)
    return {"runs": runs, "thought": time.monotonic() - begun - sum(run[0] for run in runs)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--budget", type=float, default=12.0)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    digits = folder / "digits"
    if not digits.exists():
        words = [arguments.program, "data", "synth", "digits", str(digits), "--train", "8000", "--test", "2000"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    data = {"mnist": arguments.mnist, "digits": str(digits)}
    journal = folder / "searches.jsonl"
    known = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    made = {(one["job"], one["method"], one["seed"], one["budget"]) for one in known}
    for seed in range(arguments.seeds):
        for job, (source, words, settings) in JOBS.items():
            words = [*words, "--data", data[source]]
            turn = seed % len(METHODS)
            for method in METHODS[turn:] + METHODS[:turn]:
                if (job, method, seed, arguments.budget) in made:
                    continue
                load = os.getloadavg()[0]
                if method == "paceline":
                    found = ours(arguments.program, words, settings, folder / "search", seed, arguments.budget)
                else:
                    runner = Runner(arguments.program, words, folder / "run")
                    found = search(method, settings, runner, seed, arguments.budget)
                line = {"job": job, "method": method, "seed": seed, "budget": arguments.budget, "load": load, **found}
                known.append(line)
                with open(journal, "a") as file:
                    file.write(json.dumps(line) + "\n")
                best = min((value for _, value in found["runs"] if value is not None), default=None)
                print(f"{job}, {method}, seed {seed}: {len(found['runs'])} runs, {best}", file=sys.stderr, flush=True)
    print(json.dumps(known))


main()
