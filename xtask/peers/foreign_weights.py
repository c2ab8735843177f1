"""Weight files of Keras and torchvision with random values, and the logits that those programs get from them.

  KERAS foreign_weights.py keras DIR [ALPHA] [SIDE] [CLASSES] [PHOTOS]         (tensorflow-cpu 2.21.0, which brings Keras 3)
  TORCH foreign_weights.py torchvision DIR [ALPHA] [SIDE] [CLASSES] [PHOTOS]   (torch and torchvision)

writes the files, `pixels` and `logits` into DIR. Then, for each file:

  cargo run --release -p paceline-models --example foreign_logits -- DIR/FILE ALPHA SIDE CLASSES DIR/pixels DIR/logits

Running statistics are far from 0 and 1, so that they count. Pictures are photographs of the folder PHOTOS, scaled to SIDE x SIDE,
or noise where there are none; both programs get the same bytes, so that decoding and scaling take no part.
"""
import os
import sys

import numpy as np

PICTURES = 20


def pictures(side, photos):
    random = np.random.default_rng(5)
    found = []
    if photos:
        from PIL import Image
        names = sorted(os.path.join(root, name) for root, _, names in os.walk(photos) for name in names if name.endswith(".jpg"))
        step = max(1, len(names) // PICTURES)
        for name in names[::step][:PICTURES]:
            found.append(np.asarray(Image.open(name).convert("RGB").resize((side, side)), np.uint8))
    while len(found) < PICTURES:
        found.append(random.integers(0, 256, (side, side, 3), np.uint8))
    return np.stack(found)


def value(name, old, random):
    """What a weight becomes; kernels stay as the framework drew them."""
    if name in ("gamma", "norm.weight"):
        return random.uniform(0.5, 1.5, old.shape)
    if name in ("moving_variance", "running_var"):
        return random.uniform(0.02, 2.0, old.shape)
    if name in ("beta", "moving_mean", "running_mean", "bias"):
        return random.normal(0.0, 0.3, old.shape)
    return old


def keras_logits(folder, alpha, side, classes, pixels):
    import keras
    random = np.random.default_rng(1)
    keras.utils.set_random_seed(3)
    model = keras.applications.MobileNetV2(
        input_shape=(side, side, 3), alpha=alpha, weights=None, classes=classes, classifier_activation=None)
    for weight in model.weights:
        weight.assign(value(weight.path.split("/")[-1], weight.numpy(), random).astype(np.float32))
    model.save(f"{folder}/keras.h5")
    model.save(f"{folder}/keras.keras")
    model.save_weights(f"{folder}/keras.weights.h5")
    scaled = keras.applications.mobilenet_v2.preprocess_input(pixels.astype(np.float32))
    return np.asarray(model(scaled, training=False))


def torchvision_logits(folder, alpha, side, classes, pixels):
    import torch
    import torchvision
    from safetensors.torch import save_file
    random = np.random.default_rng(1)
    torch.manual_seed(3)
    model = torchvision.models.mobilenet_v2(num_classes=classes, width_mult=alpha).eval()
    state = model.state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point():
            kind = name.split(".")[-1]
            kind = "norm.weight" if kind == "weight" and tensor.ndim == 1 else kind
            state[name] = torch.from_numpy(np.asarray(value(kind, tensor.numpy(), random), np.float32))
    model.load_state_dict(state)
    torch.save(model.state_dict(), f"{folder}/torchvision.pth")
    save_file(model.state_dict(), f"{folder}/torchvision.safetensors")
    scaled = torch.from_numpy(pixels.astype(np.float32) / 255.0).permute(0, 3, 1, 2)
    scaled = torchvision.transforms.functional.normalize(scaled, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        return model(scaled).numpy()


if __name__ == "__main__":
    program, folder, *rest = sys.argv[1:]
    alpha, side, classes, photos = (rest + ["1.0", "224", "1000", ""][len(rest):])[:4]
    os.makedirs(folder, exist_ok=True)
    pixels = pictures(int(side), photos)
    compute = {"keras": keras_logits, "torchvision": torchvision_logits}[program]
    logits = compute(folder, float(alpha), int(side), int(classes), pixels)
    pixels.tofile(f"{folder}/pixels")
    logits.astype("<f4").tofile(f"{folder}/logits")
    print(f"{program}: {len(pixels)} pictures of {side}x{side}, logits from {logits.min():.3f} to {logits.max():.3f}")
