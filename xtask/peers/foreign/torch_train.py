"""A PyTorch training as a user writes it, with a bottleneck that an argument puts in. It knows nothing of Paceline.

python torch_train.py KIND [--steps N] [--data FILE]        (torchrun for the kinds with two ranks)
"""

import argparse
import contextlib
import mmap
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--data", default="")
parser.add_argument("--traceml", action="store_true", help="mark the steps, which TraceML needs")
parser.add_argument("--percent", type=float, default=0.0, help="how strong the bottleneck is, in percent of a step")
args = parser.parse_args()

# Seconds of a step that nothing holds up, as measured on the way: what a bottleneck is given in percent of.
pace = 0.0
KIND, RANK, RANKS = args.kind, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
BATCH = {"small-batch": 1}.get(KIND, 128)
WIDTH = 3 * 32 * 32
torch.manual_seed(0)
if KIND == "threads":
    torch.set_num_threads(max(1, round((os.cpu_count() or 1) * (args.percent or 800) / 100)))
elif RANKS > 1:
    torch.set_num_threads(1)


class Pictures(Dataset):
    """Pictures from memory, or from one large file."""

    def __init__(self, examples):
        self.examples = examples
        self.pixels = torch.randint(0, 255, (512, WIDTH), dtype=torch.uint8)
        self.file = None

    def __len__(self):
        return self.examples

    def __getitem__(self, index):
        if KIND in ("slow-disk", "memory-hog"):
            if self.file is None:
                self.file = mmap.mmap(os.open(args.data, os.O_RDONLY), 0, prot=mmap.PROT_READ)
            # Large pictures of which every 64th value is used, one after the other; or small ones from all over the file.
            size = 64 * WIDTH if KIND == "memory-hog" else WIDTH
            at = (index * size * (1 if KIND == "memory-hog" else 7919)) % (len(self.file) - size)
            pixels = torch.frombuffer(bytearray(self.file[at : at + size]), dtype=torch.uint8)
            return pixels[:: size // WIDTH].float(), index % 10
        worker = torch.utils.data.get_worker_info()
        if KIND == "slow-loader-worker" and worker is not None and worker.id == 1:
            time.sleep(0.003)
        return self.pixels[index % 512].float(), index % 10


def collate(examples):
    if KIND == "slow-input":
        share = (args.percent or 67) / 100
        time.sleep(share / (1 - share) * pace)  # a remote store, say
    return torch.utils.data.default_collate(examples)


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x / 255)


class Slow(torch.autograd.Function):
    """An operation whose backward pass is slow on one rank: a throttled core, a bad kernel."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if RANK == 1:
            time.sleep((args.percent or 100) / 100 * pace)
        return gradient


model = Net(16 if KIND == "small-batch" else 1024)
if RANKS > 1:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
workers = 2 if KIND in ("slow-loader-worker",) else 0
share = BATCH // RANKS if RANKS > 1 else BATCH
loader = DataLoader(Pictures(share * args.steps), batch_size=share, shuffle=False, num_workers=workers, collate_fn=collate)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_of = nn.CrossEntropyLoss()
marked = contextlib.nullcontext
if args.traceml:
    import traceml_ai

    traceml_ai.init()
    marked = lambda: traceml_ai.trace_step(model)

fastest = []
for images, labels in loader:
    begun = time.perf_counter()
    with marked():
        optimizer.zero_grad()
        scores = model(images)
        if KIND == "slow-rank":
            scores = Slow.apply(scores)
        loss = loss_of(scores, labels)
        loss.backward()
        optimizer.step()
    if len(fastest) < 10:
        fastest.append(time.perf_counter() - begun)
        pace = sorted(fastest)[len(fastest) // 2] if len(fastest) == 10 else 0.0
print(f"loss {loss.item():.3f}")
if RANKS > 1:
    torch.distributed.destroy_process_group()
