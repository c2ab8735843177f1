"""JAX: a training step is a compiled function that is fed its own results.

JAX has no optimiser object and no loop of its own, but what it trains is a function of `jax.jit` (or `jax.pmap`) that takes weights and returns
better ones. The first such function sets the pace. Calls return before the work is done, so twice a second two
calls in a row are waited for: the time between them, in which nothing was computed, is what the host needed for the next batch, and as much of it
counts as input as the steps are longer than their compute.
"""

from __future__ import annotations

import functools
import sys
import time
import types
import weakref
from typing import Any

from ._auto import Recorder, guarded

_NAME = "jax"
# Calls after which a function that was never fed its own results is not looked at any more.
_CALLS = 16
# Results of a call that are looked for among the arguments of the next.
_LEAVES = 256
# Seconds between two calls that are waited for.
_PERIOD = 0.5


def instrument(jax: types.ModuleType, recorder: Recorder) -> None:
    """Listens to what `jax.jit` and `jax.pmap` compile."""
    loop = _Loop(jax, recorder)
    called = guarded(recorder, loop.called)
    for name in ("jit", "pmap"):
        setattr(jax, name, _compiling(getattr(jax, name), called))


def _compiling(transform: Any, called: Any) -> Any:
    @functools.wraps(transform)
    def compiling(*args: Any, **kwargs: Any) -> Any:
        compiled = transform(*args, **kwargs)
        if not args and "fun" not in kwargs:
            # `jax.jit(static_argnums=0)`, to be called with the function.
            return functools.wraps(compiled)(lambda function: _Compiled(compiled(function), called))
        return _Compiled(compiled, called)

    return compiling


class _Compiled:
    """A compiled function that tells of its calls; everything else is the function's own."""

    def __init__(self, function: Any, called: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._called = called
        self.calls = 0
        self.results: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        result = self._function(*args, **kwargs)
        self._called(self, (args, kwargs), result, begun)
        return result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_function"], name)


class _Loop:
    """The training loop of one process."""

    def __init__(self, jax: types.ModuleType, recorder: Recorder) -> None:
        self._jax = jax
        self._recorder = recorder
        self._pace: _Compiled | None = None
        self._loss: float | None = None
        self._examples = 0
        # When the device was last known to have nothing to do; the step that was measured before, and how many ago.
        self._idle: float | None = None
        self._sampled = 0.0
        self._steps = 0
        self._input = 0.0

    def called(self, function: _Compiled, arguments: Any, result: Any, begun: float) -> None:
        if "keras" in sys.modules:
            return  # its own steps are recorded, whatever computes them
        if self._pace is None:
            self._look(function, arguments, result)
        if function is self._pace:
            self._step(arguments, result, begun)

    def _look(self, function: _Compiled, arguments: Any, result: Any) -> None:
        """Finds out whether a function trains."""
        if function.calls >= _CALLS:
            return
        function.calls += 1
        leaves = self._jax.tree_util.tree_leaves
        given, results = leaves(arguments), leaves(result)[:_LEAVES]
        if any(isinstance(leaf, self._jax.core.Tracer) for leaf in results):
            return  # it is being compiled into another one
        before = [earlier for earlier in (weak() for weak in function.results) if earlier is not None]
        if any(leaf is earlier for earlier in before for leaf in given):
            self._pace = function
            fresh = [leaf for leaf in given if not any(leaf is earlier for earlier in before)]
            shapes = [leaf.shape for leaf in fresh if len(getattr(leaf, "shape", ())) > 0]
            shapes.sort(key=len, reverse=True)
            self._examples = int(shapes[0][0]) if shapes else 0
            function.results = []
            return
        function.results = [weakref.ref(leaf) for leaf in results if _is_weak(leaf)]

    def _step(self, arguments: Any, result: Any, begun: float) -> None:
        self._steps += 1
        if self._idle is not None:
            self._jax.block_until_ready(result)
            now = time.perf_counter()
            gap, compute = begun - self._idle, now - begun
            mean = (now - self._sampled) / self._steps if self._sampled else gap + compute
            self._input = min(gap, max(0.0, mean - compute))
            self._idle, self._sampled, self._steps = None, now, 0
            self._loss = self._first_scalar(result)
        elif time.perf_counter() - self._sampled >= _PERIOD:
            self._jax.block_until_ready(result)
            self._idle = time.perf_counter()
        self._recorder.add(_NAME, "input", self._input)
        self._recorder.step(_NAME, self._loss, self._examples, None, self._examples)

    def _first_scalar(self, result: Any) -> float | None:
        """The loss, where a step returns it: the first single number that is not a whole one."""
        for leaf in self._jax.tree_util.tree_leaves(result):
            if getattr(leaf, "shape", None) == () and getattr(getattr(leaf, "dtype", None), "kind", "") == "f":
                return float(leaf)
        return None


def _is_weak(leaf: Any) -> bool:
    """Whether a reference can be kept that does not keep the memory."""
    try:
        weakref.ref(leaf)
    except TypeError:
        return False
    return True
