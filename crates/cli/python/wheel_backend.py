"""Builds the wheel: the program, stripped, and the pure-Python package beside it (PEP 517, standard library only).

The program is that of PACELINE_BINARY, else the workspace's release build; PACELINE_MACHINE names its processor where that
is not this one's. The wheel fits every Python from 3.10 on, and every Linux whose C library is as new as the newest symbol
that the program needs.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from typing import Any

_HERE = pathlib.Path(__file__).resolve().parent
_WORKSPACE = _HERE.parents[2]
# The oldest time that a zip file can hold: the same sources give the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def _project() -> dict[str, str]:
    """Texts of `[project]`; `tomllib` came with Python 3.11 only."""
    text = (_HERE / "pyproject.toml").read_text(encoding="utf-8").partition("[project]")[2]
    return dict(re.findall(r'^([a-z-]+) = "(.*)"$', text, re.MULTILINE))


def _binary() -> bytes:
    """The program without its symbols."""
    given = os.environ.get("PACELINE_BINARY")
    path = pathlib.Path(given) if given else _WORKSPACE / "target" / "release" / "paceline"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: build it with `cargo build --release`, or name one in PACELINE_BINARY")
    strip = shutil.which("strip")
    # Another machine's program is not for this machine's `strip`; `cargo xtask dist` strips it as it is built.
    if strip is None or os.environ.get("PACELINE_MACHINE"):
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder) / "paceline"
        subprocess.run([strip, "-o", stripped, path], check=True)
        return stripped.read_bytes()


def _platforms(binary: bytes) -> list[str]:
    """Systems the program runs on, most particular first."""
    versions = [int(found) for found in re.findall(rb"GLIBC_2\.(\d+)", binary)]
    # Without any it is linked statically with musl and needs nothing of the system, whichever C library that has.
    libraries = [f"manylinux_2_{max(versions)}"] if versions else ["manylinux_2_17", "musllinux_1_1"]
    machine = os.environ.get("PACELINE_MACHINE") or platform.machine()
    return [f"{library}_{machine}" for library in libraries]


def _metadata(project: dict[str, str]) -> str:
    readme = _WORKSPACE / "README.md"
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
        "",
        readme.read_text(encoding="utf-8") if readme.is_file() else "",
    ]
    return "\n".join(lines)


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Writes the wheel and returns its name."""
    project = _project()
    binary = _binary()
    stem = f"{project['name']}-{project['version']}"
    platforms = _platforms(binary)
    tag = f"py3-none-{'.'.join(platforms)}"
    package = next(_HERE.rglob("paceline/__init__.py")).parent
    files: dict[str, bytes] = {
        f"paceline/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.suffix == ".py" or path.name == "py.typed"
    }
    files[f"{stem}.data/scripts/paceline"] = binary
    files[f"{stem}.dist-info/METADATA"] = _metadata(project).encode()
    wheel = f"Wheel-Version: 1.0\nGenerator: paceline {project['version']}\nRoot-Is-Purelib: false\n"
    wheel += "".join(f"Tag: py3-none-{name}\n" for name in platforms)
    files[f"{stem}.dist-info/WHEEL"] = wheel.encode()
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items()).encode()
    files[record] += f"{record},,\n".encode()
    name = f"{stem}-{tag}.whl"
    target = pathlib.Path(wheel_directory) / name
    partial = target.with_suffix(".part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _TIME)
            entry.external_attr = (0o100755 if path.endswith("scripts/paceline") else 0o100644) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    partial.replace(target)
    return name


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.decode().rstrip("=")


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """There is none: the program is built by cargo."""
    raise NotImplementedError("there is no source distribution; `cargo xtask wheel` builds the wheel")
