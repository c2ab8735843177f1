"""A Keras training as a user writes it, with a bottleneck that an argument puts in. It knows nothing of Paceline.

KERAS_BACKEND=torch python keras_train.py KIND [--steps N] [--data FILE]
"""

import argparse
import mmap
import os
import time

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("kind")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--data", default="")
args = parser.parse_args()

KIND = args.kind
BATCH = {"small-batch": 1}.get(KIND, 128)
WIDTH = 3 * 32 * 32
keras.utils.set_random_seed(0)
if KIND == "threads":
    import torch

    torch.set_num_threads(8 * (os.cpu_count() or 1))


class Pictures(keras.utils.PyDataset):
    """Pictures from memory, or from one large file."""

    def __init__(self, steps, **kwargs):
        super().__init__(**kwargs)
        self.steps = steps
        self.pixels = np.random.default_rng(0).integers(0, 255, (512, WIDTH), dtype=np.uint8)
        self.file = None

    def __len__(self):
        return self.steps

    def __getitem__(self, number):
        if KIND in ("slow-disk", "memory-hog"):
            if self.file is None:
                self.file = mmap.mmap(os.open(args.data, os.O_RDONLY), 0, prot=mmap.PROT_READ)
            # Large pictures of which every 64th value is used, one after the other; or small ones from all over the file.
            size, apart = (64 * WIDTH, 1) if KIND == "memory-hog" else (WIDTH, 7919)
            places = [(i * size * apart) % (len(self.file) - size) for i in range(number * BATCH, (number + 1) * BATCH)]
            pixels = np.stack([np.frombuffer(self.file[at : at + size], np.uint8)[:: size // WIDTH] for at in places])
        else:
            pixels = self.pixels[np.arange(number * BATCH, (number + 1) * BATCH) % 512]
        if KIND == "slow-input":
            time.sleep(0.08)  # a remote store, say
        if KIND == "slow-loader-worker" and number % 2 == 1:
            time.sleep(0.3)
        return pixels.astype(np.float32), np.arange(BATCH) % 10


hidden = 16 if KIND == "small-batch" else 1024
model = keras.Sequential(
    [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Dense(hidden, activation="relu"),
        keras.layers.Dense(hidden, activation="relu"),
        keras.layers.Dense(10),
    ]
)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
loaders = {"workers": 2, "use_multiprocessing": True} if KIND == "slow-loader-worker" else {}
model.fit(Pictures(args.steps, **loaders), verbose=0)
print("trained")
