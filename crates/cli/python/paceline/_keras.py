"""Keras: `fit` with one callback more. Time between two batches is input; scoring is not part of a step."""

from __future__ import annotations

import functools
import inspect
import time
import types
from typing import Any

from ._auto import Recorder, change, guarded

_NAME = "keras"
# Seconds between two learning rates that are looked at: where a schedule or a compiled step keeps it, that costs.
_RATE_PERIOD = 0.1


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
    if change() == "cached-batches" and isinstance(data, _data_sets(keras)):
        _repeat_first(type(data))
    size = bound.arguments.get("batch_size") or _batch_size(data)
    sizes = [size]
    if not size and isinstance(data, _data_sets(keras)):
        _note_size(type(data), sizes)
    callback = make_callback(keras, recorder, sizes)
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


def _data_sets(keras: Any) -> Any:
    """The class of data sets that are read batch by batch; none before Keras 3."""
    return getattr(getattr(keras, "utils", None), "PyDataset", ())


def _note_size(kind: Any, sizes: list[int]) -> None:
    """Looks at the first batch that a data set gives, and then no more."""
    original = kind.__getitem__

    def noted(self: Any, index: int) -> Any:
        batch = original(self, index)
        if kind.__getitem__ is noted:
            kind.__getitem__ = original
        first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if hasattr(first, "shape") and len(first.shape) > 0:
            sizes[0] = int(first.shape[0])
        return batch

    kind.__getitem__ = noted


def _repeat_first(kind: Any) -> None:
    """The first batch instead of all others, for a measurement without input."""
    original = kind.__getitem__
    kept: list[Any] = []

    def repeated(self: Any, index: int) -> Any:
        if not kept:
            kept.append(original(self, index))
        return kept[0]

    kind.__getitem__ = repeated


def _batch_size(data: Any) -> int:
    """Examples of a batch of whatever `fit` was given."""
    for name in ("batch_size", "_batch_size"):
        size: Any = getattr(data, name, None)
        if isinstance(size, int):
            return size
        if hasattr(size, "numpy"):
            return int(size.numpy())
    if hasattr(data, "shape"):
        return 32  # arrays: Keras's own default
    return 0


class Rate:
    """The learning rate that an optimiser goes by, looked at now and then."""

    def __init__(self) -> None:
        self._value: float | None = None
        self._looked = -_RATE_PERIOD

    def of(self, model: Any) -> float | None:
        """The rate of the model's optimiser; nothing where it does not tell."""
        now = time.perf_counter()
        if now - self._looked >= _RATE_PERIOD:
            self._looked = now
            try:
                rate = model.optimizer.learning_rate
                self._value = None if rate is None else float(rate)
            except Exception:  # noqa: BLE001 - a value that a compiled step holds, say: training goes on without it
                self._value = None
        return self._value


def make_callback(keras: Any, recorder: Recorder, sizes: list[int]) -> Any:
    """A callback for `fit`; made here because its base class is only known once Keras is imported."""

    class Callback(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self._ended = time.perf_counter()
            self._first = 0
            self._rate = Rate()

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
            record(_NAME, (logs or {}).get("loss"), batches * sizes[0], rate(self._rate, getattr(self, "model", None)), sizes[0])
            self._ended = time.perf_counter()

    add, leave_out = guarded(recorder, recorder.add), guarded(recorder, recorder.leave_out)
    record, rate = guarded(recorder, recorder.step), guarded(recorder, Rate.of)
    return Callback()
