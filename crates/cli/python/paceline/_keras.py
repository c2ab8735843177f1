"""Keras: `fit` with one callback more. Time between two batches is input; scoring is not part of a step."""

from __future__ import annotations

import functools
import inspect
import time
import types
from typing import Any

from ._auto import Recorder, guarded

_NAME = "keras"


def instrument(keras: types.ModuleType, recorder: Recorder) -> None:
    """Adds the recorder to every `fit`."""
    fit = keras.Model.fit
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        extended = guarded(recorder, _with_callback)(keras, recorder, signature, self, args, kwargs)
        if extended is None:
            return fit(self, *args, **kwargs)
        return fit(*extended.args, **extended.kwargs)

    keras.Model.fit = recorded


def _with_callback(
    keras: Any, recorder: Recorder, signature: inspect.Signature, model: Any, args: Any, kwargs: Any
) -> inspect.BoundArguments:
    bound = signature.bind(model, *args, **kwargs)
    data = bound.arguments.get("x")
    size = bound.arguments.get("batch_size") or _batch_size(data)
    callback = make_callback(keras, recorder, size)
    given = bound.arguments.get("callbacks")
    if isinstance(given, keras.callbacks.CallbackList):
        given.append(callback)
    else:
        given = list(given) if isinstance(given, (list, tuple)) else [given] if given else []
        bound.arguments["callbacks"] = [*given, callback]
    recorder.data = recorder.data or type(data).__name__
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        recorder.settings["optimizer"] = type(optimizer).__name__
    return bound


def _batch_size(data: Any) -> int:
    """Examples of a batch of whatever `fit` was given."""
    for name in ("batch_size", "_batch_size"):
        size = getattr(data, name, None)
        if isinstance(size, int):
            return size
        if hasattr(size, "numpy"):
            return int(size.numpy())
    if hasattr(data, "shape"):
        return 32  # arrays: Keras's own default
    return 0


def make_callback(keras: Any, recorder: Recorder, batch_size: int) -> Any:
    """A callback for `fit`; made here because its base class is only known once Keras is imported."""

    class Callback(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._ended = time.perf_counter()
            self._first = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            # What lies between two epochs, scoring among it, is not part of a step.
            now = time.perf_counter()
            leave_out(_NAME, now - self._ended)
            self._ended = now

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self._first = batch
            add(_NAME, "input", time.perf_counter() - self._ended)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            # With steps_per_execution, several batches make one call.
            batches = max(1, batch - self._first + 1)
            record(_NAME, (logs or {}).get("loss"), batches * batch_size, None, batch_size)
            self._ended = time.perf_counter()

    add, leave_out = guarded(recorder, recorder.add), guarded(recorder, recorder.leave_out)
    record = guarded(recorder, recorder.step)
    return Callback()
