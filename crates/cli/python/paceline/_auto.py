"""Records a script that knows nothing of Paceline: `paceline run -- python train.py`.

`paceline run` puts this package and a `sitecustomize` that calls `install` before the script. Frameworks are instrumented when the script
imports them, and a run begins with the first training step: interpreters that train nothing (launchers, data-loader
workers, tools) leave no trace. Nothing in here may change, slow or break the training.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ._run import Run, is_recording


def _warn(error: BaseException) -> None:
    warnings.warn(f"paceline stops recording: {error!r}", RuntimeWarning, stacklevel=3)


def change() -> str:
    """What `paceline compare --prove` takes away from this run: `cached-batches`, `no-exchange` or `threads=N`."""
    return os.environ.get("PACELINE_CHANGE", "")


class Recorder:
    """The run of this process, once it has made a step."""

    def __init__(self) -> None:
        self._run: Run | None = None
        # False once the run has ended, after an error, and in a process that was forked from this one.
        self.live = True
        os.register_at_fork(after_in_child=self._forget)
        self._error: str | None = None
        # The framework whose steps these are: Keras may fetch its batches with PyTorch's loader.
        self._owner: str | None = None
        # A repetition for a measurement ends after so many steps.
        self._most = int(os.environ.get("PACELINE_STEPS") or 0)
        self.data = ""
        self.settings: dict[str, Any] = {}

    def _forget(self) -> None:
        self.live = False

    def add(self, owner: str, phase: str, seconds: float) -> None:
        """Counts seconds of the step under way."""
        if self._run is not None and owner == self._owner:
            self._run._add(phase, seconds)

    def leave_out(self, owner: str, seconds: float) -> None:
        """Seconds that were not training: scoring, say."""
        if self._run is not None and owner == self._owner:
            self._run._leave_out(seconds)

    def step(self, owner: str, loss: Any, examples: int, learning_rate: float | None, batch_size: int) -> None:
        """One update was made."""
        if self._run is None:
            if is_recording():
                self.live = False  # the script does it itself
                return
            self._owner = owner
            self._run = self._begin(batch_size)
            return  # it begins here: the first step loads libraries, compiles and fills caches
        if owner == self._owner:
            self._run.step(loss, examples=examples, learning_rate=learning_rate)
            if self._run._step == self._most:
                self._end()
                sys.stdout.flush()
                os._exit(0)

    def _begin(self, batch_size: int) -> Run:
        script = pathlib.Path(sys.argv[0] if sys.argv else "").stem
        name = os.environ.get("PACELINE_RUN_NAME") or script or "python"
        run = Run(
            name,
            batch_size=batch_size * int(os.environ.get("WORLD_SIZE") or 1),
            data=self.data,
            settings={"command": " ".join(sys.orig_argv), **self.settings},
            framework=self._owner,
        )
        atexit.register(self._end)
        hook = sys.excepthook

        def failed(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            self._error = "interrupted" if issubclass(kind, KeyboardInterrupt) else f"{kind.__name__}: {error}"
            hook(kind, error, trace)

        sys.excepthook = failed
        return run

    def _end(self) -> None:
        if self._run is None or not self.live:
            return
        self.live = False
        if self._error is None:
            self._run.close()
        else:
            self._run.close("cancelled" if self._error == "interrupted" else "failed", self._error)

    def stop(self, error: BaseException) -> None:
        """Says what went wrong, once; from here on nothing is recorded."""
        if self.live:
            self.live = False
            if self._run is None:
                _warn(error)
            else:
                self._run._fail(error)


def guarded(recorder: Recorder, action: Callable[..., Any]) -> Callable[..., Any]:
    """The action, of which no error reaches the training."""

    def careful(*args: Any, **kwargs: Any) -> Any:
        if not recorder.live:
            return None
        try:
            return action(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            recorder.stop(error)
            return None

    return careful


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls a function once a module has been imported."""

    def __init__(self, actions: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self._actions = actions
        self._loaders: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._actions or name in self._loaders:
            return None
        self._loaders[name] = None  # the finders behind this one are asked
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            del self._loaders[name]
            return None
        self._loaders[name] = spec.loader
        spec.loader = self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        created: types.ModuleType | None = self._loaders[spec.name].create_module(spec)
        return created

    def exec_module(self, module: types.ModuleType) -> None:
        name = module.__spec__.name if module.__spec__ else module.__name__
        loader = self._loaders[name]
        if module.__spec__ is not None:
            module.__spec__.loader = loader
        module.__loader__ = loader
        loader.exec_module(module)
        try:
            self._actions[name](module)
        except Exception as error:  # noqa: BLE001 - a version of the framework that is not known
            _warn(error)


def install() -> None:
    """Instruments the frameworks that this interpreter will import."""
    from . import _jax, _keras, _torch

    recorder = Recorder()
    actions = {
        "torch": lambda module: _torch.instrument(module, recorder),
        "keras": lambda module: _keras.instrument(module, recorder),
        "jax": lambda module: _jax.instrument(module, recorder),
    }
    sys.meta_path.insert(0, _AfterImport(actions))

