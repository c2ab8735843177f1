"""Makes the stored files of `tests.rs` with Keras: the same small network in each form that Keras writes, and one that h5py
writes in the newer layout of HDF5. Values count up, so that their places can be seen.

  KERAS make_tiny.py      writes beside this file; made with Keras 3.15.1, h5py 3.14.0
"""
import os

import h5py
import keras
import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))
layers = keras.layers
model = keras.Sequential([
    keras.Input((4, 4, 2)),
    layers.Conv2D(2, 3, use_bias=False, name="Conv1"),
    layers.BatchNormalization(name="bn_Conv1"),
    layers.DepthwiseConv2D((2, 1), use_bias=False, name="expanded_conv_depthwise"),
    layers.Flatten(),
    layers.Dense(3, name="predictions"),
])
for weight in model.weights:
    count = int(np.prod(weight.shape))
    weight.assign(np.arange(1, count + 1, dtype=np.float32).reshape(weight.shape))
model.save("tiny.h5", include_optimizer=False)
model.save_weights("tiny.weights.h5")
model.save("tiny.keras")
with h5py.File("tiny.h5") as old, h5py.File("tiny-new.h5", "w", libver="latest") as new:

    def copy(name, item):
        if isinstance(item, h5py.Dataset):
            layer, weight = name.split("/")[-2:]
            new.create_dataset(f"{layer}/{weight}:0", data=item[()])  # as Keras 2 named them

    old["model_weights"].visititems(copy)
    new.create_dataset("half/kernel", data=np.array([[1.5, -2.0]], np.float16))
    new.create_dataset("step", data=np.int64(7))
    new.create_dataset("optimizer_weights/empty", data=np.zeros((0, 2), np.float32))
