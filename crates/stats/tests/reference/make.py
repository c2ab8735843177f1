"""Writes the reference numbers beside it: python make.py (numpy, scipy, statsmodels; mpmath for the tails if present).

Regressions are solved in exact rational arithmetic, then checked against statsmodels, so that ill-conditioned data (Longley) have
reference values better than any double-precision program's. p-values come from scipy.
"""

import json
import math
import pathlib
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.outliers_influence import variance_inflation_factor

HERE = pathlib.Path(__file__).parent
getcontext().prec = 60


def root(fraction):
    return float((Decimal(fraction.numerator) / Decimal(fraction.denominator)).sqrt())


def solve(matrix, right):
    """Gauss over fractions; right may have several columns."""
    size = len(matrix)
    rows = [list(row) + list(extra) for row, extra in zip(matrix, right)]
    for i in range(size):
        pivot = next(r for r in range(i, size) if rows[r][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for r in range(size):
            if r != i and rows[r][i] != 0:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i])]
    return [row[size:] for row in rows]


def regression(y, columns):
    """Ordinary least squares with intercept, exact up to the final square roots."""
    n, k = len(y), len(columns)
    exact_y = [Fraction(float(v)) for v in y]
    design = [[Fraction(1)] * n] + [[Fraction(float(v)) for v in column] for column in columns]
    dot = lambda a, b: sum(x * z for x, z in zip(a, b))
    gram = [[dot(a, b) for b in design] for a in design]
    identity = [[Fraction(int(i == j)) for j in range(k + 1)] for i in range(k + 1)]
    inverse = solve(gram, identity)
    moments = [dot(a, exact_y) for a in design]
    beta = [dot(row, moments) for row in inverse]
    residuals = [v - sum(b * c[i] for b, c in zip(beta, design)) for i, v in enumerate(exact_y)]
    rss = dot(residuals, residuals)
    mean = sum(exact_y) / n
    tss = sum((v - mean) ** 2 for v in exact_y)
    freedom = n - k - 1
    s2 = rss / freedom
    errors = [root(s2 * inverse[i][i]) for i in range(k + 1)]
    coefficients = [float(b) for b in beta]
    t = [c / e for c, e in zip(coefficients, errors)]
    critical = float(stats.t.ppf(0.975, freedom))
    f = float((tss - rss) / k / s2)
    result = {
        "n": n,
        "coefficients": coefficients,
        "standard_errors": errors,
        "t": t,
        "p": [2 * float(stats.t.sf(abs(v), freedom)) for v in t],
        "low": [c - critical * e for c, e in zip(coefficients, errors)],
        "high": [c + critical * e for c, e in zip(coefficients, errors)],
        "r_squared": float(1 - rss / tss),
        "adjusted_r_squared": float(1 - rss * (n - 1) / (tss * freedom)),
        "f": f,
        "f_p": float(stats.f.sf(f, k, freedom)),
        "residual_standard_error": root(s2),
    }
    x = sm.add_constant(np.array(columns, float).T, has_constant="add")
    theirs = sm.OLS(np.array(y, float), x).fit()
    np.testing.assert_allclose(result["coefficients"], theirs.params, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result["standard_errors"], theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(result["p"], theirs.pvalues, rtol=1e-4, atol=1e-300)
    np.testing.assert_allclose(result["f"], theirs.fvalue, rtol=1e-6)
    # Centred columns, else the offset of a column counts as collinearity with the intercept.
    if k > 1:
        result["variance_inflation"] = [float(variance_inflation_factor(x, i)) for i in range(1, k + 1)]
        centred = x[:, 1:] - x[:, 1:].mean(axis=0)
        singular = np.linalg.svd(centred / np.linalg.norm(centred, axis=0), compute_uv=False)
        result["condition_number"] = float(singular[0] / singular[-1])
    return result


def line_cases():
    rng = np.random.default_rng(7)
    cases = {}

    def add(name, x, y):
        x, y = [float(v) for v in x], [float(v) for v in y]
        whole = regression(y, [x])
        theirs = stats.linregress(x, y)
        np.testing.assert_allclose(whole["coefficients"], [theirs.intercept, theirs.slope], rtol=1e-6, atol=1e-9)
        whole |= {"r": float(theirs.rvalue)}
        cases[name] = {"x": x, "y": y, "expected": whole}

    add("three points", [1, 2, 4], [1.5, 1.0, 3.25])
    x = rng.uniform(0, 10, 40)
    add("moderate slope", x, 3 + 0.4 * x + rng.normal(0, 1.5, 40))
    add("negative slope", x, 30 - 2.5 * x + rng.normal(0, 1.0, 40))
    grid = np.repeat([2, 4, 8, 16, 32, 64], 30)
    add("tiny p", grid, 8.85 * grid - 3.45 + rng.normal(0, 40, grid.size))
    long = np.repeat(np.arange(1, 41), 20)
    add("p far below 1e-200", long, 5 * long + rng.normal(0, 35, long.size))
    add("p below the smallest double", long, 5 * long + rng.normal(0, 5, long.size))
    # Symmetric noise around zero slope: p close to 1.
    flat = np.tile([1.0, 2.0, 3.0], 8)
    noise = rng.normal(500, 100, 24)
    centred = flat - flat.mean()
    noise -= centred * (centred @ noise) / (centred @ centred)
    add("p near one", flat, noise + 0.01 * flat)
    add("large offset", x + 1e6, 1e7 + 0.4 * x + rng.normal(0, 1.5, 40))
    add("small numbers", x * 1e-9, 3e-7 + x * 1e-8 + rng.normal(0, 1e-8, 40))
    return cases


def multiple_cases():
    rng = np.random.default_rng(11)
    cases = {}

    def add(name, y, columns):
        y, columns = [float(v) for v in y], [[float(v) for v in c] for c in columns]
        cases[name] = {"y": y, "columns": columns, "expected": regression(y, columns)}

    longley = sm.datasets.longley.load_pandas().data
    add("Longley", longley["TOTEMP"], [longley[c] for c in ["GNPDEFL", "GNP", "UNEMP", "ARMED", "POP", "YEAR"]])
    batch, batches, repeat = (a.ravel() for a in np.meshgrid([2, 4, 8, 16], [3, 6, 9, 12], [0, 1, 2], indexing="ij"))
    rate = 500 + 12 * batch + 3 * batches + 0.4 * batch * batches + rng.normal(0, 25, batch.size)
    add("speed test grid", rate, [batch, batches, repeat, batch * batches])
    a = rng.normal(0, 1, 60)
    add("nearly collinear", 1 + 2 * a + rng.normal(0, 0.1, 60), [a, a + rng.normal(0, 1e-4, 60), rng.normal(0, 1, 60)])
    # NIST's Wampler idea: a polynomial of degree five, here with noise.
    x = np.arange(21.0)
    noise = rng.normal(0, 3, 21)
    add("polynomial of degree five", sum(x**k for k in range(6)) + noise, [x**k for k in range(1, 6)])
    return cases


def tails():
    t_values = [0.0, 1e-8, 0.01, 0.063, 0.5, 1.0, 1.96, 3.5, 8.0, 25.0, 60.0, 200.0]
    freedoms = [1, 2, 3, 5, 10, 30, 178, 1000, 1e5, 1e7]
    t = [[v, d, float(2 * stats.t.sf(v, d))] for v in t_values for d in freedoms]
    critical = [[p, d, float(stats.t.isf(p / 2, d))] for p in [0.5, 0.1, 0.05, 0.01, 1e-6] for d in freedoms]
    f = [
        [v, a, b, float(stats.f.sf(v, a, b))]
        for v in [0.0, 1e-3, 0.3, 1.0, 2.5, 10.0, 100.0, 2000.0]
        for a in [1, 2, 4, 6, 25]
        for b in [1, 3, 9, 40, 500, 1e5]
    ]
    keep = lambda rows: [row for row in rows if row[-1] > 1e-290 and math.isfinite(row[-1])]
    return {"t_two_sided": keep(t), "t_critical": critical, "f_upper": keep(f)}


def comparisons():
    rng = np.random.default_rng(5)
    cases = []
    for n, m, ties in [(5, 7, False), (3, 3, False), (12, 9, False), (20, 20, False), (30, 25, False), (8, 8, True), (40, 60, True)]:
        a, b = rng.lognormal(3.0, 0.2, n), rng.lognormal(3.15, 0.25, m)
        if ties:
            a, b = a.round(), b.round()
        welch = stats.ttest_ind(np.log(a), np.log(b), equal_var=False)
        interval = welch.confidence_interval(0.95)
        case = {"first": a.tolist(), "second": b.tolist()}
        case["ratio"] = float(np.exp(np.log(a).mean() - np.log(b).mean()))
        case["ratio_low"], case["ratio_high"] = float(np.exp(interval.low)), float(np.exp(interval.high))
        case["ratio_p"] = float(welch.pvalue)
        cases.append(case)
    return cases


def lack_of_fit():
    rng = np.random.default_rng(3)
    cases = []
    for bend in [0.0, 0.05, 0.4]:
        x = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0], 5)
        y = 10 + 3 * x - bend * x**2 + rng.normal(0, 2, x.size)
        line = sm.OLS(y, sm.add_constant(x)).fit()
        free = sm.OLS(y, np.array([x == v for v in np.unique(x)], float).T).fit()
        f, p, _ = free.compare_f_test(line)
        cases.append({"x": x.tolist(), "y": y.tolist(), "f": float(f), "p": float(p)})
    return cases


if __name__ == "__main__":
    for name, content in {
        "line": line_cases(),
        "multiple": multiple_cases(),
        "tails": tails(),
        "comparisons": comparisons(),
        "lack_of_fit": lack_of_fit(),
    }.items():
        # One line per case: a change of one shows as one line.
        lines = [json.dumps(v, allow_nan=False) for v in (content if isinstance(content, list) else content.values())]
        if isinstance(content, dict):
            lines = [f"{json.dumps(k)}: {line}" for k, line in zip(content, lines)]
        opening, closing = "[]" if isinstance(content, list) else "{}"
        text = opening + "\n" + ",\n".join(lines) + "\n" + closing
        (HERE / f"{name}.json").write_text(text + "\n")
        print(name, len(text))
