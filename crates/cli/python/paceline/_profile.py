"""Files for `paceline simulate --profile` and `paceline advise parallel --layers`, written from Python.

`write_profile` takes step times that were measured by any means, `write_layers` layers; `torch_layers` times the layers of a
PyTorch model. The formats are described in docs/book/src/experts/simulator.md.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

Seconds = Union[float, Sequence[float]]


def write_profile(
    path: str | os.PathLike[str],
    name: str,
    steps: Mapping[int, Seconds],
    parameters: float,
    *,
    value_bytes: float = 4,
    messages: Iterable[tuple[float, float]] = (),
    update_seconds: float | None = None,
    input_share: float = 0.0,
    threads: int = 1,
    cores: float | None = None,
) -> None:
    """Writes what one worker's steps take, for `paceline simulate --profile`.

    `steps` has the seconds of a step, or of several, by batch size: input and compute, without exchange. `messages` are parts of the
    gradient: the share of the step after which each is final, and its values. Without `cores` each worker has
    accelerators or cores of its own.
    """
    sizes = []
    for batch_size, seconds in sorted(steps.items()):
        times = [float(seconds)] if isinstance(seconds, (int, float)) else [float(one) for one in seconds]
        if not times or min(times) <= 0.0:
            raise ValueError(f"batch size {batch_size}: a step takes more than 0 seconds, found {times}")
        sizes.append({"batch_size": int(batch_size), "seconds": times})
    if not sizes:
        raise ValueError("at least one batch size is needed")
    profile: dict[str, Any] = {
        "name": name,
        "steps": sizes,
        "parameters": parameters,
        "value_bytes": value_bytes,
        "messages": [{"at": at, "parameters": values} for at, values in messages],
        "input_share": input_share,
        "threads": threads,
    }
    if update_seconds is not None:
        profile["update_seconds"] = update_seconds
    if cores is not None:
        profile["cores"] = cores
    _write(path, profile)


def write_layers(
    path: str | os.PathLike[str],
    name: str,
    layers: Iterable[Mapping[str, Any]],
    *,
    sharing: Iterable[tuple[int, float]] = ((1, 1.0),),
) -> None:
    """Writes the layers of a network, for `paceline advise parallel --layers`.

    A layer has a `name`, its `input` and `output` as (height, width, channels), `parameters`, and the seconds of its `forward` and
    `backward` pass for each example. `kernel` is the side of its kernel (1 where there is none), `fixed` the seconds of
    a step that do not depend on the batch, `update` those of its update.
    """
    rows = []
    for layer in layers:
        row = {"kernel": 1, "fixed": 0.0, "update": 0.0, **layer}
        rows.append({**row, "input": list(row["input"]), "output": list(row["output"])})
    if not rows:
        raise ValueError("a network has at least one layer")
    _write(path, {"network": {"name": name, "layers": rows}, "sharing": [list(pair) for pair in sharing]})


def torch_layers(
    model: Any,
    inputs: Any,
    *,
    loss: Callable[[Any], Any] = lambda outputs: outputs.float().sum(),
    update_seconds: float = 0.0,
    repeats: int = 5,
) -> list[dict[str, Any]]:
    """Times the layers of a PyTorch model that have parameters, on one batch and on its first half, for `write_layers`.

    `inputs` is a tensor whose first dimension is the batch, of four examples or more. `update_seconds`, the time of the optimiser's
    step, is shared out by parameters.
    """
    examples = int(inputs.shape[0])
    half = examples // 2
    if half < 2:
        raise ValueError(f"a batch of {examples} is too small to time: 4 or more")
    leaves = {
        name: module
        for name, module in model.named_modules()
        if not any(True for _ in module.children()) and any(True for _ in module.parameters())
    }
    whole = _passes(model, leaves, inputs, loss, repeats)
    part = _passes(model, leaves, inputs[:half], loss, repeats)
    total = sum(_values(module) for module in leaves.values())
    layers = []
    for name, module in leaves.items():
        if name not in whole or name not in part:
            continue  # not every layer takes part in every pass
        many, few = whole[name], part[name]
        each, fixed = {}, 0.0
        for way in ("forward", "backward"):
            slope = (many[way] - few[way]) / (examples - half)
            # Noise must not make a layer free.
            slope = min(max(slope, 0.1 * many[way] / examples), many[way] / examples)
            each[way] = slope
            fixed += max(many[way] - examples * slope, 0.0)
        kernel = getattr(module, "kernel_size", 1)
        values = _values(module)
        layers.append(
            {
                "name": name,
                "input": _places(many["input"]),
                "output": _places(many["output"]),
                "kernel": int(max(kernel) if isinstance(kernel, (tuple, list)) else kernel),
                "parameters": values,
                "forward": each["forward"],
                "backward": each["backward"],
                "fixed": fixed,
                "update": update_seconds * values / max(total, 1),
            }
        )
    return layers


def _values(module: Any) -> int:
    return sum(int(values.numel()) for values in module.parameters())


def _places(shape: Sequence[int]) -> list[int]:
    """The shape of an example as height, width, channels: images have their channels first, sequences last."""
    sizes = [int(size) for size in shape[1:]]
    if len(sizes) >= 3:
        return [sizes[-2], sizes[-1], sizes[0]]
    if len(sizes) == 2:
        return [sizes[0], 1, sizes[1]]
    return [1, 1, sizes[0] if sizes else 1]


def _passes(model: Any, leaves: dict[str, Any], inputs: Any, loss: Any, repeats: int) -> dict[str, dict[str, Any]]:
    """The middle times of each layer's passes, and the shapes it saw."""
    seen: dict[str, dict[str, Any]] = {}
    begun: dict[tuple[str, str], float] = {}
    handles = []

    def now() -> float:
        if getattr(inputs, "is_cuda", False):
            import torch

            torch.cuda.synchronize()
        return time.perf_counter()

    def begin(way: str, name: str) -> Any:
        def hook(*_: Any) -> None:
            begun[way, name] = now()

        return hook

    def end(way: str, name: str) -> Any:
        def hook(module: Any, given: Any, made: Any) -> None:
            layer = seen.setdefault(name, {"forward": [], "backward": []})
            layer[way].append(now() - begun.pop((way, name), now()))
            if way == "forward":
                layer["input"], layer["output"] = tuple(given[0].shape), tuple(made.shape)

        return hook

    for name, module in leaves.items():
        handles.append(module.register_forward_pre_hook(begin("forward", name)))
        handles.append(module.register_forward_hook(end("forward", name)))
        handles.append(module.register_full_backward_pre_hook(begin("backward", name)))
        handles.append(module.register_full_backward_hook(end("backward", name)))
    try:
        for turn in range(repeats + 1):
            if turn == 1:  # the first one warms up
                for layer in seen.values():
                    layer["forward"].clear()
                    layer["backward"].clear()
            loss(model(inputs)).backward()
            model.zero_grad()
    finally:
        for handle in handles:
            handle.remove()
    for layer in seen.values():
        layer["forward"] = statistics.median(layer["forward"] or [0.0])
        # The first layer's input needs no gradient, and then it has no hook: its passes cost about the same.
        layer["backward"] = statistics.median(layer["backward"] or [layer["forward"]])
    return seen


def _write(path: str | os.PathLike[str], document: Any) -> None:
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
