"""What the machine does meanwhile, once a second: what the verdict needs to tell "slow" from "short of cores".

Reads the kernel's own files, as `paceline monitor` does, with the same column names.
"""

from __future__ import annotations

import os
import pathlib
import platform
import shlex
import sys
import threading
import time
from typing import Any

_COLUMNS = (
    "time_seconds",
    "elapsed_seconds",
    "cpu_idle_percent",
    "cpu_iowait_percent",
    "cpu_steal_percent",
    "process_cpu_percent",
    "process_waiting_percent",
    "process_threads",
    "process_rss_bytes",
    "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
)
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def describe_machine() -> dict[str, Any]:
    """The contents of `machine.json`."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")]
    return {
        "host": platform.node(),
        "cpu": models[0] if models else "",
        "host_cpus": os.cpu_count() or 1,
        "cores": len(os.sched_getaffinity(0)),
        "cores_decided_by": "affinity",
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * _PAGE,
        "kernel": platform.release(),
        "system": platform.system(),
        "command": shlex.join(sys.orig_argv),
    }


def _job() -> list[pathlib.Path]:
    """This process and all below it: data-loader workers are part of the training."""
    found = [pathlib.Path("/proc/self")]
    for process in found:
        for task in (process / "task").iterdir():
            try:
                found += [pathlib.Path("/proc") / child for child in (task / "children").read_text().split()]
            except OSError:
                continue  # it has ended, or this kernel does not list children
    return found


def _of_process(process: pathlib.Path) -> tuple[float, float, int, int]:
    """CPU seconds (with those of children that were waited for), seconds without a core, threads, resident bytes."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    waiting = 0
    for task in (process / "task").iterdir():
        try:
            waiting += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            continue  # a thread that has ended
    cpu = sum(int(fields[at]) for at in (11, 12, 13, 14)) / _TICKS
    return cpu, waiting / 1e9, int(fields[17]), int(fields[21]) * _PAGE


def _reading() -> dict[str, float]:
    """Counters of this moment."""
    # user nice system idle iowait irq softirq steal, in ticks over all cores
    machine = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    cpu = waiting = 0.0
    threads = resident = 0
    for process in _job():
        try:
            used, waited, count, bytes_held = _of_process(process)
        except (OSError, IndexError):
            continue  # a process that has ended
        cpu, waiting, threads, resident = cpu + used, waiting + waited, threads + count, resident + bytes_held
    received = sent = 0
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            numbers = counters.split()
            received += int(numbers[0])
            sent += int(numbers[8])
    return {
        "time": time.time(),
        "all": sum(machine),
        "idle": machine[3],
        "iowait": machine[4],
        "steal": machine[7],
        "cpu": cpu,
        "waiting": waiting,
        "threads": threads,
        "rss": resident,
        "received": received,
        "sent": sent,
    }


class Sampler(threading.Thread):
    """Writes a row a second until it is stopped."""

    def __init__(self, path: pathlib.Path, period: float = 1.0) -> None:
        super().__init__(name="paceline-resources", daemon=True)
        self._path = path
        self._period = period
        self._stop_now = threading.Event()

    def run(self) -> None:
        try:
            self._sample()
        except OSError:
            pass  # a machine without these files; the run is recorded without them

    def _sample(self) -> None:
        with open(self._path, "a", encoding="utf-8") as out:
            out.write(",".join(_COLUMNS) + "\n")
            begun = time.time()
            old = _reading()
            ended = False
            while not ended:
                ended = self._stop_now.wait(self._period)
                new = _reading()
                seconds = new["time"] - old["time"]
                ticks = new["all"] - old["all"]
                if seconds <= 0.0 or ticks <= 0:
                    continue
                share = {key: 100.0 * (new[key] - old[key]) / ticks for key in ("idle", "iowait", "steal")}
                rate = {key: (new[key] - old[key]) / seconds for key in ("cpu", "waiting", "received", "sent")}
                row = (
                    new["time"],
                    new["time"] - begun,
                    share["idle"],
                    share["iowait"],
                    share["steal"],
                    max(0.0, 100.0 * rate["cpu"]),
                    max(0.0, 100.0 * rate["waiting"]),
                    new["threads"],
                    new["rss"],
                    rate["received"],
                    rate["sent"],
                )
                out.write(",".join(f"{value:.6g}" if at > 1 else f"{value:.3f}" for at, value in enumerate(row)) + "\n")
                out.flush()
                old = new

    def stop(self) -> None:
        self._stop_now.set()
        self.join(timeout=5.0)
