"""Most memory that one training step needs: AlexNet, batch 128, plain SGD.

peak_memory.py torch [--channels-last] takes the step itself; peak_memory.py run PROGRAM ARGS… measures a program that does.
Prints {"name": …, "megabytes": …}: the greatest resident set, as the kernel counts it.
"""
import json
import resource
import subprocess
import sys

BATCH = 128


def torch_step(channels_last):
    import torch
    import torch.nn.functional as F

    from models_torch import WORKS

    torch.set_num_threads(2)
    make, shape, classes = WORKS["alexnet"]
    model, x, y = make().train(), torch.randn((BATCH, *shape)), torch.randint(0, classes, (BATCH,))
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    return f"PyTorch {torch.__version__}{', channels last' if channels_last else ''}"


if __name__ == "__main__":
    if sys.argv[1] == "run":
        subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
        name, whose = "Paceline", resource.RUSAGE_CHILDREN
    else:
        name, whose = torch_step("--channels-last" in sys.argv), resource.RUSAGE_SELF
    print(json.dumps({"name": name, "megabytes": resource.getrusage(whose).ru_maxrss * 1024 / 1e6}))
