"""Makes `keras.json`: logits of `keras.applications.MobileNetV2` on weights and images that both sides compute by formula.

  KERAS make_keras.py      writes beside this file; made with Keras 3.15.1 on JAX 0.10.2

Weights are not stored but follow from their names, in Keras's order of elements (see `make_reference.py`, whose `uniform` this is).
"""
import json
import math
import os

import keras
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
WIDTH, CLASSES, IMAGES = 0.35, 5, 2
# Even and odd sides, and such that become odd on the way.
SIDES = [(32, 32), (33, 35), (64, 40), (46, 32)]


def uniform(name, count):
    """`count` numbers in [-1, 1) that follow from the name alone (FNV-1a, then splitmix64)."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)


def recipe(name, shape):
    """(scale, shift) of a weight: variances so small that the norms' epsilon counts, kernels that bring about such: larger ones make chaos of rounding."""
    kind = name.split("/")[1]
    if kind == "kernel":
        taps = shape[:2] if "depthwise" in name else shape[:-1]
        return math.sqrt(1.5 / math.prod(taps)), 0.0
    return {"gamma": (0.25, 1.0), "moving_variance": (0.25, 0.27)}.get(kind, (0.1, 0.0))


def logits(height, width):
    keras.backend.clear_session()
    model = keras.applications.MobileNetV2(
        input_shape=(height, width, 3), alpha=WIDTH, weights=None, classes=CLASSES, classifier_activation=None)
    weights = []
    for layer in model.layers:
        for weight in layer.weights:
            name = f"{layer.name}/{weight.path.split('/')[-1]}"
            shape = list(weight.shape)
            scale, shift = recipe(name, shape)
            values = uniform(name, math.prod(shape)) * np.float32(scale) + np.float32(shift)
            weight.assign(values.reshape(shape))
            weights.append([name, keras.src.utils.naming.to_snake_case(type(layer).__name__), shape])
    count = IMAGES * height * width * 3
    pixels = np.floor((uniform("pixels", count) + np.float32(1.0)) * np.float32(128.0))
    pixels = pixels.reshape(IMAGES, height, width, 3)
    found = model(keras.applications.mobilenet_v2.preprocess_input(pixels), training=False)
    return np.asarray(found).tolist(), weights


if __name__ == "__main__":
    cases = []
    for height, width in SIDES:
        found, weights = logits(height, width)
        cases.append({"height": height, "width": width, "logits": found})
    stored = [{"alpha": WIDTH, "classes": CLASSES, "weights": weights, "cases": cases}]
    with open(os.path.join(HERE, "keras.json"), "w") as file:
        json.dump(stored, file, separators=(",", ":"))
        file.write("\n")
