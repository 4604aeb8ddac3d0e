"""Decides whether a rewritten model is fast enough, or small enough, to replace the input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xflow.core.wording import counted
from xflow.cost import Objective
from xflow.cost.comparison import Comparison
from xflow.report.formats import format_amount

MARGIN = 0.005
"""How much faster a model has to be, with confidence, to replace the input."""
SESSIONS_MARGIN = 0.03
"""The same where there was time to load the models only once: two sessions of one and the same
model were seen to differ by this much for as long as they live. With each pass it is less."""
FEWER_MARGIN = 0.01
"""The same where there was room for fewer threads than the model is served with: what more of them
change is estimated."""
LOSS = 0.01
"""How much slower, with confidence, a model may be at one of several settings, if it is faster at
another: two sessions of one and the same model are told apart no better than that."""
_BETTER: Mapping[Objective, str] = {
    "latency": "makes the model faster",
    "memory": "makes the model need less memory",
    "size": "makes the model smaller",
    "nodes": "leaves the model fewer operators",
}


def timing_objection(comparisons: Sequence[Comparison], *, counted: bool) -> str:
    """Why a model does not replace the input, by its speed at each setting; empty where it does.

    It has to be faster at one setting, and slower at none. Where the objective is `counted`, it
    must only not be slower.
    """
    if counted:
        if comparisons and all(each.high >= 1 - _slack(each) for each in comparisons):
            return ""
        verdict = "measurably slower" if comparisons else "not shown to be as fast"
    else:
        faster = any(each.low > 1 + margin(each) for each in comparisons)
        if faster and all(map(_is_no_loss, comparisons)):
            return ""
        verdict = "not measurably faster"
    verdict = f"The rewritten model was {verdict}"
    if comparisons:
        worst = min(comparisons, key=lambda each: each.ratio)
        verdict += f" ({worst.ratio:.3f} times as fast, {worst.low:.3f} to {worst.high:.3f})"
    return f"{verdict}, so this is the input's own."


def no_gain(before: int, after: int, objective: Objective) -> str:
    """Why a model does not replace the input, by the amounts that the objective counts."""
    old, new = (format_amount(amount, objective) for amount in (before, after))
    return (
        f"No rewrite was found that {_BETTER[objective]} ({old} before, {new} after), "
        "so this is the input's own."
    )


def no_rewrite(objective: Objective) -> str:
    """The message where the search found nothing."""
    return f"No rewrite was found that {_BETTER[objective]}."


def timed_with_fewer(comparisons: Sequence[Comparison], threads: int) -> tuple[str, ...]:
    """The warning that models were timed with fewer threads than so many, if they were."""
    fewer = [each.threads for each in comparisons if each.threads is not None]
    if not fewer:
        return ()
    return (
        f"Other processes kept the machine busy, so the models were timed with {min(fewer)} of "
        f"{counted(threads, 'thread')}; what all of them change is estimated.",
    )


def margin(comparison: Comparison) -> float:
    """How much faster the lower end of the interval has to be."""
    least = MARGIN if comparison.threads is None else FEWER_MARGIN
    return max(least, SESSIONS_MARGIN / comparison.passes)


def is_hopeless(comparison: Comparison, more: float) -> bool:
    """Whether so many times as many passes are not likely to show that a model is faster.

    The interval becomes narrower by the square root of that, around what is seen now. Where even
    such a one would reach below 1, the model is not given out as faster, however much it may be.
    """
    return _least_expected(comparison, more) < 1


def is_hopeless_somewhere(comparison: Comparison, more: float) -> bool:
    """The same at one of several settings, at which it is enough that a model is as fast."""
    return _least_expected(comparison, more) < 1 - LOSS


def _least_expected(comparison: Comparison, more: float) -> float:
    """The lower end of the interval that is to be expected of so many times as many passes."""
    return comparison.ratio - (comparison.ratio - comparison.low) / math.sqrt(more)


def is_settled(alone: Sequence[Comparison]) -> bool:
    """Whether each of several passes shows by itself that a model is faster, or that it is slower.

    By the margin of a model that is loaded once, so that what sessions differ by does not explain
    one of them, and still less all of them.
    """
    return len(alone) > 1 and (
        all(each.low > 1 + margin(each) for each in alone)
        or all(each.high < 1 - margin(each) for each in alone)
    )


def _slack(comparison: Comparison) -> float:
    """How much slower it may seem to be where something else is to be gained."""
    return MARGIN if comparison.passes > 1 else SESSIONS_MARGIN


def _is_no_loss(comparison: Comparison) -> bool:
    """Whether a model is faster, or shown to be as fast but for what sessions differ by."""
    several = comparison.passes > 1
    return comparison.low > (1 - LOSS if several else 1 + margin(comparison))


def is_promising(comparison: Comparison) -> bool:
    """Whether a model seems to be faster, and is not shown to be."""
    return comparison.low <= 1 + margin(comparison) and comparison.ratio > 1 + MARGIN


def is_undecided(comparison: Comparison) -> bool:
    """The same at one of several settings, or whether it seems to be as fast."""
    as_fast = not _is_no_loss(comparison) and comparison.ratio > 1 - LOSS / 2
    return is_promising(comparison) or as_fast
