"""One side of a side-by-side benchmark: measures once for every line "go" on standard input.

The process stays up between measurements, so that imports and warm-up are paid once and the sides can take turns.
Protocol: one JSON line {"ready": "name and version"} after warm-up, then {"value": rate} for each "go".
"""
import json
import os
import sys

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


def list_photos(folder):
    """Sorted (path, label) of every JPEG below the folder; the label numbers the sorted class folders."""
    found = []
    for path, _, names in os.walk(folder, followlinks=True):
        found += [(os.path.join(path, n), os.path.basename(path)) for n in names if n.lower().endswith((".jpg", ".jpeg"))]
    classes = {c: i for i, c in enumerate(sorted({c for _, c in found}))}
    return [(p, classes[c]) for p, c in sorted(found)]
