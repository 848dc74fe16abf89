"""Events that tell two inputs apart: learned on some runs, chosen on others, and judged on the rest.

A score is learned that is high for answers that are likelier on one input. Three kinds of scores are tried, because
each suits a different noise best: sums of distances to the two medians (Laplace), a linear function (Gaussian) and
ratios of histograms (anything else). All three use the ratios of frequencies for names and for missing numbers. An
event is "the score is at least a threshold". Any event is fair, however it was found, as long as the runs that judge it
are new (Ding, Wang, Wang, Zhang and Kifer 2018; Jagielski, Ullman and Oprea 2020).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dp_polars._audit.limits import binomial_lower, binomial_upper, gaussian_mu, mean_lower, mean_upper
from dp_polars._audit.samples import ColumnCodes, Floats, Samples

Score = Callable[[Samples], Floats]
Worth = Callable[[float, float], float]
"""What an event proves, given a lower limit of its probability on one input and an upper limit on the other."""

_THRESHOLDS = 400
_POINTS = 100  # thresholds of the curve in the chart, from each input
_BINS = 64
_FEW = 200  # distinct values that get a bin each
_SURE = 4.0  # standard errors by which two means must differ to count as different
_MOST_LINEAR = 400
_WARY = 2.0  # extra standard errors, because the best of many thresholds looks better than it is
_MOST_NAMES = 2_000


@dataclass(frozen=True)
class Event:
    """The event that an answer's score is at least a threshold. With `forward` it is likelier on the first input."""

    score: Score
    kind: str
    threshold: float
    forward: bool

    def ordered(self, both: tuple[Samples, Samples]) -> tuple[Samples, Samples]:
        """Return the samples of the input on which the event is likelier, then those of the other."""
        return both if self.forward else (both[1], both[0])

    def hits(self, samples: Samples) -> NDArray[np.bool_]:
        """Return in which runs the event happened."""
        return np.asarray(self.score(samples) * (1 if self.forward else -1) >= self.threshold)


def worth_of(delta: float, *, gaussian: bool) -> Worth:
    """Return the function for what an event proves: an epsilon at this delta, or the mu of a Gaussian curve."""
    if gaussian:
        return gaussian_mu

    def epsilon(low: float, high: float) -> float:
        return math.log((low - delta) / high) if low > delta and high > 0 else 0.0

    return epsilon


def chosen_event(
    learn: tuple[Samples, Samples], choose: tuple[Samples, Samples], worth: Worth, z: float, loose: float
) -> Event:
    """Learn scores from some runs, and return the most telling event by other runs.

    The confidence limits are guessed to be `z` standard errors away, and `loose` more if runs are not independent.
    """
    found: list[tuple[float, Event]] = []
    for kind, score in learned_scores(*learn).items():
        first, second = (score(samples) for samples in choose)
        for forward in (True, False):
            here, there = (first, second) if forward else (-second, -first)
            value, threshold = _best_threshold(here, there, worth, z + _WARY, loose)
            found.append((value, Event(score, kind, threshold, forward)))
    return max(found, key=lambda candidate: candidate[0])[1]


def _best_threshold(here: Floats, there: Floats, worth: Worth, z: float, loose: float) -> tuple[float, float]:
    """Return what the best threshold proves, and that threshold."""
    here, there = np.sort(here), np.sort(there)
    places = np.unique(np.linspace(0, len(here) - 1, _THRESHOLDS).astype(np.int64))
    thresholds = np.unique(np.concatenate([here[places], there[np.minimum(places, len(there) - 1)]]))
    best = (-math.inf, float(thresholds[0]))
    for threshold in thresholds.tolist():
        p = 1 - np.searchsorted(here, threshold, side="left") / len(here)
        q = 1 - np.searchsorted(there, threshold, side="left") / len(there)
        low = p * (1 - loose) - z * math.sqrt(p * (1 - p) / len(here)) - z**2 / len(here) / 3
        high = q + loose * (1 - q) + z * math.sqrt(q * (1 - q) / len(there)) + z**2 / len(there)
        found = worth(min(max(low, 0.0), 1.0), min(high, 1.0))
        if found > best[0]:
            best = (found, threshold)
    return best


def learned_scores(first: Samples, second: Samples) -> dict[str, Score]:
    """Return scores, by kind, that are high for answers that are likelier on the first input."""
    numbers = list(dict.fromkeys([*first.numbers, *second.numbers]))
    names = list(dict.fromkeys([*first.codes, *second.codes]))
    common = [_presence(name, first, second) for name in numbers] + _names(names, first, second)
    kinds: dict[str, list[Score]] = {
        "medians": [_medians(name, first, second) for name in numbers],
        "linear": [_linear(numbers, first, second)],
        "histogram": [_histogram(name, first, second) for name in numbers],
    }
    if not numbers:
        return {"frequencies": _summed(common)}
    return {kind: _summed([*common, *of_kind]) for kind, of_kind in kinds.items()}


def _summed(scores: list[Score]) -> Score:
    parts = [score for score in scores if score is not _nothing]

    def score(samples: Samples) -> Floats:
        total = np.zeros(samples.runs)
        for part in parts:
            total += part(samples)
        return total

    return score


def _nothing(samples: Samples) -> Floats:
    return np.zeros(samples.runs)


def _ratios(here: NDArray[np.int64], there: NDArray[np.int64], runs: tuple[int, int]) -> Floats:
    """Return log ratios of frequencies, each moved towards 0 by one standard error."""
    a, b = here + 0.5, there + 0.5
    ratio = np.log(a / b) - math.log(runs[0] / runs[1])
    shrunk: Floats = np.sign(ratio) * np.maximum(np.abs(ratio) - np.sqrt(1 / a + 1 / b), 0)
    return shrunk


def _presence(name: str, first: Samples, second: Samples) -> Score:
    """Return the score of whether a number is present at all."""
    counts = [np.bincount(~np.isnan(samples.number(name)), minlength=2) for samples in (first, second)]
    if counts[0][0] == counts[1][0] == 0:
        return _nothing
    ratio = _ratios(counts[0], counts[1], (first.runs, second.runs))
    return lambda samples: ratio[(~np.isnan(samples.number(name))).astype(np.int64)]


def _names(names: list[str], first: Samples, second: Samples) -> list[Score]:
    """Return the score of all names together, or one for each if there are too many combinations to see each often."""
    if not names:
        return []
    together = _frequencies(names, first, second)
    return [together] if together is not None else [_frequencies([name], first, second) or _nothing for name in names]


def _frequencies(names: list[str], first: Samples, second: Samples) -> Score | None:
    size = 3 + max(int(samples.code(name).max(initial=-1)) for samples in (first, second) for name in names)
    if size ** len(names) >= 1 << 62:
        return None

    def together(samples: Samples) -> ColumnCodes:
        total = np.zeros(samples.runs, np.int64)
        for name in names:
            total = total * size + np.minimum(
                samples.code(name) + 1, size - 1
            )  # the last code stands for all new names
        return total

    here, there = together(first), together(second)
    known = np.unique(np.concatenate([here, there]))
    if len(known) > _MOST_NAMES and len(names) > 1:
        return None
    counts = [np.bincount(np.searchsorted(known, side), minlength=len(known)) for side in (here, there)]
    ratio = _ratios(counts[0], counts[1], (first.runs, second.runs))

    def score(samples: Samples) -> Floats:
        summary = together(samples)
        places = np.minimum(np.searchsorted(known, summary), len(known) - 1)
        return np.where(known[places] == summary, ratio[places], 0.0)

    return score


def _there(samples: Samples, name: str) -> Floats:
    column = samples.number(name)
    return column[~np.isnan(column)]


def _medians(name: str, first: Samples, second: Samples) -> Score:
    """Return the log ratio of two Laplace distributions around the medians, with the observed spread."""
    here, there = _there(first, name), _there(second, name)
    if not len(here) or not len(there):
        return _nothing
    a, b = float(np.median(here)), float(np.median(there))
    spread = float(np.mean(np.abs(here - a)) + np.mean(np.abs(there - b))) / 2
    if not spread or abs(a - b) < _SURE * spread * math.sqrt(1 / len(here) + 1 / len(there)):
        return _nothing

    def score(samples: Samples) -> Floats:
        x = samples.number(name)
        return np.nan_to_num((np.abs(x - b) - np.abs(x - a)) / spread)

    return score


def _linear(names: list[str], first: Samples, second: Samples) -> Score:
    """Return the linear function that best separates two Gaussians with the same covariance."""
    moved, means, deviations = [], [], []
    for name in names:
        here, there = _there(first, name), _there(second, name)
        if len(here) < 2 or len(there) < 2:
            continue
        change, spread = float(here.mean() - there.mean()), math.sqrt((float(here.var()) + float(there.var())) / 2)
        if spread and abs(change) >= _SURE * spread * math.sqrt(1 / len(here) + 1 / len(there)):
            moved.append((name, change))
            means.append(float(here.mean() + there.mean()) / 2)
            deviations.append(spread)
    if not moved:
        return _nothing
    columns, changes = [name for name, _ in moved], np.array([change for _, change in moved])
    scaled = changes / np.array(deviations)
    weights = scaled
    if 1 < len(columns) <= _MOST_LINEAR:
        tables = [_table(samples, columns, means, deviations) for samples in (first, second)]
        covariance = sum((np.cov(table, rowvar=False) for table in tables), np.zeros((len(columns), len(columns)))) / 2
        weights = np.linalg.solve(covariance + 1e-6 * np.eye(len(columns)), scaled)
    return lambda samples: np.asarray(_table(samples, columns, means, deviations) @ weights)


def _table(samples: Samples, names: list[str], means: list[float], deviations: list[float]) -> Floats:
    columns = [
        np.nan_to_num((samples.number(name) - mean) / deviation)
        for name, mean, deviation in zip(names, means, deviations, strict=True)
    ]
    return np.stack(columns, axis=1)


def _histogram(name: str, first: Samples, second: Samples) -> Score:
    """Return the log ratio of the frequencies of values, or of bins with about equally many values."""
    here, there = _there(first, name), _there(second, name)
    pooled = np.concatenate([here, there])
    if not len(pooled):
        return _nothing
    edges = np.unique(pooled)
    if len(edges) > _FEW:
        edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _BINS + 1)[1:-1]))
    counts = [
        np.bincount(np.searchsorted(edges, side, side="right"), minlength=len(edges) + 1) for side in (here, there)
    ]
    ratio = _ratios(counts[0], counts[1], (max(1, len(here)), max(1, len(there))))
    if not ratio.any():
        return _nothing

    def score(samples: Samples) -> Floats:
        x = samples.number(name)
        value = ratio[np.searchsorted(edges, np.nan_to_num(x), side="right")]
        return np.where(np.isnan(x), 0.0, value)

    return score


@dataclass(frozen=True)
class Judgement:
    """What an event proves, how often it happened on both inputs, and the confidence limits of that."""

    worth: float
    likely: float
    unlikely: float
    limits: tuple[float, float]
    curve: tuple[tuple[float, float], ...]


def judged(
    first: Samples, second: Samples, *, miss: float, delta: float = 0.0, gaussian: bool = False, reads: int = 1
) -> Judgement:
    """Return what the most telling event proves. One half of the runs finds it, and the other half judges it.

    Each of the two confidence limits is wrong with probability at most `miss`.
    """
    worth = worth_of(delta, gaussian=gaussian)
    runs, shared = first.runs, reads > 1
    each = runs // reads if shared else 1  # runs that share a read stay together
    quarters = [0, runs // each // 4 * each, runs // each // 2 * each, runs]
    learn, choose, judge = (
        (first.slice(start, end), second.slice(start, end)) for start, end in itertools.pairwise(quarters)
    )
    loose = math.log(1 / miss) / (reads - reads // 2) if shared else 0.0
    event = chosen_event(learn, choose, worth, NormalDist().inv_cdf(1 - miss), loose)
    hits = [event.hits(samples) for samples in event.ordered(judge)]
    if shared:
        before = [event.hits(samples) for samples in event.ordered(choose)]
        parts: list[Floats] = [values.reshape(-1, each).mean(axis=1) for values in (*hits, *before)]
        limits = mean_lower(parts[0], miss, parts[2]), mean_upper(parts[1], miss, parts[3])
    else:
        (p, q), (n, m) = (int(hit.sum()) for hit in hits), (len(hit) for hit in hits)
        limits = binomial_lower(p, n, miss), binomial_upper(q, m, miss)
    likely, unlikely = (float(hit.mean()) for hit in hits)
    return Judgement(max(0.0, worth(*limits)), likely, unlikely, limits, _curve(event, judge))


def _curve(event: Event, judge: tuple[Samples, Samples]) -> tuple[tuple[float, float], ...]:
    """Return for many thresholds how often the score reaches them on the other input and on the likelier one."""
    sign = 1 if event.forward else -1
    here, there = (np.sort(sign * event.score(samples)) for samples in event.ordered(judge))
    places = np.linspace(0, len(here) - 1, _POINTS).astype(np.int64)
    thresholds = np.unique(np.concatenate([here[places], there[places]]))
    points = {
        (
            float(1 - np.searchsorted(there, threshold, side="left") / len(there)),
            float(1 - np.searchsorted(here, threshold, side="left") / len(here)),
        )
        for threshold in thresholds
    }
    return tuple(sorted({(0.0, 0.0), *points, (1.0, 1.0)}))
