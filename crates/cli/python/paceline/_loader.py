"""Batches and records from Python: read, decoded and put in order by the program, and used where it left them.

A `Loader` starts `paceline task batches` with a file in memory. The program decodes on its own threads, outside of this
interpreter, and writes each batch into a slot of that file; arrays here are views of the slot, and it is used again when the
last of them is gone. What is in the way of the training is the reading of one line.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ._read import _program


class Batch(NamedTuple):
    """Images as bytes in the order example, height, width, channel; labels as 64-bit integers."""

    images: Any
    labels: Any


class Loader:
    """Batches of a data set, in an order that depends on the seed and the epoch alone.

    data        a folder of photos in class folders, of records or of IDX files, or `generated:…`; what `paceline data info` knows
    batch_size  examples of one batch over all workers
    worker, workers  this process's share of every batch; by default RANK and WORLD_SIZE (torchrun), else all of it
    split       "train", "validation" or "test"; the whole set without
    size        width and height that photos are resized to
    threads     threads that decode; by default as many as cores
    prefetch    batches that are read ahead

    A `for` loop over it is one epoch. `state_dict` after any batch says where the next one begins.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        *,
        batch_size: int = 64,
        seed: int = 0,
        split: str | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        size: tuple[int, int] | None = None,
        worker: int | None = None,
        workers: int | None = None,
        threads: int | None = None,
        prefetch: int = 4,
    ) -> None:
        self.workers = int(os.environ.get("WORLD_SIZE") or 1) if workers is None else workers
        self.worker = int(os.environ.get("RANK") or 0) if worker is None else worker
        self.batch_size, self.seed = batch_size, seed
        words = ["--data", os.fspath(data), "--batch-size", str(batch_size), "--seed", str(seed)]
        words += ["--worker", str(self.worker), "--workers", str(self.workers)]
        words += [] if split is None else ["--split", split]
        words += [] if shuffle else ["--in-order"]
        words += ["--drop-last"] if drop_last else []
        words += [] if size is None else ["--size", f"{size[0]}x{size[1]}"]
        words += [] if threads is None else ["--threads", str(threads)]
        self._words = words
        self._prefetch = max(1, prefetch)
        # Where the batch after the one last handed out begins.
        self._position = (0, 0)
        self._feed: _Feed | None = None
        described = self._running().description
        self.examples: int = described["examples"]
        self.shape: tuple[int, ...] = tuple(described["shape"])
        self.classes: list[str] = described["classes"]
        self._batches: int = described["batches_per_epoch"]

    def _running(self) -> _Feed:
        if self._feed is None:
            epoch, example = self._position
            start = ["--epoch", str(epoch), "--example", str(example)]
            self._feed = _Feed([*self._words, *start], self._prefetch)
        return self._feed

    @property
    def epoch(self) -> int:
        """The epoch that the next batch is part of."""
        return self._position[0]

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        epoch = self._position[0]
        while self._position[0] == epoch:
            batch, self._position = self._running().next()
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Where the next batch begins; plain numbers, for a checkpoint."""
        epoch, example = self._position
        return {
            "epoch": epoch,
            "example": example,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "examples": self.examples,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues where another loader was: the next batch is the one that it would have given."""
        for name in ("seed", "examples"):
            if state[name] != getattr(self, name):
                raise ValueError(f"the state is of a loader with {name} {state[name]}, not {getattr(self, name)}")
        self.close()
        self._position = (state["epoch"], state["example"])

    def close(self) -> None:
        """Ends the program behind it. Arrays that were handed out stay."""
        if self._feed is not None:
            self._feed.close()
            self._feed = None

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Feed:
    """A running program and the memory it fills."""

    def __init__(self, words: Sequence[str], prefetch: int) -> None:
        self._memory = os.memfd_create("paceline-batches")
        self._process = _start(["task", "batches", *words], self._memory)
        self._owner = os.getpid()
        self._ended = weakref.finalize(self, _end, self._process, self._memory, self._owner)
        self.description: dict[str, Any] = self._answer()
        self._bytes: int = self.description["slot_bytes"]
        self._slots: list[mmap.mmap] = []
        # Appended to by whichever thread drops the last array of a slot.
        self._free: deque[int] = deque()
        for _ in range(prefetch):
            self._order()

    def _order(self) -> None:
        """Asks for one more batch, in a slot that is free or new: arrays that are kept keep theirs."""
        try:
            slot = self._free.popleft()
        except IndexError:
            slot = len(self._slots)
            os.ftruncate(self._memory, (slot + 1) * self._bytes)
            self._slots.append(mmap.mmap(self._memory, self._bytes, offset=slot * self._bytes))
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{slot}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # why it ended is told where its answer is missing

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            said = self._process.stderr.read().decode(errors="replace").strip()
            raise RuntimeError(said or f"paceline ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def next(self) -> tuple[Batch, tuple[int, int]]:
        if os.getpid() != self._owner:
            raise RuntimeError("a paceline.Loader is used by the process that made it; it needs no worker processes")
        answer = self._answer()
        self._order()
        slot, count = answer["slot"], answer["count"]
        held = (ctypes.c_ubyte * self._bytes).from_buffer(self._slots[slot])
        # All views of it hold `held`, whatever made them.
        weakref.finalize(held, self._free.append, slot)
        shape = (count, *self.description["shape"])
        batch = Batch(
            _array(held, "B", 0, shape),
            _array(held, "q", self.description["labels_at"], (count,)),
        )
        return batch, (answer["next_epoch"], answer["next_example"])

    def close(self) -> None:
        self._ended()


def _start(words: Sequence[str], memory: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [_program(), *words, "--memory", f"/proc/self/fd/{memory}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(memory,),
        # Ctrl-C is for the script; this ends with it.
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes], memory: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # forked from it: the parent still reads
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # an order that it did not take
    os.close(memory)


def _array(held: Any, kind: str, offset: int, shape: tuple[int, ...]) -> Any:
    """A view of memory: an array where NumPy is installed (which has DLPack), else a memoryview."""
    count = 1
    for length in shape:
        count *= length
    try:
        import numpy
    except ImportError:
        width = 8 if kind == "q" else 1
        flat: Any = memoryview(held).cast("B")[offset : offset + width * count]
        return flat.cast(kind, shape) if count else flat.cast(kind)
    return numpy.frombuffer(held, kind, count, offset).reshape(shape)


class TFRecordReader:
    """The records of TFRecord files, as views of their bytes; every checksum is compared when it is made.

    Files may be compressed (gzip, zlib). Records have numbers, over all files in the order given: `reader[7]`, `len(reader)`.
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        # Begin and length of every record of a file, the memory they are in, and the number of the first of them.
        self._files: list[tuple[memoryview, memoryview, int]] = []
        self._count = 0
        for path in paths:
            self._add(os.fspath(path))

    def _add(self, path: str) -> None:
        memory = os.memfd_create("paceline-records")
        try:
            process = _start(["task", "records", path, "--json"], memory)
            out, said = process.communicate()
            if process.returncode != 0:
                raise RuntimeError(said.decode(errors="replace").strip())
            found = json.loads(out)
            if found["records"] == 0:
                return
            mapped = memoryview(mmap.mmap(memory, 0, prot=mmap.PROT_READ))
        finally:
            os.close(memory)
        table = mapped[found["table_at"] :].cast("Q")
        if found["unpacked"]:
            data = mapped
        else:
            with open(path, "rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        self._files.append((table, data, self._count))
        self._count += found["records"]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> memoryview:
        number = number + self._count if number < 0 else number
        if not 0 <= number < self._count:
            raise IndexError(f"record {number} of {self._count}")
        table, data, first = next(file for file in reversed(self._files) if file[2] <= number)
        return _record(table, data, number - first)

    def __iter__(self) -> Iterator[memoryview]:
        for table, data, _ in self._files:
            for number in range(len(table) // 2):
                yield _record(table, data, number)


def _record(table: memoryview, data: memoryview, number: int) -> memoryview:
    begin, length = table[2 * number], table[2 * number + 1]
    return data[begin : begin + length]
