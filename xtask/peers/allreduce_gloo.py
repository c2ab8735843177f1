"""PyTorch's Gloo all_reduce (float32, sum) between two processes of this machine, one thread each.

allreduce_gloo.py FLOATS OPERATIONS; speaks the protocol of contest.py. Gloo has no shared memory: it is loopback TCP.
"""
import os
import socket
import sys
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from contest import serve


REPETITIONS = 5  # a measurement is the best of them, as on the other sides


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Rank:
    def __init__(self, rank, port, floats, operations):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
        self.numbers, self.operations = torch.ones(floats), operations

    def measure(self):
        for _ in range(max(1, self.operations // 4)):
            dist.all_reduce(self.numbers)
        self.numbers.fill_(1.0)
        dist.barrier()
        began = time.perf_counter()
        for _ in range(self.operations):
            dist.all_reduce(self.numbers)
        own = torch.tensor([(time.perf_counter() - began) / self.operations], dtype=torch.float64)
        dist.all_reduce(own, op=dist.ReduceOp.MAX)
        return 1 / own.item()


def second(pipe, *args):
    rank = Rank(1, *args)
    while pipe.recv():
        for _ in range(REPETITIONS):
            rank.measure()


if __name__ == "__main__":
    args = (free_port(), int(sys.argv[1]), int(sys.argv[2]))
    near, far = mp.Pipe()
    # Ends with this process, however that ends.
    child = mp.get_context("spawn").Process(target=second, args=(far, *args), daemon=True)
    child.start()
    rank = Rank(0, *args)

    def measure():
        near.send(True)
        return max(rank.measure() for _ in range(REPETITIONS))

    serve(f"PyTorch {torch.__version__.split('+')[0]} Gloo", measure)
    near.send(False)
