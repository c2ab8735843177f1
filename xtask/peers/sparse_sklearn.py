"""scikit-learn's SGDClassifier on pre-hashed rows of a click log, one pass: learning only; its progressive loss is in its name.

  sparse_sklearn.py FILE.tsv           (constant rate 0.01, the best of a small grid on such files)
"""
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import numpy as np
import sklearn
from scipy.sparse import vstack
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import SGDClassifier

from contest import serve

BLOCK = 20_000  # progressive loss: each block is predicted before it is learned


def blocks(path):
    labels, rows = [], []
    for line in open(path):
        fields = line.rstrip("\n").split("\t")
        labels.append(int(fields[0]))
        rows.append([f"i{k}={int(v).bit_length()}" for k, v in enumerate(fields[1:14]) if v]
                    + [f"c{k}={v}" for k, v in enumerate(fields[14:]) if v])
        if len(rows) == BLOCK:
            yield labels, rows
            labels, rows = [], []
    if rows:
        yield labels, rows


def model():
    return SGDClassifier(loss="log_loss", alpha=1e-12, penalty=None, learning_rate="constant", eta0=0.01,
                         shuffle=False, random_state=0)


hasher = FeatureHasher(1 << 25, input_type="string", alternate_sign=False)
data = [(np.array(labels), hasher.transform(rows)) for labels, rows in blocks(sys.argv[1])]
judged, total, seen = model(), 0.0, 0
for number, (y, x) in enumerate(data):
    p = judged.predict_proba(x)[:, 1] if number else np.full(len(y), 0.5)
    p = np.clip(p, 1e-6, 1 - 1e-6)
    total -= np.log(np.where(y == 1, p, 1 - p)).sum()
    seen += len(y)
    judged.partial_fit(x, y, classes=[0, 1])
X, Y = vstack([x for _, x in data]).tocsr(), np.concatenate([y for y, _ in data])


def one_pass():
    fresh = model()
    start = time.perf_counter()
    fresh.partial_fit(X, Y, classes=[0, 1])
    return len(Y) / (time.perf_counter() - start)


serve(f"scikit-learn {sklearn.__version__} SGDClassifier, loss {total / seen:.4f}", one_pass, warm_up=2)
