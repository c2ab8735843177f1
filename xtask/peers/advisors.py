"""Optuna and scikit-optimize choosing among recorded runs, as `advise evaluate` lets our methods choose.

    python advisors.py TABLE.json --method tpe --seeds 10 --steps 15

TABLE.json is what `cargo run -p paceline-advisor --example recorded_table` prints: candidates and what each job took on them. Each method
asks for a point, gets the untried candidate nearest to it, and is told `ln` of what that run cost; a run that did not complete
counts as the worst so far, as for CherryPick. What comes out has the units of `advise evaluate --json`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore")

POINTS = [1, 3, 6, 10, 12, 15, 20, 30]
BUDGETS = [2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0]


def columns(candidates):
    """The dimensions: names of categories, or the ends of a scale; the candidates' values, scales as logarithms."""
    numbers = ["cores", "count", "memory_per_core"]
    values = {name: [math.log2(one[name]) for one in candidates] for name in numbers}
    return {name: value for name, value in values.items() if max(value) > min(value)}


class Candidates:
    def __init__(self, values):
        self.names = list(values)
        self.values = values
        self.ends = {name: (min(value), max(value)) for name, value in values.items()}
        self.count = len(values[self.names[0]])

    def nearest(self, point, tried):
        def distance(at):
            return sum(
                ((self.values[name][at] - point[name]) / (self.ends[name][1] - self.ends[name][0])) ** 2
                for name in self.names
            )

        return min((at for at in range(self.count) if at not in tried), key=distance)

    def point(self, at):
        return {name: self.values[name][at] for name in self.names}


class Optuna:
    def __init__(self, candidates, sampler):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.optuna, self.candidates = optuna, candidates
        self.study = optuna.create_study(direction="minimize", sampler=sampler(optuna))
        self.dimensions = {
            name: optuna.distributions.FloatDistribution(low, high)
            for name, (low, high) in candidates.ends.items()
        }

    def ask(self, tried):
        trial = self.study.ask(self.dimensions)
        at = self.candidates.nearest(trial.params, tried)
        # What is told is the candidate that was run, not the point beside it.
        self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
        return at

    def tell(self, at, value):
        params = self.candidates.point(at)
        trial = self.optuna.trial.create_trial(params=params, distributions=self.dimensions, value=value)
        self.study.add_trial(trial)


class Skopt:
    def __init__(self, candidates, seed, start):
        import skopt

        self.candidates = candidates
        self.optimizer = skopt.Optimizer(
            [skopt.space.Real(low, high, name=name) for name, (low, high) in candidates.ends.items()],
            base_estimator="GP",
            acq_func="EI",
            n_initial_points=start,
            initial_point_generator="sobol",
            random_state=seed,
        )

    def ask(self, tried):
        point = dict(zip(self.candidates.names, self.optimizer.ask()))
        return self.candidates.nearest(point, tried)

    def tell(self, at, value):
        point = self.candidates.point(at)
        self.optimizer.tell([point[name] for name in self.candidates.names], value)


def advisor(method, candidates, seed, start):
    if method == "tpe":
        def sampler(optuna):
            return optuna.samplers.TPESampler(seed=seed, n_startup_trials=start, multivariate=True)

        return Optuna(candidates, sampler)
    if method == "gp":
        return Optuna(
            candidates,
            lambda optuna: optuna.samplers.GPSampler(seed=seed, n_startup_trials=start, deterministic_objective=False),
        )
    return Skopt(candidates, seed, start)


def search(candidates, job, method, seed, steps, start):
    """One search: regret and money after each run."""
    ours = advisor(method, candidates, seed, start)
    completed = [cell["usd"] for cell in job["runs"] if cell["completed"]]
    optimum, worst = min(completed), max(completed)
    tried, best, told, spent = set(), None, [], 0.0
    regret, money = [], []
    for _ in range(min(steps, candidates.count)):
        at = ours.ask(tried)
        tried.add(at)
        cell = job["runs"][at]
        spent += cell["usd"]
        value = math.log(max(cell["usd"], 1e-9))
        if cell["completed"]:
            best = cell["usd"] if best is None else min(best, cell["usd"])
        else:
            value = max([value, *told])
        told.append(value)
        ours.tell(at, value)
        regret.append((worst if best is None else best) / optimum)
        money.append(spent / optimum)
    return {"regret": regret, "spent": money, "worst": worst / optimum}


def mean(values):
    return sum(values) / len(values)


def figure(jobs, value):
    """Mean over seeds, then jobs, and the standard error of it over seeds."""
    seeds = range(len(jobs[0]))
    means = [mean([value(job[seed]) for job in jobs]) for seed in seeds]
    centre = mean(means)
    spread = sum((one - centre) ** 2 for one in means) / max(len(means) - 1, 1)
    return centre, math.sqrt(spread / len(means))


def afforded(trace, budget):
    runs = sum(1 for spent in trace["spent"] if spent <= budget)
    return trace["regret"][runs - 1] if runs else trace["worst"]


def money_to(limit):
    """Money spent until so near the optimum; all of it where that never was."""

    def value(trace):
        near = [spent for regret, spent in zip(trace["regret"], trace["spent"]) if regret <= limit + 1e-9]
        return near[0] if near else trace["spent"][-1]

    return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--method", choices=["tpe", "gp", "skopt"], required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--start", type=int, default=3, help="runs before the model is asked")
    arguments = parser.parse_args()
    with open(arguments.table) as file:
        table = json.load(file)
    candidates = Candidates(columns(table["candidates"]))
    begun, jobs = time.time(), []
    for job in table["jobs"]:
        jobs.append([
            search(candidates, job, arguments.method, seed, arguments.steps, arguments.start)
            for seed in range(arguments.seeds)
        ])
        print(f"{job['workload']}: {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
    after = lambda points: lambda trace: trace["regret"][min(points, len(trace["regret"])) - 1]
    print(json.dumps({
        "method": arguments.method,
        "jobs": len(jobs),
        "seeds": arguments.seeds,
        "regret": [[n, *figure(jobs, after(n))] for n in POINTS if n <= arguments.steps],
        "by_money": [[budget, *figure(jobs, lambda trace: afforded(trace, budget))] for budget in BUDGETS],
        "money_to": [figure(jobs, money_to(limit)) for limit in (1.2, 1.1)],
        "spent": [[n, figure(jobs, lambda trace: trace["spent"][n - 1])[0]] for n in POINTS if n <= arguments.steps],
        "traces": [[{"regret": t["regret"], "spent": t["spent"], "worst": t["worst"]} for t in job] for job in jobs],
    }))


main()
