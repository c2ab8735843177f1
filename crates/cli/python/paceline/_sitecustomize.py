"""Becomes `sitecustomize.py` in front of the script that `paceline run` starts; the interpreter imports it by itself."""

import os
import sys

try:
    import paceline._auto

    paceline._auto.install()
except Exception as error:  # noqa: BLE001 - the script matters more than its record
    print(f"paceline: nothing will be recorded: {error!r}", file=sys.stderr)


def _continue() -> None:
    """Runs the sitecustomize that this one stands in front of."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [place for place in sys.path if os.path.abspath(place or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_continue()
