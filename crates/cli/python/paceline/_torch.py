"""PyTorch: what a step is made of, seen from the calls that every training loop makes.

A batch comes from a `DataLoader` (input), a loss goes backward, an optimiser steps (the end of a step). Under
`DistributedDataParallel` the time between the last gradient and the end of the backward pass is exchange. Lightning, Hugging Face's `Trainer` and
Accelerate make the same calls. Batches without a backward pass are scoring, and no part of a step.

Times are the host's. Where a GPU works behind it, a step's length is right and its parts are those the host saw.
"""

from __future__ import annotations

import functools
import time
import types
from typing import Any

from ._auto import Recorder, change, guarded

_NAME = "torch"
# Seconds between two losses that are looked at.
_LOSS_PERIOD = 0.01


class _Loop:
    """The training loop of one process."""

    def __init__(self, torch: types.ModuleType, recorder: Recorder) -> None:
        self._torch = torch
        self._recorder = recorder
        # The first optimiser that steps sets the pace: a second one (of a discriminator, say) is part of the same step.
        self._optimizer: Any = None
        # The batch under way: asked for, came, examples; and whether a loss of it went backward.
        self._batch: tuple[float, float, int] | None = None
        self._trained = False
        self._examples = 0
        self._batch_size = 0
        self._loss: Any = None
        self._taken = 0.0
        # When the last bucket of gradients was ready to be exchanged.
        self.ready: float | None = None

    def came(self, loader: Any, batch: Any, asked: float, here: float) -> None:
        if self._batch is not None and not self._trained:
            # The batch under way was scored, not trained on.
            self._recorder.leave_out(_NAME, asked - self._batch[0])
        self._trained = False
        if not self._recorder.data:
            self._recorder.data = type(getattr(loader, "dataset", None)).__name__
            self._recorder.settings["data_loader_workers"] = getattr(loader, "num_workers", 0)
            self._recorder.settings["threads"] = self._torch.get_num_threads()
        self._batch = (asked, here, self._leading(batch))

    def backward(self, loss: Any, begun: float, ended: float) -> None:
        if self._batch is not None and not self._trained:
            asked, here, examples = self._batch
            self._trained = True
            self._recorder.add(_NAME, "input", here - asked)
            self._examples += examples
            self._batch_size = max(self._batch_size, examples)
        if self.ready is not None and begun <= self.ready <= ended:
            self._recorder.add(_NAME, "exchange", ended - self.ready)
        self.ready = None
        # Not of every step: to take a loss apart from its graph costs more than all the rest.
        if ended - self._taken >= _LOSS_PERIOD and isinstance(loss, self._torch.Tensor) and loss.numel() == 1:
            self._taken = ended
            value = loss.detach()
            # Copied beside the work: to fetch it now would make the host wait for the device.
            self._loss = value if value.device.type == "cpu" else value.to("cpu", non_blocking=True)

    def stepped(self, optimizer: Any) -> None:
        if optimizer is not self._optimizer and self._optimizer is not None:
            return
        rate = optimizer.param_groups[0].get("lr")
        if type(rate) is not float:
            rate = float(rate) if isinstance(rate, (int, float)) else None
        if self._optimizer is None:
            self._optimizer = optimizer
            self._recorder.settings["optimizer"] = type(optimizer).__name__
            self._recorder.settings["learning_rate"] = rate
        self._recorder.step(_NAME, self._loss, self._examples, rate, self._batch_size)
        self._examples = 0

    def _leading(self, batch: Any, depth: int = 0) -> int:
        """How many examples a batch has: the length of its first tensor."""
        if type(batch) in (list, tuple) and batch and type(batch[0]) is self._torch.Tensor and batch[0].dim() > 0:
            return int(batch[0].shape[0])  # as nearly all are
        if isinstance(batch, self._torch.Tensor):
            return int(batch.shape[0]) if batch.dim() > 0 else 1
        if depth > 4:
            return 0
        if isinstance(batch, dict) or hasattr(batch, "values") and hasattr(batch, "keys"):
            batch = list(batch.values())
        if isinstance(batch, (list, tuple)):
            for part in batch:
                found = self._leading(part, depth + 1)
                if found:
                    return found
        return 0


def instrument(torch: Any, recorder: Recorder) -> None:
    """Puts the recorder behind PyTorch's own functions."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import DataLoader

    loop = _Loop(torch, recorder)

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        # `guarded`, without a call more: this is called in every step.
        if recorder.live:
            try:
                loop.stepped(optimizer)
            except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
                recorder.stop(error)

    register_optimizer_step_post_hook(stepped)

    backward = torch.autograd.backward
    seen_backward = guarded(recorder, loop.backward)

    @functools.wraps(backward)
    def timed_backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        result = backward(tensors, *args, **kwargs)
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        seen_backward(first, begun, time.perf_counter())
        return result

    torch.autograd.backward = timed_backward

    came = guarded(recorder, loop.came)
    original_iter = DataLoader.__iter__

    @functools.wraps(original_iter)
    def timed_iter(self: Any) -> Any:
        return _Batches(self, original_iter(self), came)

    DataLoader.__iter__ = timed_iter
    if change().startswith("threads="):
        torch.set_num_threads(int(change().partition("=")[2]))
        torch.set_num_threads = lambda number: None
    _instrument_ddp(torch, recorder, loop)


class _Batches:
    """A loader's iterator; everything but `__next__` is the original's."""

    def __init__(self, loader: Any, batches: Any, came: Any) -> None:
        self._paceline = (loader, batches, came)
        # The first batch instead of all others, for a measurement without input; and how many there would be.
        self._again: list[Any] | None = [] if change() == "cached-batches" else None
        try:
            self._left = len(loader)
        except TypeError:
            self._left = -1  # a stream

    def _repeat(self) -> Any:
        if self._left == 0:
            raise StopIteration
        self._left -= 1
        if not self._again:
            self._again = [next(self._paceline[1])]
        return self._again[0]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        loader, batches, came = self._paceline
        asked = time.perf_counter()
        batch = next(batches) if self._again is None else self._repeat()
        came(loader, batch, asked, time.perf_counter())
        return batch

    def __len__(self) -> int:
        return len(self._paceline[1])

    def __getattr__(self, name: str) -> Any:
        if name == "_paceline":
            raise AttributeError(name)
        return getattr(self._paceline[1], name)


def _instrument_ddp(torch: types.ModuleType, recorder: Recorder, loop: _Loop) -> None:
    if not torch.distributed.is_available():
        return
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    def exchange(group: Any, bucket: Any) -> Any:
        loop.ready = time.perf_counter()
        if change() == "no-exchange":
            alone = torch.futures.Future()
            alone.set_result(bucket.buffer())
            return alone
        return allreduce_hook(group, bucket)

    exchange.__annotations__ = dict(allreduce_hook.__annotations__)  # they are checked
    register = DistributedDataParallel.register_comm_hook
    forward = DistributedDataParallel.forward

    @functools.wraps(register)
    def noted_register(self: Any, state: Any, hook: Any) -> Any:
        self._paceline_hook = True  # the script has one of its own
        return register(self, state, hook)

    @functools.wraps(forward)
    def hooked_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A module takes one hook. The script's comes first, so ours waits for the first batch.
        if not getattr(self, "_paceline_hook", False) and recorder.live:
            self._paceline_hook = True
            try:
                register(self, None, exchange)
            except Exception:  # noqa: BLE001 - a module that takes no hook: exchange counts as compute
                pass
        return forward(self, *args, **kwargs)

    DistributedDataParallel.register_comm_hook = noted_register
    DistributedDataParallel.forward = hooked_forward
