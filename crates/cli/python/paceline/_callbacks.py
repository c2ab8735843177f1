"""Callbacks for scripts that want to say what is recorded, instead of `paceline run`.

Base classes belong to the frameworks, so each class is made when its framework is there: none is imported by this package.
"""

from __future__ import annotations

import time
from typing import Any

from ._keras import Rate
from ._run import Run


class _Progress:
    """One run, told of by whichever framework."""

    def __init__(self, name: str, batch_size: int, options: dict[str, Any]) -> None:
        self._name = name
        self._batch_size = batch_size
        self._options = options
        self.run: Run | None = None
        self._ended = 0.0

    def start(self, framework: str, name: str, batch_size: int) -> None:
        options = {"framework": framework, **self._options}
        self.run = Run(self._name or name, batch_size=self._batch_size or batch_size, **options)
        self._ended = time.perf_counter()

    def batch_is_here(self) -> None:
        """What lies between two steps is input."""
        if self.run is not None:
            self.run._add("input", time.perf_counter() - self._ended)

    def step(self, loss: Any, learning_rate: float | None = None) -> None:
        if self.run is not None:
            self.run.step(loss, learning_rate=learning_rate)
            self._ended = time.perf_counter()

    def scored(self, loss: Any, accuracy: Any) -> None:
        if self.run is not None:
            self.run.evaluation(loss, accuracy)
            self._ended = time.perf_counter()

    def end(self, status: str = "done", reason: str | None = None) -> None:
        if self.run is not None:
            self.run.close(status, reason)


def keras_callback(name: str = "", *, batch_size: int = 0, **options: Any) -> Any:
    """A callback for `model.fit(…, callbacks=[…])`. `name` is the model's, and options are those of `Run`, unless given."""
    import keras

    class PacelineCallback(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.progress = _Progress(name, batch_size, options)
            self._rate = Rate()

        def on_train_begin(self, logs: Any = None) -> None:
            size = (self.params or {}).get("batch_size") or 0
            self.progress.start("keras", self.model.name, size)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.progress.batch_is_here()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.progress.step((logs or {}).get("loss"), self._rate.of(self.model))

        def on_test_end(self, logs: Any = None) -> None:
            scores = logs or {}
            self.progress.scored(scores.get("loss"), scores.get("accuracy"))

        def on_train_end(self, logs: Any = None) -> None:
            self.progress.end()

    return PacelineCallback()


def lightning_callback(name: str = "", *, batch_size: int = 0, **options: Any) -> Any:
    """A callback for `Trainer(callbacks=[…])` of Lightning."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class PacelineCallback(Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.progress = _Progress(name, batch_size, options)

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            loader = trainer.train_dataloader
            size = (getattr(loader, "batch_size", None) or 0) * trainer.world_size
            self.progress.start("torch", type(pl_module).__name__, size)

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            self.progress.batch_is_here()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self.progress.step(loss if loss is None else loss.detach())

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                scores = trainer.callback_metrics
                self.progress.scored(scores.get("val_loss"), scores.get("val_acc"))

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.progress.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            status = "cancelled" if isinstance(exception, KeyboardInterrupt) else "failed"
            self.progress.end(status, f"{type(exception).__name__}: {exception}")

    return PacelineCallback()


def trainer_callback(name: str = "", *, batch_size: int = 0, **options: Any) -> Any:
    """A callback for `Trainer(callbacks=[…])` of Hugging Face."""
    from transformers import TrainerCallback

    class PacelineCallback(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.progress = _Progress(name, batch_size, options)
            self._loss: float | None = None
            self._rate: float | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
            model = kwargs.get("model")
            self.progress.start("torch", type(model).__name__ if model is not None else "trainer", size)

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.progress.batch_is_here()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.progress.step(self._loss, self._rate)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            self._loss = (logs or {}).get("loss", self._loss)
            self._rate = (logs or {}).get("learning_rate", self._rate)

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
            scores = metrics or {}
            self.progress.scored(scores.get("eval_loss"), scores.get("eval_accuracy"))

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.progress.end()

    return PacelineCallback()
