"""Makes the stored numbers the Rust tests compare with: PyTorch in f64 on weights both sides compute by formula.

  TORCH make_reference.py --mnist DATA/mnist      writes models.json, optimizers.json and curves.json beside this file
  TORCH make_reference.py --torchvision           compares the AlexNet and MobileNet-v2 below with torchvision's own

Weights are not stored: element i of the tensor called `name` is `scale * u(name, i) + shift`, with u from splitmix64 (see
`fill` below and its twin in formula.rs). Element order is PyTorch's (OIHW); inputs are in NHWC order.
Of each gradient we store the sum, the norm and the product with a fixed random vector: a few hundred numbers in all.
"""
import argparse, gzip, json, math, os, struct
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
torch.set_num_threads(2)


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
    # 24 bits: exact in f32, so that both sides start from the same numbers.
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)


def recipe(name, shape, smooth=False):
    """(scale, shift) of a tensor: He-like weights, and norms near 1 that are not exactly 1.

    Where kinks of relu6 are met, f32 differs from f64 by percents in a network this deep (PyTorch's own f32 too), so that a tight
    comparison needs a `smooth` case: norms that keep every activation inside 0..6.
    """
    if name.endswith("running_var"):
        return 0.5, 1.0
    if name.endswith("running_mean"):
        return 0.1, 0.0
    if len(shape) == 1:
        if smooth:
            return (0.05, 0.6) if name.endswith("weight") else (0.1, 3.0)
        return (0.25, 1.0) if name.endswith("weight") else (0.1, 0.0)
    return math.sqrt(6.0 / math.prod(shape[1:])), 0.0


def fill(name, shape, smooth=False):
    scale, shift = recipe(name, shape, smooth)
    values = uniform(name, math.prod(shape)) * np.float32(scale) + np.float32(shift)
    return torch.from_numpy(values.astype(np.float64)).reshape(shape)


class LeNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, classes)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class AlexNet(nn.Module):
    """torchvision's names; dropout left out."""
    def __init__(self, classes=1000):
        super().__init__()
        R, C, P = nn.ReLU, nn.Conv2d, nn.MaxPool2d
        self.features = nn.Sequential(C(3, 64, 11, 4, 2), R(), P(3, 2), C(64, 192, 5, padding=2), R(), P(3, 2), C(192, 384, 3, padding=1), R(),
                                      C(384, 256, 3, padding=1), R(), C(256, 256, 3, padding=1), R(), P(3, 2))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(9216, 4096), R(), nn.Identity(), nn.Linear(4096, 4096), R(), nn.Linear(4096, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def divisible(v):
    new = max(8, int(v + 4) // 8 * 8)
    return new + 8 if new < 0.9 * v else new


def conv_bn(i, o, k=3, s=1, g=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, (k - 1) // 2, groups=g, bias=False), nn.BatchNorm2d(o), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, i, o, s, t):
        super().__init__()
        h = i * t
        layers = [conv_bn(i, h, 1)] if t != 1 else []
        self.conv = nn.Sequential(*layers, conv_bn(h, h, 3, s, h), nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
        self.add = s == 1 and i == o

    def forward(self, x):
        return x + self.conv(x) if self.add else self.conv(x)


class MobileNetV2(nn.Module):
    """torchvision's names and structure; dropout left out."""
    def __init__(self, classes=5, width=1.0):
        super().__init__()
        i = divisible(32 * width)
        last = divisible(1280 * max(1.0, width))
        layers = [conv_bn(3, i, 3, 2)]
        for t, c, n, s in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
            o = divisible(c * width)
            for k in range(n):
                layers.append(InvertedResidual(i, o, s if k == 0 else 1, t))
                i = o
        layers.append(conv_bn(i, last, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(last, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class BasicBlock(nn.Module):
    """Two convolutions; the way around takes every second pixel and adds channels of zeros where a stage begins."""
    def __init__(self, i, o, s):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.stride, self.more = s, o - i

    def forward(self, x):
        around = F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + around)


class ResNet20(nn.Module):
    """The residual network of 20 layers for CIFAR, its ways around without weights."""
    def __init__(self, classes=10, channels=3):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        stage = lambda i, o, s: nn.Sequential(BasicBlock(i, o, s), BasicBlock(o, o, 1), BasicBlock(o, o, 1))
        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Softmax(nn.Module):
    def __init__(self, inputs=784, classes=10):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(classes, inputs)), nn.Parameter(torch.zeros(classes))

    def forward(self, x):
        return F.linear(x.permute(0, 2, 3, 1).flatten(1), self.weight, self.bias)


def summary(name, tensor):
    values = tensor.detach().double().reshape(-1)
    probe = torch.from_numpy(uniform(name + ".probe", values.numel()).astype(np.float64))
    return {"sum": float(values.sum()), "norm": float(values.norm()), "probe": float(values @ probe)}


def case(label, model, make, batch, size, channels, classes, options=None, smooth=False):
    net = make().double()
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(fill(name, tensor.shape, smooth))
    x = torch.from_numpy(uniform(label + ".input", batch * size * size * channels).astype(np.float64) * 0.5 + 0.5)
    x = x.reshape(batch, size, size, channels).permute(0, 3, 1, 2)
    y = torch.tensor([(i * 7 + 3) % classes for i in range(batch)])
    net.eval()
    with torch.no_grad():
        scored = F.cross_entropy(net(x), y, reduction="sum")
    before = {name: tensor.clone() for name, tensor in net.state_dict().items() if "running" in name}
    net.train()
    logits = net(x)
    loss = F.cross_entropy(logits, y)
    loss.backward()
    after = net.state_dict()
    return {"label": label, "model": model, "batch": batch, "size": size, "channels": channels, "classes": classes, "smooth": smooth,
            "options": options or {}, "loss_sum": loss.item() * batch, "score_loss_sum": scored.item(),
            "correct": int((logits.argmax(1) == y).sum()),
            "shapes": {name: list(t.shape) for name, t in net.state_dict().items() if t.is_floating_point()},
            "gradients": {name: summary(name, p.grad) for name, p in net.named_parameters()},
            "changes": {name: summary(name, after[name] - old) for name, old in before.items()}}


def models():
    return [case("softmax", "softmax", Softmax, 7, 28, 1, 10),
            case("softmax-odd", "softmax", lambda: Softmax(11 * 11 * 3, 3), 5, 11, 3, 3),
            case("lenet", "lenet", LeNet, 9, 28, 1, 10),
            case("alexnet", "alexnet", lambda: AlexNet(10), 2, 224, 3, 10),
            case("mobilenet", "mobilenet-v2", MobileNetV2, 4, 96, 3, 5, smooth=True),
            case("mobilenet-odd", "mobilenet-v2", lambda: MobileNetV2(7, 0.35), 3, 75, 3, 7, {"width": 0.35}, smooth=True),
            case("mobilenet-kinks", "mobilenet-v2", lambda: MobileNetV2(5, 0.5), 4, 96, 3, 5, {"width": 0.5}),
            case("resnet", "resnet-20", ResNet20, 4, 32, 3, 10, smooth=True),
            case("resnet-odd", "resnet-20", lambda: ResNet20(7, 1), 3, 19, 1, 7, smooth=True),
            case("resnet-kinks", "resnet-20", ResNet20, 8, 32, 3, 10)]


def check_against_torchvision():
    """The classes above compute what torchvision's own models compute from the same file of weights; run where it is installed."""
    import tempfile, torchvision
    for name, make in (("alexnet", lambda: AlexNet(1000)), ("mobilenet_v2", lambda: MobileNetV2(1000))):
        ours, theirs = make().double().eval(), getattr(torchvision.models, name)(weights=None).double().eval()
        with tempfile.NamedTemporaryFile(suffix=".pth") as file, torch.no_grad():
            filled = {k: fill(k, t.shape) if t.is_floating_point() else t for k, t in theirs.state_dict().items()}
            torch.save(filled, file.name)
            for net in (ours, theirs):
                net.load_state_dict(torch.load(file.name, weights_only=True))
            x = torch.from_numpy(uniform(name + ".input", 2 * 3 * 224 * 224).astype(np.float64)).reshape(2, 3, 224, 224)
            a, b = ours(x), theirs(x)
        error = float((a - b).abs().max() / b.abs().max())
        print(f"{name}: logits up to {float(b.abs().max()):.3g}, relative difference from torchvision {torchvision.__version__} {error:.1e}")
        assert error < 1e-9, name


def optimizers():
    """Ten steps of each optimiser on 19 weights with a gradient that depends on the weights."""
    out = []
    for name, make in {
        "sgd": lambda p, wd: torch.optim.SGD(p, lr=0.1, weight_decay=wd),
        "momentum": lambda p, wd: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=wd),
        "nesterov": lambda p, wd: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=wd),
        "adagrad": lambda p, wd: torch.optim.Adagrad(p, lr=0.1, weight_decay=wd),
        "adam": lambda p, wd: torch.optim.Adam(p, lr=0.1, weight_decay=wd),
        "adamw": lambda p, wd: torch.optim.AdamW(p, lr=0.1, weight_decay=wd),
    }.items():
        for decay in (0.0, 0.05):
            w = torch.from_numpy(uniform("weights", 19)).clone().requires_grad_()
            target = torch.from_numpy(uniform("target", 19))
            optimizer = make([w], decay)
            trace = []
            for _ in range(10):
                w.grad = (w - target).detach() * 0.5
                optimizer.step()
                trace.append([float(v) for v in w.detach()])
            out.append({"name": name, "decay": decay, "last": trace[-1], "first": trace[0]})
    return out


def mnist(folder, stem):
    raw = gzip.open(os.path.join(folder, stem + ".gz")).read()
    dims = struct.unpack(">" + "I" * raw[3], raw[4:4 + 4 * raw[3]])
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def curves(folder):
    """Loss of each step on the first MNIST digits in file order: softmax 200 steps, LeNet 60."""
    x = torch.from_numpy(mnist(folder, "train-images-idx3-ubyte").astype(np.float32) / 255).reshape(-1, 1, 28, 28)
    y = torch.from_numpy(mnist(folder, "train-labels-idx1-ubyte").astype(np.int64))
    out = []
    for model, make, batch, steps, rate, momentum in (("softmax", Softmax, 100, 200, 0.1, 0.0), ("lenet", LeNet, 64, 60, 0.02, 0.9)):
        net = make()
        with torch.no_grad():
            for name, tensor in net.state_dict().items():
                tensor.copy_(fill(name, tensor.shape).float())
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=momentum)
        losses = []
        for step in range(steps):
            at = slice(step * batch, (step + 1) * batch)
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x[at]), y[at])
            loss.backward()
            optimizer.step()
            losses.append(round(loss.item(), 6))
        out.append({"model": model, "batch": batch, "rate": rate, "momentum": momentum, "losses": losses})
    return out


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--mnist")
    arguments.add_argument("--torchvision", action="store_true", help="compare the classes here with torchvision's, and write nothing")
    arguments = arguments.parse_args()
    if arguments.torchvision:
        raise SystemExit(check_against_torchvision())
    parts = {"models": models(), "optimizers": optimizers()}
    if arguments.mnist:
        parts["curves"] = curves(arguments.mnist)
    for name, content in parts.items():
        with open(os.path.join(HERE, name + ".json"), "w") as file:
            json.dump(content, file, separators=(",", ":"))
            file.write("\n")
