"""PyTorch: training steps (forward, cross entropy, backward, SGD 0.01) on random data, eager or compiled, either memory layout.

Networks as in Paceline, dropout off on every side so that all do the same work.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import contest


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )


def alexnet():
    features = [(3, 64, 11, 4, 2, True), (64, 192, 5, 1, 2, True), (192, 384, 3, 1, 1, False), (384, 256, 3, 1, 1, False), (256, 256, 3, 1, 1, True)]
    layers = []
    for inputs, outputs, kernel, stride, padding, pool in features:
        layers += [nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU(inplace=True)]
        if pool:
            layers.append(nn.MaxPool2d(3, 2))
    layers += [nn.Flatten(), nn.Linear(9216, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        hidden = inputs * expand
        layers = []
        if expand != 1:
            layers += [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


def mobilenet(classes=5, width=1.0):
    def wide(channels):
        rounded = max(8, int(channels * width + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * channels * width else rounded

    channels, last = wide(32), max(1280, wide(1280))
    layers = [nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU6(inplace=True)]
    for expand, outputs, count, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for k in range(count):
            layers.append(Block(channels, wide(outputs), stride if k == 0 else 1, expand))
            channels = wide(outputs)
    layers += [nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return nn.Sequential(*layers)


#        network, shape of an example, classes
WORKS = {
    "softmax": (lambda: nn.Linear(784, 10), (784,), 10),
    "lenet": (lenet, (1, 28, 28), 10),
    "alexnet": (alexnet, (3, 224, 224), 1000),
    "mobilenet-v2": (mobilenet, (3, 224, 224), 5),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=WORKS)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="steps of one measurement")
    parser.add_argument("--warm-up", type=int, default=1, help="measurements before the first that counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--side", type=int, help="pixels of MobileNet-v2's images")
    parser.add_argument("--width", type=float, default=1.0, help="width of MobileNet-v2")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(0)
    make, shape, classes = WORKS[args.model]
    if args.model == "mobilenet-v2":
        make, shape = (lambda: mobilenet(width=args.width)), (3, args.side or 224, args.side or 224)
    model, x, y = make().train(), torch.randn((args.batch, *shape)), torch.randint(0, classes, (args.batch,))
    if args.channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    network = torch.compile(model) if args.compile else model

    def measure():
        start = time.perf_counter()
        for _ in range(args.steps):
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(network(x), y).backward()
            optimizer.step()
        return args.steps * args.batch / (time.perf_counter() - start)

    layout = ", channels last" if args.channels_last else ""
    compiled = ", torch.compile" if args.compile else ""
    contest.serve(f"PyTorch {torch.__version__}{compiled}{layout}{contest.memory()}", measure, args.warm_up)


if __name__ == "__main__":
    main()
