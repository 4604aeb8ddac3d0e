"""Statistical comparison of timings: which of two models is faster, by how much, how surely.

There are two sorts of noise. Runs differ, and sessions differ: two of one and the same model were
seen to differ by some percent for as long as they live. So models are timed in several passes, each
with new sessions, and the interval is that of a bootstrap in two stages, first over the passes and
then over the rounds of each (A. C. Davison and D. V. Hinkley, Bootstrap Methods and their
Application, 1997, section 3.8). It becomes narrower with every pass, where one that covers the
intervals of all passes would become wider.

The statistic is the median of the ratios of runs that follow one another, since the drift of the
machine's speed cancels out in each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
FAST = 10
"""Percentile of the runs that counts as a model's fast run: disturbances only add time."""
DISTURBED = 0.25
"""Where the median is above the fast run by more than this part, most runs were disturbed."""


@dataclass(frozen=True)
class Timing:
    """The seconds that one run of a model took, once per round."""

    samples: tuple[float, ...]

    @cached_property
    def median(self) -> float:
        """The median in seconds."""
        return float(np.median(self.samples))

    @cached_property
    def minimum(self) -> float:
        """The shortest sample in seconds."""
        return min(self.samples)

    @cached_property
    def fast(self) -> float:
        """The seconds of a fast run: one run in ten is faster."""
        return float(np.percentile(self.samples, FAST))

    @cached_property
    def spread(self) -> float:
        """The interquartile range as a fraction of the median."""
        low, high = np.percentile(self.samples, [25, 75])
        return float(high - low) / self.median

    def relative_to(self, other: "Timing") -> float:
        """How many times as long a run takes as one of `other`, timed in the same rounds.

        Where another process takes a core away most of the time, runs take once or twice as long,
        and the median of the ratios falls on whichever of the two was hit more often. The fast runs
        of both, which were left alone, are compared then.
        """
        if max(self.median / self.fast, other.median / other.fast) > 1 + DISTURBED:
            return self.fast / other.fast
        return float(np.median(np.asarray(self.samples) / np.asarray(other.samples)))


@dataclass(frozen=True)
class Comparison:
    """How many times as fast `after` is as `before`, with a 95 % confidence interval.

    `ratio` is the median over the rounds of before / after; above 1, `after` is faster.
    """

    ratio: float
    low: float
    high: float
    before: Timing
    after: Timing
    passes: int = 1
    """How many times the models were loaded anew for it."""
    threads: int | None = None
    """How many threads the models had, if fewer than where they are served: there was no room."""

    @classmethod
    def over(
        cls,
        passes: Sequence[tuple[Timing, Timing]],
        seed: int = 0,
        *,
        looks: int = 1,
        confidence: float = CONFIDENCE,
    ) -> Self:
        """Compare by at least one pass, each a timing of `before` and one of `after`.

        If the result is examined several times and more passes are made until it is decided, the
        interval is wider, so that all `looks` together have that confidence (Bonferroni).
        """
        before, after = (
            Timing(tuple(sample for timings in passes for sample in timings[which].samples))
            for which in (0, 1)
        )
        ratios = [np.divide(first.samples, second.samples) for first, second in passes]
        low, high = _interval(ratios, seed, 1 - (1 - confidence) / looks)
        ratio = float(np.median(np.concatenate(ratios)))
        return cls(ratio, low, high, before, after, len(passes))

    def scaled(self, factor: float) -> Self:
        """The same where `after` is so many times as fast as it was seen to be."""
        ratio, low, high = (factor * each for each in (self.ratio, self.low, self.high))
        return replace(self, ratio=ratio, low=low, high=high)


def _interval(ratios: Sequence[np.ndarray], seed: int, confidence: float) -> tuple[float, float]:
    """Return the interval of the median by a bootstrap over passes, and the rounds of each."""
    generator = np.random.default_rng(seed)
    medians = []
    for _ in range(RESAMPLES):
        chosen = [ratios[which] for which in generator.integers(0, len(ratios), len(ratios))]
        rounds = [each[generator.integers(0, len(each), len(each))] for each in chosen]
        medians.append(np.median(np.concatenate(rounds)))
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)
