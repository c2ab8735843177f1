"""Writes gp_reference.json: posteriors of scikit-learn's Gaussian process that ours must reproduce.

A flat trend is the limit of a constant kernel of endless variance; 1e6 times the signal's is near enough for
six digits. Run with scikit-learn 1.9: python gp_reference.py > gp_reference.json
"""

import json

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

FLAT = 1e6
cases = []
for seed, n, lengths in [(1, 4, [0.5]), (2, 12, [0.4, 1.2]), (3, 30, [0.3, 0.9, 2.0])]:
    random = np.random.default_rng(seed)
    points = random.random((n, len(lengths)))
    values = np.sin(3.0 * points).sum(axis=1) + 0.1 * random.standard_normal(n) + 7.0
    noise = np.where(np.arange(n) % 5 == 4, 0.08, 0.02)
    asked = random.random((6, len(lengths)))
    kernel = ConstantKernel(FLAT, "fixed") + Matern(lengths, "fixed", nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(points, values)
    mean, deviation = process.predict(asked, return_std=True)
    cases.append(
        {
            "lengths": lengths,
            "points": points.tolist(),
            "values": values.tolist(),
            "noise": noise.tolist(),
            "asked": asked.tolist(),
            "mean": mean.tolist(),
            "variance": (deviation**2).tolist(),
        }
    )
print(json.dumps(cases))
