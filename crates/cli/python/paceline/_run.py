"""The recorder that a training loop calls.

Steps are short and files are slow, so steps are added up here and written as one event a few times a second; a call
costs a few clock readings. Nothing in here may raise into the training loop.
"""

from __future__ import annotations

import fcntl
import functools
import json
import math
import os
import pathlib
import re
import secrets
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ._resources import Sampler, describe_machine

Batch = TypeVar("Batch")

# Seconds between two events of steps.
_PERIOD = 0.25
_PHASES = ("input", "compute", "exchange", "wait")


# Runs of this process that are being recorded.
_live_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def is_recording() -> bool:
    """Whether a run of this process is being recorded, by hand or by a callback."""
    return len(_live_runs) > 0


def _after_fork() -> None:
    """A process that was forked from the training records nothing: its parent does."""
    for run in list(_live_runs):
        run._live = False
    _live_runs.clear()


os.register_at_fork(after_in_child=_after_fork)


def _harmless(method: Callable[..., Any]) -> Callable[..., Any]:
    """An error while recording is one warning, and then silence."""

    @functools.wraps(method)
    def guarded(self: Run, *args: Any, **kwargs: Any) -> Any:
        if not self._live:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            self._fail(error)
            return None

    return guarded


def _first(*names: str) -> int | None:
    """The first of some environment variables that is a number."""
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.") or "run"


def _parent_start() -> str:
    """When the launcher of this process began: all ranks that it started agree on it."""
    stat = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
    return stat.rpartition(")")[2].split()[19]


class Run:
    """A run that is being recorded. A context manager; `close` ends it too.

    name        what is trained, such as "resnet18"; shown as the model
    batch_size  examples of one update over all ranks
    data        what it is trained on; runs are compared only if model and data agree
    folder      where run folders go
    settings    anything that tells this run from others, such as {"optimizer": "AdamW", "learning_rate": 1e-3}
    framework   the module that trains, such as "torch"; by default the first known one that was imported
    rank, ranks this process's place in a job; read from RANK and WORLD_SIZE (torchrun), MPI's or Slurm's variables
    """

    path: pathlib.Path | None = None

    def __init__(
        self,
        name: str,
        *,
        batch_size: int = 0,
        data: str = "",
        folder: str | os.PathLike[str] = "runs",
        settings: dict[str, Any] | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        framework: str | None = None,
    ) -> None:
        # False once it has ended, after an error, and in a process that was forked from this one.
        self._live = True
        self._begin(name, batch_size, data, folder, settings, rank, ranks, framework)

    @_harmless
    def _begin(
        self,
        name: str,
        batch_size: int,
        data: str,
        folder: str | os.PathLike[str],
        settings: dict[str, Any] | None,
        rank: int | None,
        ranks: int | None,
        framework: str | None,
    ) -> None:
        if rank is None:
            rank = _first("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") or 0
        if ranks is None:
            ranks = _first("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS") or 1
        self.task = f"worker/{rank}"
        self.path = self._make_folder(pathlib.Path(folder), name, ranks)
        self._examples_per_step = batch_size / ranks
        self._log = open(self.path / f"events-worker-{rank}.jsonl", "a", encoding="utf-8")
        # Readers tell a running task from a dead one by this lock.
        fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # When this run, the steps that are not written yet, and the last of them began or ended.
        self._started = self._mark = self._last = time.perf_counter()
        self._step = 0
        self._clear()
        if rank == 0:
            (self.path / "machine.json").write_text(json.dumps(describe_machine(), indent=2) + "\n")
        started: dict[str, Any] = {
            "run": self.path.name,
            "model": name,
            "data": data,
            "strategy": "one-device" if ranks == 1 else "data-parallel",
            "global_batch": batch_size,
            "framework": _framework(framework),
            "settings": settings,
        }
        if settings is None:
            del started["settings"]
        self._write("run_started", started)
        _live_runs.add(self)
        self._sampler = Sampler(self.path / f"resources-worker-{rank}.csv")
        self._sampler.start()

    def _make_folder(self, root: pathlib.Path, name: str, ranks: int) -> pathlib.Path:
        given = os.environ.get("PACELINE_RUN_FOLDER")
        if given:
            path = pathlib.Path(given)
        elif ranks > 1:
            # The ranks of one launcher meet in one folder without talking to each other.
            job = os.environ.get("TORCHELASTIC_RUN_ID", "")
            address = os.environ.get("MASTER_ADDR", "") + os.environ.get("MASTER_PORT", "")
            path = root / _plain(f"{name}-{job}-{address}-{os.getppid()}-{_parent_start()}")
        else:
            stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
            path = root / f"{stamp}-{_plain(name)}-{secrets.token_hex(2)}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _clear(self) -> None:
        self._steps = 0
        self._examples = 0.0
        self._phases = dict.fromkeys(_PHASES, 0.0)
        self._loss: Any = None
        self._rate: float | None = None

    def _write(self, kind: str, data: dict[str, Any], ago: float = 0.0) -> None:
        line = {"v": 1, "time": time.time() - ago, "task": self.task, "kind": kind, "data": data}
        self._log.write(json.dumps(line, allow_nan=False) + "\n")
        self._log.flush()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif issubclass(kind, KeyboardInterrupt):
            self.close("cancelled", "interrupted")
        else:
            self.close("failed", f"{kind.__name__}: {error}")

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; the time until each of them comes counts as input."""
        batches = iter(loader)
        while True:
            before = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._add("input", time.perf_counter() - before)
            yield batch

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Time in here is the moving and adding up of gradients: an all-reduce by hand, say."""
        before = time.perf_counter()
        try:
            yield
        finally:
            self._add("exchange", time.perf_counter() - before)

    def _fail(self, error: BaseException) -> None:
        """Says what went wrong, once; from here on nothing is recorded."""
        self._live = False
        _live_runs.discard(self)
        warnings.warn(f"paceline stops recording: {error!r}", RuntimeWarning, stacklevel=3)

    def _add(self, phase: str, seconds: float) -> None:
        if self._live:
            self._phases[phase] += seconds

    @_harmless
    def _leave_out(self, seconds: float) -> None:
        """These seconds since the last step were no part of the training."""
        self._flush()
        self._mark += seconds

    def step(
        self, loss: Any = None, *, examples: int | None = None, learning_rate: float | None = None
    ) -> None:
        """One update was made. Time since the last one that was neither input nor exchange is compute.

        A loss that lives on a device is fetched only when an event is written, a few times a second.
        """
        if not self._live:
            return
        # No wrapper here: this is called in every step.
        try:
            now = time.perf_counter()
            self._step += 1
            self._steps += 1
            self._examples += self._examples_per_step if examples is None else examples
            self._loss, self._rate = loss, learning_rate
            self._last = now
            if now - self._mark >= _PERIOD:
                self._flush()
        except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
            self._fail(error)

    def _flush(self) -> None:
        """Writes the steps that were made, up to the end of the last of them."""
        if self._steps == 0:
            return
        seconds = self._last - self._mark
        phases = self._phases
        phases["compute"] = max(0.0, seconds - sum(phases.values()))
        data: dict[str, Any] = {
            "step": self._step,
            "steps": self._steps,
            "examples": round(self._examples),
            "seconds": seconds,
            "phases": phases,
            "loss": _number(self._loss),
        }
        if self._rate is not None:
            data["learning_rate"] = float(self._rate)
        self._write("step", data, ago=time.perf_counter() - self._last)
        self._mark = self._last
        self._clear()

    @_harmless
    def evaluation(
        self, loss: Any = None, accuracy: float | None = None, *, examples: int = 0, seconds: float = 0.0
    ) -> None:
        """The model was scored on held-out examples. The time since the last step is not counted as training."""
        self._flush()
        self._write(
            "evaluation",
            {
                "step": self._step,
                "examples": examples,
                "seconds": seconds,
                "loss": _number(loss),
                "accuracy": _number(accuracy),
            },
        )
        self._mark = self._last = time.perf_counter()

    @_harmless
    def close(self, status: str = "done", reason: str | None = None) -> None:
        """Ends the run: `done`, `cancelled` or `failed`."""
        _live_runs.discard(self)
        seconds = time.perf_counter() - self._started
        self._flush()
        self._sampler.stop()
        self._write(
            "run_ended",
            {"status": status, "step": self._step, "seconds": seconds, "reason": reason},
        )
        self._log.close()
        self._live = False

    def _repr_html_(self) -> str:
        from ._read import read

        return read(self.path)._repr_html_() if self.path else "<p>no run was recorded</p>"


def _number(value: Any) -> float | None:
    """A number that JSON can hold, from whatever a framework calls one."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _framework(wanted: str | None) -> str:
    """The framework that the script has imported, with its version."""
    for module, name in (
        ("torch", "PyTorch"),
        ("keras", "Keras"),
        ("tensorflow", "TensorFlow"),
        ("jax", "JAX"),
    ):
        loaded = sys.modules.get(module)
        if loaded is not None and wanted in (None, module):
            return f"{name} {getattr(loaded, '__version__', '')}".strip()
    return f"Python {sys.version_info.major}.{sys.version_info.minor}"
