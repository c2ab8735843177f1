"""One side of a side-by-side benchmark: measures once for every line "go" on standard input.

The process stays up between measurements, so that imports and warm-up are paid once and the sides can take turns.
Protocol: one JSON line {"ready": "name and version"} after warm-up, then {"value": rate} for each "go".
"""
import json
import multiprocessing
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def serve(name, measure, warm_up=1):
    """`measure()` returns a rate: more is better."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, never into the protocol
    for _ in range(warm_up):
        measure()
    print(json.dumps({"ready": name}), file=out, flush=True)
    for line in sys.stdin:
        if line.strip() != "go":
            break
        print(json.dumps({"value": measure()}), file=out, flush=True)


def memory():
    """Part of a name: how memory is allocated, where that is not what glibc does unasked."""
    library = os.path.basename(os.environ.get("LD_PRELOAD", ""))
    if library:
        return f", {library.removeprefix('lib').split('.')[0]}"
    return ", malloc keeps memory" if os.environ.get("MALLOC_MMAP_MAX_") == "0" else ""


def list_photos(folder):
    """Sorted (path, label) of every JPEG below the folder; the label numbers the sorted class folders."""
    found = []
    for path, _, names in os.walk(folder, followlinks=True):
        found += [(os.path.join(path, n), os.path.basename(path)) for n in names if n.lower().endswith((".jpg", ".jpeg"))]
    classes = {c: i for i, c in enumerate(sorted({c for _, c in found}))}
    return [(p, classes[c]) for p, c in sorted(found)]


def shard_flags(parser):
    """The flags of every program that prepares photos."""
    parser.add_argument("--images", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--quality", type=int, default=90)
    parser.add_argument("--processes", type=int, default=2)


def serve_shards(name, shard, args, stem, way):
    """Measures photos a second: `shard((file, photos, side, quality, way))` writes one shard in each process and returns its photos.

    Processes are forked once and kept, so that start-up is outside the clock.
    """
    photos = list_photos(args.images)
    os.makedirs(args.out, exist_ok=True)
    jobs = [
        (os.path.join(args.out, f"{stem}-{i}.tfrecord"), photos[i :: args.processes], args.size, args.quality, way)
        for i in range(args.processes)
    ]
    pool = multiprocessing.get_context("fork").Pool(args.processes)

    def measure():
        start = time.perf_counter()
        done = sum(pool.map(shard, jobs, chunksize=1))
        return done / (time.perf_counter() - start)

    serve(name, measure)
