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
    "process_read_bytes_per_second",
    "process_major_faults_per_second",
    "disk_busiest_percent",
    "pressure_memory_percent",
    "pressure_disk_percent",
    "cgroup_throttled_percent",
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
        # `paceline run` knows the launcher too.
        "command": os.environ.get("PACELINE_COMMAND") or shlex.join(sys.orig_argv),
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


def _of_process(process: pathlib.Path) -> dict[str, float]:
    """Counters of one process: CPU seconds (with those of children that were waited for), seconds without a core, and so on."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    waiting = 0
    for task in (process / "task").iterdir():
        try:
            waiting += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):
            continue  # a thread that has ended
    try:
        read = int((process / "io").read_text().partition("\nread_bytes:")[2].split()[0])
    except (OSError, IndexError):
        read = 0  # another user's process
    return {
        "cpu": sum(int(fields[at]) for at in (11, 12, 13, 14)) / _TICKS,
        "waiting": waiting / 1e9,
        "threads": int(fields[17]),
        "rss": int(fields[21]) * _PAGE,
        "read": read,
        "faults": int(fields[9]),
    }


def _stalled(resource: str) -> float | None:
    """Seconds in which some task waited for memory or a disk, where the kernel counts them."""
    try:
        line = pathlib.Path("/proc/pressure", resource).read_text().partition("\n")[0]
        return int(line.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def _throttled(path: pathlib.Path) -> float | None:
    """Seconds in which the quota of this process's cgroup stopped it."""
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "throttled_usec":
                return int(value) / 1e6
    except (OSError, ValueError):
        pass
    return None


def _cgroup() -> pathlib.Path:
    try:
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return pathlib.Path("/sys/fs/cgroup") / line[3:].lstrip("/") / "cpu.stat"
    except OSError:
        pass
    return pathlib.Path("/sys/fs/cgroup/cpu.stat")


def _disks() -> dict[str, float]:
    """Seconds that each whole disk had work."""
    busy = {}
    stacked = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
    try:
        for line in pathlib.Path("/proc/diskstats").read_text().splitlines():
            words = line.split()
            if not words[2].startswith(stacked) and os.path.exists(f"/sys/block/{words[2]}"):
                busy[words[2]] = int(words[12]) / 1e3
    except (OSError, IndexError, ValueError):
        pass
    return busy


class _Reading:
    """Counters of this moment."""

    def __init__(self, cgroup: pathlib.Path) -> None:
        # user nice system idle iowait irq softirq steal, in ticks over all cores
        machine = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        self.time = time.time()
        self.ticks = sum(machine)
        self.idle, self.iowait, self.steal = machine[3], machine[4], machine[7]
        self.job = dict.fromkeys(("cpu", "waiting", "threads", "rss", "read", "faults"), 0.0)
        for process in _job():
            try:
                for name, value in _of_process(process).items():
                    self.job[name] += value
            except (OSError, IndexError):
                continue  # a process that has ended
        self.disks = _disks()
        self.memory, self.disk = _stalled("memory"), _stalled("io")
        self.throttled = _throttled(cgroup)
        self.received = self.sent = 0
        for line in pathlib.Path("/proc/net/dev").read_text().splitlines()[2:]:
            name, _, counters = line.partition(":")
            if name.strip() != "lo":
                numbers = counters.split()
                self.received += int(numbers[0])
                self.sent += int(numbers[8])

    def since(self, old: _Reading, begun: float) -> list[float | None] | None:
        """A row of what happened in between, in the order of the columns; none where no time has passed."""
        seconds, ticks = self.time - old.time, self.ticks - old.ticks
        if seconds <= 0.0 or ticks <= 0:
            return None

        def rate(name: str) -> float:
            return max(0.0, (self.job[name] - old.job[name]) / seconds)

        def share(new: float | None, before: float | None) -> float | None:
            return None if new is None or before is None else min(100.0, max(0.0, 100.0 * (new - before) / seconds))

        busy = [share(value, old.disks.get(name)) or 0.0 for name, value in self.disks.items()]
        return [
            self.time,
            self.time - begun,
            100.0 * (self.idle - old.idle) / ticks,
            100.0 * (self.iowait - old.iowait) / ticks,
            100.0 * (self.steal - old.steal) / ticks,
            100.0 * rate("cpu"),
            100.0 * rate("waiting"),
            self.job["threads"],
            self.job["rss"],
            rate("read"),
            rate("faults"),
            max(busy, default=None),
            share(self.memory, old.memory),
            share(self.disk, old.disk),
            share(self.throttled, old.throttled),
            (self.received - old.received) / seconds,
            (self.sent - old.sent) / seconds,
        ]


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
            cgroup = _cgroup()
            old = _Reading(cgroup)
            begun = old.time
            ended = False
            while not ended:
                ended = self._stop_now.wait(self._period)
                new = _Reading(cgroup)
                row = new.since(old, begun)
                if row is not None:
                    out.write(",".join(map(_cell, range(len(row)), row)) + "\n")
                    out.flush()
                    old = new

    def stop(self) -> None:
        self._stop_now.set()
        self.join(timeout=5.0)


def _cell(at: int, value: float | None) -> str:
    """Times to the millisecond; nothing where nothing was measured."""
    if value is None:
        return ""
    return f"{value:.3f}" if at < 2 else f"{value:.6g}"
