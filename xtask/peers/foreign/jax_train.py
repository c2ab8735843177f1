"""A JAX training as a user writes it, with a bottleneck that an argument puts in. It knows nothing of Paceline.

python jax_train.py KIND [--steps N] [--data FILE]
"""

import argparse
import mmap
import multiprocessing
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--data", default="")
args = parser.parse_args()

KIND = args.kind
BATCH = {"small-batch": 1}.get(KIND, 128)
WIDTH = 3 * 32 * 32

import jax
import jax.numpy as jnp
import numpy as np

PIXELS = np.random.default_rng(0).integers(0, 255, (512, WIDTH), dtype=np.uint8)
FILE = []


def load(number):
    """One batch, from memory or from one large file."""
    if KIND in ("slow-disk", "memory-hog"):
        if not FILE:
            FILE.append(mmap.mmap(os.open(args.data, os.O_RDONLY), 0, prot=mmap.PROT_READ))
        # Large pictures of which every 64th value is used, one after the other; or small ones from all over the file.
        size, apart = (64 * WIDTH, 1) if KIND == "memory-hog" else (WIDTH, 7919)
        places = [(i * size * apart) % (len(FILE[0]) - size) for i in range(number * BATCH, (number + 1) * BATCH)]
        pixels = np.stack([np.frombuffer(FILE[0][at : at + size], np.uint8)[:: size // WIDTH] for at in places])
    else:
        pixels = PIXELS[np.arange(number * BATCH, (number + 1) * BATCH) % 512]
    if KIND == "slow-input":
        time.sleep(0.08)  # a remote store, say
    if KIND == "slow-loader-worker" and number % 2 == 1:
        time.sleep(0.3)
    return pixels.astype(np.float32), np.arange(BATCH) % 10


def scores_of(weights, images):
    x = images / 255
    for w, b in weights[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = weights[-1]
    return x @ w + b


def loss_of(weights, images, labels):
    scores = jax.nn.log_softmax(scores_of(weights, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))


@jax.jit
def step(weights, images, labels):
    loss, grads = jax.value_and_grad(loss_of)(weights, images, labels)
    return jax.tree.map(lambda w, g: w - 0.01 * g, weights, grads), loss


def batches():
    if KIND == "slow-loader-worker":
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            yield from pool.imap(load, range(args.steps))
    else:
        yield from map(load, range(args.steps))


def main():
    hidden = 16 if KIND == "small-batch" else 1024
    sizes = [WIDTH, hidden, hidden, 10]
    keys = jax.random.split(jax.random.key(0), 3)
    weights = [(jax.random.normal(k, (i, o)) / i**0.5, jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]
    for images, labels in batches():
        weights, loss = step(weights, images, labels)
    print(f"loss {float(loss):.3f}")


if __name__ == "__main__":
    main()
