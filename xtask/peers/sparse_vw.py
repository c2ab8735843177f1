"""Vowpal Wabbit, one pass over a text file, one thread: examples per second; its progressive loss is in its name.

  sparse_vw.py FILE.vw default|sgd [BITS]     (2^BITS weights, 25 if not said; sgd: constant rate 0.01, the best of a small grid on such files)
"""
import sys
import time
from importlib.metadata import version

import vowpalwabbit
from contest import serve

path, kind = sys.argv[1:3]
bits = int(sys.argv[3]) if len(sys.argv) > 3 else 25
flags = {"default": "", "sgd": "--sgd -l 0.01 --power_t 0"}[kind]
rows = sum(1 for _ in open(path, "rb"))


def one_pass():
    start = time.perf_counter()
    workspace = vowpalwabbit.Workspace(f"-d {path} -b {bits} --loss_function logistic --no_stdin --quiet {flags}")
    seconds = time.perf_counter() - start
    loss = workspace.get_sum_loss() / workspace.get_weighted_examples()
    workspace.finish()
    return seconds, loss


def measure():
    """Passes from scratch until half a second is over: a small file is learned in hundredths."""
    total, passes = 0.0, 0
    while total < 0.5:
        total += one_pass()[0]
        passes += 1
    return passes * rows / total


_, loss = one_pass()
label = "default (adaptive, normalised, invariant)" if kind == "default" else "plain sgd, rate 0.01"
serve(f"Vowpal Wabbit {version('vowpalwabbit')} {label}, loss {loss:.4f}", measure, warm_up=0)
