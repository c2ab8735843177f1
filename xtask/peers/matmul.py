"""One large matrix product in single precision: GFLOP/s of NumPy (OpenBLAS) or PyTorch (MKL)."""
import argparse
import time

import contest


def numpy(size, threads):
    import numpy as np

    a, b = (np.random.default_rng(seed).random((size, size), dtype=np.float32) for seed in (1, 2))
    c = np.empty((size, size), np.float32)
    return f"OpenBLAS via NumPy {np.__version__}", lambda: np.matmul(a, b, out=c)


def torch(size, threads):
    import torch as library

    library.set_num_threads(threads)
    library.manual_seed(1)
    a, b = library.rand(size, size), library.rand(size, size)
    c = library.empty(size, size)
    return f"MKL via PyTorch {library.__version__}", lambda: library.mm(a, b, out=c)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["numpy", "torch"])
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    name, product = globals()[args.engine](args.size, args.threads)

    def measure():
        start = time.perf_counter()
        product()
        return 2e-9 * args.size**3 / (time.perf_counter() - start)

    contest.serve(name, measure)


main()
