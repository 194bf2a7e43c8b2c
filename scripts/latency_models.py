"""Models of latency, how well they predict, and how soon `auto` arrives when judged by each."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm
from sklearn.ensemble import ExtraTreesRegressor

from routewright.compare.plan import Extent, RunKey
from routewright.compare.run import carry_out, was_built
from routewright.compare.tablework import TableWork, open_table
from routewright.routes import Route
from routewright.search.auto import AutoSearch
from routewright.search.base import History, Proposal
from routewright.search.surrogate.encoding import Encoding
from routewright.search.surrogate.model import LATENCY_GUESSES, Regression, fit
from routewright.search.surrogate.sampler import SurrogateSearch
from routewright.tables import Table
from routewright.timing import TimingLimits

FEWEST_OTHERS = 20
WITHIN = 0.02

Floats = np.ndarray
Prediction = tuple[Floats, Floats]


@dataclass(frozen=True)
class Fitted:
    """A model that was fitted to trials.

    Attributes:
        predict: Returns mean and standard deviation of the model's function for encoded routes.
        misfit: Standard deviation of what engines differ by beyond that function.
    """

    predict: Callable[[Floats], Prediction]
    misfit: float = 0.0

    def mean(self, rows: Floats) -> Floats:
        """Return what to expect of encoded routes."""
        return self.predict(rows)[0]


Model = Callable[[Regression, Floats, Floats, Floats], Fitted]
"""Takes the surrogate's own model of some trials, and their rows, values and standard errors."""


def linear(own: Regression, rows: Floats, values: Floats, sds: Floats) -> Fitted:
    """The surrogate's own: Bayesian linear regression with interactions and a remainder."""
    return Fitted(own.predict, own.scales.misfit)


def trees(own: Regression, rows: Floats, values: Floats, sds: Floats) -> Fitted:
    """Extremely randomized trees; the spread over trees is the standard deviation, as in SMAC."""
    forest = forest_of(rows.tobytes(), values.tobytes())

    def predict(new: Floats) -> Prediction:
        # What `predict` of each tree does besides takes most of the time.
        narrow = new.astype(np.float32)
        each = np.array([e.tree_.predict(narrow)[:, 0] for e in forest.estimators_])
        return each.mean(axis=0), np.maximum(each.std(axis=0), 0.01)

    return Fitted(predict)


@lru_cache(maxsize=1)
def forest_of(rows: bytes, values: bytes) -> ExtraTreesRegressor:
    """Fit a forest, unless to what the last one was: screening builds time nothing new."""
    forest = ExtraTreesRegressor(100, min_samples_leaf=2, bootstrap=True, random_state=0)
    targets = np.frombuffer(values)
    return forest.fit(np.frombuffer(rows).reshape(len(targets), -1), targets)


def overlap(own: Regression, rows: Floats, values: Floats, sds: Floats) -> Fitted:
    """A Gaussian process whose kernel fades with the number of knobs that differ."""
    centre = float(values.mean())
    residual = values - centre
    inner = distances(rows, rows)
    best: tuple[float, float, float, float] | None = None
    for amplitude, fading, misfit in itertools.product(
        (0.05, 0.1, 0.2, 0.4), (0.03, 0.1, 0.2, 0.4, 0.8), (0.005, 0.02, 0.05)
    ):
        gram = amplitude**2 * np.exp(-fading * inner) + np.diag(sds**2 + misfit**2)
        factor = cho_factor(gram, lower=True)
        evidence = -0.5 * residual @ cho_solve(factor, residual) - np.log(np.diag(factor[0])).sum()
        if best is None or evidence > best[0]:
            best = (float(evidence), amplitude, fading, misfit)
    assert best is not None
    _, amplitude, fading, misfit = best
    gram = amplitude**2 * np.exp(-fading * inner) + np.diag(sds**2 + misfit**2)
    factor = cho_factor(gram, lower=True)
    weights = cho_solve(factor, residual)

    def predict(new: Floats) -> Prediction:
        reach = amplitude**2 * np.exp(-fading * distances(new, rows))
        variance = amplitude**2 - np.einsum("ij,ji->i", reach, cho_solve(factor, reach.T))
        return centre + reach @ weights, np.sqrt(np.maximum(variance, 1e-12))

    return Fitted(predict, misfit)


def distances(left: Floats, right: Floats) -> Floats:
    """Return in how many knobs encoded routes differ."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1)[None, :]
    return np.maximum(squares - 2.0 * left @ right.T, 0.0)


MODELS: dict[str, Model] = {"linear": linear, "trees": trees, "overlap-gp": overlap}


# Predictions


def compare_predictions(folders: Sequence[Path], seeds: int) -> None:
    print("mean log predictive density (higher is better) / root mean squared error, log scale")
    counts = (15, 40, 100)
    print(f"{'table':20}{'model':10}" + "".join(f"{f'{n} engines':>18}" for n in counts))
    for folder in folders:
        table = Table.load(folder)
        encoding = Encoding(table.live_space)
        entries = [
            e for e in table.entries if e.failure is None and np.isfinite(e.relative_latency)
        ]
        rows = encoding.encode_all([Route.parse(e.route, table.database) for e in entries])
        truth = np.log([e.relative_latency for e in entries])
        for name, model in MODELS.items():
            shown = ""
            for count in counts:
                if len(rows) < count + FEWEST_OTHERS:
                    shown += f"{'-':>18}"
                    continue
                scores = [
                    score(model, encoding, rows, truth, count, seed) for seed in range(seeds)
                ]
                density, error = np.mean(scores, axis=0)
                shown += f"{f'{density:.2f} / {error:.3f}':>18}"
            print(f"{table.name:20}{name:10}{shown}", flush=True)


def score(
    model: Model, encoding: Encoding, rows: Floats, truth: Floats, count: int, seed: int
) -> tuple[float, float]:
    order = np.random.default_rng([seed, count]).permutation(len(rows))
    known, other = order[:count], order[count : count + 200]
    # The start is the baseline, whose relative latency is 1 by definition.
    trials = np.vstack([np.zeros((1, rows.shape[1])), rows[known]])
    values = np.append(0.0, truth[known])
    sds = np.append(1e-3, np.full(count, 0.01))
    own = fit(trials, values, sds, encoding.layout, LATENCY_GUESSES)
    fitted = model(own, trials, values, sds)
    mean, sd = fitted.predict(rows[other])
    # What a measurement of the engine would show.
    spread = np.sqrt(sd**2 + fitted.misfit**2 + 0.01**2)
    density = norm.logpdf(truth[other], mean, spread).mean()
    return float(density), float(np.sqrt(np.mean((truth[other] - mean) ** 2)))


# Whole searches


class TimedAuto(AutoSearch):
    """`auto`, and the seconds of processor time that its proposals took."""

    used_s = 0.0

    def propose(self, history: History) -> Proposal | None:
        """Return what `auto` proposes."""
        started_s = time.process_time()
        proposal = super().propose(history)
        self.used_s += time.process_time() - started_s
        return proposal


def auto_judged_by(model: Model) -> type[TimedAuto]:
    """Return `auto` that makes candidates as it always does and has a model choose among them."""

    class Judged(SurrogateSearch):
        def judge_of(self, own: Regression, rows: Floats, values: Floats, sds: Floats) -> Fitted:
            return model(own, rows, values, sds)

    class Auto(TimedAuto):
        search_type = Judged

    return Auto


@dataclass(frozen=True)
class Search:
    """What one search took.

    Attributes:
        builds: Until its incumbent was within reach of the best route; infinite if it never was.
        proposals: How many it made.
        used_s: Processor time of all of them.
    """

    builds: float
    proposals: int
    used_s: float


def compare_searches(folders: Sequence[Path], seeds: int, trials: int) -> None:
    """Print builds until the incumbent is truly near the best eligible route of each table."""
    print(f"seeds 0 to {seeds - 1}, {trials} trials at most")
    head = f"builds to {WITHIN:.0%} (q25-q75)"
    print(f"{'table':20}{'model':10}{head:>26}{'missed':>8}{'ms':>6}")
    ratios: dict[str, list[Floats]] = {name: [] for name in MODELS}
    for folder in folders:
        work = open_table(folder)
        logs: dict[str, Floats] = {}
        for name, model in MODELS.items():
            searches = [searched(work, model, seed, trials) for seed in range(seeds)]
            builds = np.array([each.builds for each in searches])
            # Between two runs the quartiles are the outer ones: misses are infinite.
            low = np.percentile(builds, 25, method="lower")
            middle, high = np.percentile(builds, [50, 75], method="higher")
            spread = f"{shown(middle, trials)} ({shown(low, trials)}-{shown(high, trials)})"
            took_ms = 1e3 * sum(s.used_s for s in searches) / sum(s.proposals for s in searches)
            print(
                f"{work.name:20}{name:10}{spread:>26}{np.isinf(builds).sum():8}{took_ms:6.0f}",
                flush=True,
            )
            logs[name] = np.log(np.minimum(builds, trials + 1))
            ratios[name].append(logs[name] - logs["linear"])
    print(f"\nagainst linear, with the same seeds; a miss counts as {trials + 1} builds")
    print(f"{'model':10}{'builds, geometric mean':>24}{'fewer':>8}{'same':>8}{'more':>8}")
    for name, rows in ratios.items():
        each = np.array(rows)
        counts = (np.sum(each < 0), np.sum(each == 0), np.sum(each > 0))
        print(f"{name:10}{np.exp(each.mean()):24.2f}" + "".join(f"{n:8}" for n in counts))


def searched(work: TableWork, model: Model, seed: int, trials: int) -> Search:
    sampler = auto_judged_by(model)(work.space, seed=seed, hints=work.hints)
    run = carry_out(
        work,
        RunKey(work.name, sampler.name, seed),
        Extent(trials=trials, until=WITHIN),
        TimingLimits(),
        sampler=sampler,
    )
    arrived = run.stopped.startswith("within")
    builds = float(sum(map(was_built, run.records))) if arrived else np.inf
    return Search(builds, len(run.records) - 1, sampler.used_s)


def shown(builds: float, trials: int) -> str:
    return f">{trials}" if np.isinf(builds) else f"{builds:.0f}"
