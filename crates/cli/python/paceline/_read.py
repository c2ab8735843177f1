"""A run folder as columns, for notebooks."""

from __future__ import annotations

import html
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any


class RunRecord:
    """What a run folder holds."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.events: dict[str, list[dict[str, Any]]] = {}
        logs = sorted(path.glob("events-*.jsonl"))
        if not logs:
            raise FileNotFoundError(f"{path} holds no events-*.jsonl")
        for log in logs:
            for line in log.read_text(encoding="utf-8").splitlines():
                try:
                    event = json.loads(line)
                    row = {"time": event["time"], "task": event["task"], **event["data"]}
                    self.events.setdefault(event["kind"], []).append(row)
                except (ValueError, KeyError, TypeError):
                    continue  # a process died while it wrote this line
        for rows in self.events.values():
            rows.sort(key=lambda row: row["time"])

    def columns(self, kind: str = "step") -> dict[str, list[Any]]:
        """The events of a kind as lists of equal length; phases are columns of their own."""
        rows = []
        for row in self.events.get(kind, []):
            phases = row.get("phases") or {}
            flat = {name: value for name, value in row.items() if name != "phases"}
            rows.append({**flat, **{f"{name}_seconds": value for name, value in phases.items()}})
        names = list(dict.fromkeys(name for row in rows for name in row))
        return {name: [row.get(name) for row in rows] for name in names}

    def dataframe(self, kind: str = "step") -> Any:
        """The same as a pandas DataFrame."""
        return _needed("pandas", "dataframe").DataFrame(self.columns(kind))

    def arrow(self, kind: str = "step") -> Any:
        """The same as a table of Arrow."""
        return _needed("pyarrow", "arrow").table(self.columns(kind))

    def summary(self) -> dict[str, Any]:
        """Figures and verdict, as `paceline runs --json` gives them."""
        words = [_program(), "runs", str(self.path.name), "--runs", str(self.path.parent), "--json"]
        output = subprocess.run(words, check=True, capture_output=True, text=True)
        found = json.loads(output.stdout)[0]
        return {**(found.get("summary") or {}), "status": found["status"]}

    @property
    def verdict(self) -> str:
        """Where the time went, in words."""
        return str(self.summary()["verdict"])

    def _repr_html_(self) -> str:
        summary = self.summary()
        rate = summary.get("examples_per_second") or 0.0
        parts = [
            f"<b>{html.escape(self.path.name)}</b> ({html.escape(str(summary['status']))})",
            html.escape(str(summary["verdict"])),
            f"{summary.get('global_steps', 0):,} steps, {rate:,.0f} examples/s",
        ]
        return "<div>" + "<br>".join(parts) + "</div>"


def _needed(module: str, asked: str) -> Any:
    """A module that this package does not depend on."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{asked}() needs {module} (pip install {module}); columns() needs nothing") from error


def _program() -> str:
    """The program: the one that is named, that of this interpreter's environment, or the one on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "paceline")
    named = os.environ.get("PACELINE")
    program = named or shutil.which(beside) or shutil.which("paceline")
    if program is None:
        raise FileNotFoundError("the paceline program is neither beside this Python nor on the PATH")
    return program


def read(path: str | os.PathLike[str]) -> RunRecord:
    """Opens a run folder."""
    return RunRecord(pathlib.Path(path))
