"""Writes precise.json beside it: python precise.py (mpmath only).

Special functions to fifty digits, rounded once: what twelve digits of agreement can be asked of.
"""

import json
import pathlib

import mpmath as mp

mp.mp.dps = 50


def t_two_sided(t, freedom):
    t, d = mp.mpf(t), mp.mpf(freedom)
    return mp.betainc(d / 2, mp.mpf(1) / 2, 0, d / (d + t * t), regularized=True)


def f_upper(f, a, b):
    f, a, b = mp.mpf(f), mp.mpf(a), mp.mpf(b)
    return mp.betainc(b / 2, a / 2, 0, b / (b + a * f), regularized=True)


def t_quantile(share, freedom):
    """Bisection on the tail: shares are given as doubles, so 1 - share is taken exactly."""
    upper = 2 * (1 - mp.mpf(share))
    low, high = mp.mpf(0), mp.mpf(1)
    while t_two_sided(high, freedom) > upper:
        high *= 2
    for _ in range(90):
        middle = (low + high) / 2
        if t_two_sided(middle, freedom) > upper:
            low = middle
        else:
            high = middle
    return (low + high) / 2


if __name__ == "__main__":
    erfc = [-30, -6, -2.5, -1, -0.46875, -0.1, 0, 1e-9, 0.25, 0.46875, 0.46876, 0.5, 0.707, 1, 1.5, 1.99, 2, 2.01, 3, 3.999, 4, 4.001, 5.5, 8, 12.3, 20, 26]
    freedoms = [1, 1.5, 2, 3, 5, 10, 30, 178]
    content = {
        "erfc": [[float(x), float(mp.erfc(mp.mpf(x)))] for x in erfc],
        "t_two_sided": [[t, d, float(t_two_sided(t, d))] for t in [0.01, 0.5, 1.0, 1.96, 3.5, 8.0, 60.0] for d in freedoms],
        "t_quantile": [[p, d, float(t_quantile(p, d))] for p in [0.6, 0.9, 0.95, 0.975, 0.999] for d in freedoms],
        "f_upper": [[f, a, b, float(f_upper(f, a, b))] for f in [1e-3, 0.3, 1.0, 2.5, 10.0, 100.0] for a in [1, 2, 6, 25] for b in [1, 3, 9, 40]],
    }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in content.items())
    (pathlib.Path(__file__).parent / "precise.json").write_text("{\n" + lines + "\n}\n")
