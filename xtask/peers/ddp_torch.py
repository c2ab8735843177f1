"""PyTorch DistributedDataParallel over Gloo: training steps of two processes with one thread each.

ddp_torch.py MODEL GLOBAL_BATCH STEPS; speaks the protocol of contest.py. Random data, plain SGD 0.01, dropout off.
"""
import os
import socket
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

from contest import memory, serve
from models_torch import WORKS


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Rank:
    def __init__(self, rank, port, name, batch, steps):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        make, shape, classes = WORKS[name]
        self.x, self.y = torch.randn(batch // 2, *shape), torch.randint(0, classes, (batch // 2,))
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
        self.model = torch.nn.parallel.DistributedDataParallel(make().train(), gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batch, self.steps = batch, steps

    def measure(self):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(self.steps):
            self.optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(self.model(self.x), self.y).backward()
            self.optimizer.step()
        dist.barrier()
        return self.batch * self.steps / (time.perf_counter() - began)


def second(pipe, *args):
    rank = Rank(1, *args)
    while pipe.recv():
        rank.measure()


if __name__ == "__main__":
    args = (free_port(), sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    near, far = mp.Pipe()
    # Ends with this process, however that ends.
    child = mp.get_context("spawn").Process(target=second, args=(far, *args), daemon=True)
    child.start()
    rank = Rank(0, *args)

    def measure():
        near.send(True)
        return rank.measure()

    serve(f"PyTorch {torch.__version__.split('+')[0]} DDP with Gloo{memory()}", measure)
    near.send(False)
