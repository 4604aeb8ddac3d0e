"""Bounds of floating-point numbers and which special values they may be: intervals with flags.

A `Range` is an abstraction of the elements of a tensor: bounds of those that are finite, and
whether a NaN or an infinity may be among them. Its arithmetic follows IEEE 754, special values
included, as in any interval analysis of floating-point programs (Miné, "Relational abstract domains
for the detection of floating-point run-time errors", ESOP 2004, among others). Bounds are computed
without regard to rounding: they are compared with thresholds that are far away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

NOWHERE: frozenset[int] = frozenset()
TINIEST = 5e-324
"""The least positive number of any type of floats."""


@dataclass(frozen=True)
class Range:
    """Bounds of the finite elements of a tensor, and which others there may be.

    Where ``low > high``, no element is finite.
    """

    low: float
    high: float
    reached: frozenset[int] | None = None
    """None: no element is -inf. Otherwise the axes, counted from the last as -1, along which every
    line has an element that is not."""
    plus: bool = False
    """Whether an element may be +inf."""
    nan: bool = False
    """Whether an element may be NaN."""
    nonzero: bool = False
    """Whether no element is 0, which the bounds may not tell."""
    least: tuple[tuple[int, float], ...] = ()
    """Axes, counted from the last as -1, each with a number that some element of every line along
    the axis is at least."""
    border: tuple[tuple[int, int], ...] = ()
    """If given, for each axis the widths at its begin and its end within one of which every element
    lies that is -inf."""

    def __post_init__(self) -> None:
        if self.nonzero and not self.low <= 0 <= self.high:  # the bounds tell
            object.__setattr__(self, "nonzero", False)

    @property
    def is_real(self) -> bool:
        """Whether every element is a number."""
        return self.reached is None and not self.plus and not self.nan

    @property
    def is_below_infinity(self) -> bool:
        """Whether every element is a number or -inf, as those of a mask are."""
        return not self.plus and not self.nan

    @property
    def minus(self) -> bool:
        """Whether an element may be -inf."""
        return self.reached is not None

    @property
    def is_infinite(self) -> bool:
        """Whether an element may be an infinity."""
        return self.minus or self.plus

    @property
    def has_zero(self) -> bool:
        """Whether an element may be 0."""
        return self.low <= 0 <= self.high and not self.nonzero

    def within(self, bound: float) -> bool:
        """Whether all finite elements are at most `bound` in magnitude."""
        return -bound <= self.low and self.high <= bound

    def join(self, other: Range) -> Range:
        """What holds of the elements of both."""
        return Range(
            min(self.low, other.low),
            max(self.high, other.high),
            NOWHERE if self.minus or other.minus else None,
            self.plus or other.plus,
            self.nan or other.nan,
            self.nonzero and other.nonzero,
        )

    def meet(self, other: Range) -> Range:
        """What holds of elements of which both say something."""
        both = self.reached is not None and other.reached is not None
        return Range(
            max(self.low, other.low),
            min(self.high, other.high),
            self.reached if both else None,
            self.plus and other.plus,
            self.nan and other.nan,
            self.nonzero or other.nonzero,
            self.least,
        )

    @property
    def plain(self) -> Range:
        """The same without what is known of lines."""
        return replace(self, reached=NOWHERE if self.minus else None, least=(), border=())


ANYTHING = Range(-math.inf, math.inf, NOWHERE, True, True)
"""What is known of elements of which nothing is."""


KERNEL = 8.0
"""By how many roundings the kernel of a function may be off, of its value or, if that is bounded,
of 1."""


@dataclass(frozen=True)
class Floats:
    """A type of floats, and what is taken for granted of computations with it.

    `largest` is its largest number. What sums and products make of numbers that are at most
    `moderate` in magnitude is taken to be so, too; with None, it may overflow. `rounding` is the
    relative error of one rounding, and `tiny` the absolute one where numbers are so small that
    they lose digits: a sigmoid below 1 may be 1, and a product above 0 may be 0, so that bounds are
    those of what is rounded. They keep their signs, as roundings do.
    """

    largest: float
    moderate: float | None
    rounding: float
    tiny: float

    @property
    def smallest(self) -> float:
        """What a divisor has to be at least, in magnitude, for quotients not to overflow."""
        return 1 / self.largest if self.moderate is None else 1 / self.moderate

    def closed(
        self,
        low: float,
        high: float,
        given: Iterable[Range],
        *,
        minus: bool = False,
        plus: bool = False,
        nan: bool = False,
        roundings: float = 1.0,
        below: float | None = None,
        above: float | None = None,
    ) -> Range:
        """The result of a sum, a product or a quotient of `given`, cut off where it overflows.

        `roundings` are made on the way to it, of numbers that add up to `below` in magnitude where
        it is least, and to `above` where it is greatest (None: to the bounds themselves).
        """
        if math.isnan(low) or math.isnan(high):
            low, high = -math.inf, math.inf
        if low <= high:
            over, under = high, low
            low, high = self.rounded(low, high, roundings, below, above)
            most = self.moderate
            # What is known to be larger is not assumed to be moderate.
            straddles = most is not None and low <= most and high >= -most
            if most is not None and straddles and self._stays_moderate(given):
                low, high = max(low, -most), min(high, most)
            else:
                # One rounding does not lead beyond the largest number from below it.
                over, under = (high, low) if roundings > 1 else (over, under)
                plus, minus = plus or over > self.largest, minus or under < -self.largest
                low, high = max(low, -self.largest), min(high, self.largest)
        return Range(low, high, NOWHERE if minus else None, plus, nan)

    def rounded(
        self,
        low: float,
        high: float,
        roundings: float = 1.0,
        below: float | None = None,
        above: float | None = None,
    ) -> tuple[float, float]:
        """Bounds of what is rounded so often, see `closed`."""
        slack = roundings * self.rounding
        down = slack * (abs(low) if below is None else below)
        up = slack * (abs(high) if above is None else above)
        least = low - down - self.tiny if math.isfinite(low) else low
        most = high + up + self.tiny if math.isfinite(high) else high
        return (max(least, 0.0) if low >= 0 else least), (min(most, 0.0) if high <= 0 else most)

    def cut(self, low: float, high: float, *, minus: bool, plus: bool, nan: bool) -> Range:
        """A result that may overflow whatever is taken for granted, as an exponential.

        Up to the error of the kernel of a function.
        """
        if low <= high:
            low, high = self.rounded(low, high, KERNEL)
            plus, minus = plus or high > self.largest, minus or low < -self.largest
            low, high = max(low, -self.largest), min(high, self.largest)
        return Range(low, high, NOWHERE if minus else None, plus, nan)

    def sum(self, parts: Sequence[Range]) -> Range:
        """The sum of an element of each, in any order."""
        plus, minus = any(p.plus for p in parts), any(p.minus for p in parts)
        nan = any(p.nan for p in parts) or any(
            p.plus and other.minus for p in parts for other in parts if other is not p
        )
        if len(parts) > 2 and not self._stays_moderate(parts):  # a part of the sum may overflow
            over = sum(max(p.high, 0.0) for p in parts) > self.largest
            under = sum(min(p.low, 0.0) for p in parts) < -self.largest
            plus, minus = plus or over, minus or under
            nan = nan or (over and minus) or (under and plus)
        several = len(parts) > 2
        total = self.closed(
            sum(p.low for p in parts),
            sum(p.high for p in parts),
            parts,
            minus=minus,
            plus=plus,
            nan=nan,
            roundings=max(len(parts) - 1, 1),
            below=sum(abs(p.low) for p in parts) if several else None,
            above=sum(abs(p.high) for p in parts) if several else None,
        )
        return replace(total, low=math.inf, high=-math.inf) if any(map(_is_blank, parts)) else total

    def _stays_moderate(self, given: Iterable[Range]) -> bool:
        """Whether sums, products and quotients of `given` are taken not to overflow."""
        most = self.moderate
        return most is not None and all(_is_blank(r) or r.within(most) for r in given)

    def product(self, one: Range, other: Range) -> Range:
        """The product of an element of each."""
        corners = [_times(a, b) for a in (one.low, one.high) for b in (other.low, other.high)]
        low, high = min(corners), max(corners)
        if _is_blank(one) or _is_blank(other):
            low, high = math.inf, -math.inf
        plus, minus = _signs_of_infinite(one, other)
        nan = (one.is_infinite and other.has_zero) or (other.is_infinite and one.has_zero)
        return self.closed(
            low,
            high,
            (one, other),
            minus=minus,
            plus=plus,
            nan=one.nan or other.nan or nan,
        )  # which may be 0 where neither factor is: small ones are lost

    def power(self, x: Range, count: int) -> Range:
        """A number times itself, `count` times."""
        floats = self.of_power(count)
        if _is_blank(x):
            low, high = math.inf, -math.inf
        else:
            low, high = sorted((_power(x.low, count), _power(x.high, count)))
            if count % 2 == 0 and x.low < 0 < x.high:
                low = 0.0
        odd = count % 2 == 1
        return floats.closed(
            low,
            high,
            (x,),
            minus=x.minus and odd,
            plus=x.plus or (x.minus and not odd),
            nan=x.nan,
            roundings=count,
        )

    def of_power(self, exponent: float) -> Floats:
        """What is taken for granted of a power: as much as of products, up to cubes.

        Of 16 bits, only of squares: the cube of 41 overflows there. Of higher powers nothing, which
        overflow for numbers that are not large.
        """
        most = self.moderate
        cubes = most is not None and most * most <= self.largest
        return self if exponent <= (3 if cubes else 2) else replace(self, moderate=None)

    def repeated(self, body: Range, times: int | None) -> Range:
        """A sum of so many elements; of any number of them, if that is None."""
        if times == 1:
            return body.plain
        if times == 0:
            return Range(0.0, 0.0)
        bound = self.moderate or self.largest
        most = float(times) if times is not None else bound
        low = _times(most, body.low) if times is not None else _times(most, min(0.0, body.low))
        high = _times(most, body.high) if times is not None else _times(most, max(0.0, body.high))
        if _is_blank(body):
            low, high = math.inf, -math.inf
        opposed = body.plus and body.minus
        if times != 2 and not self._stays_moderate((body,)):  # parts of the sum may overflow
            over, under = high > self.largest, low < -self.largest
            opposed = opposed or (over and (under or body.minus)) or (under and body.plus)
        return self.closed(
            low,
            high,
            (body,),
            minus=body.minus,
            plus=body.plus,
            nan=body.nan or opposed,
            roundings=min(most, 0.5 / self.rounding),  # a sum of more is no longer a sum at all
        )


def _is_blank(x: Range) -> bool:
    return x.low > x.high


def _times(a: float, b: float) -> float:
    """A product of bounds, in which a bound that is infinite is only a large number."""
    return 0.0 if a == 0 or b == 0 else a * b


def _power(x: float, count: int) -> float:
    try:
        return float(x**count)
    except OverflowError:
        return math.inf if x > 0 or count % 2 == 0 else -math.inf


def _signs(x: Range) -> tuple[bool, bool]:
    """Whether an element other than 0 may be positive, and whether one may be negative."""
    blank = _is_blank(x)
    return x.plus or (not blank and x.high > 0), x.minus or (not blank and x.low < 0)


def _signs_of_infinite(one: Range, other: Range) -> tuple[bool, bool]:
    """Whether a product may be +inf, and -inf, by a factor that is infinite."""
    plus = minus = False
    for infinite, factor in ((one, other), (other, one)):
        positive, negative = _signs(factor)
        plus = plus or (infinite.plus and positive) or (infinite.minus and negative)
        minus = minus or (infinite.plus and negative) or (infinite.minus and positive)
    return plus, minus


def negated(x: Range) -> Range:
    """The range of ``-x``."""
    return Range(-x.high, -x.low, NOWHERE if x.plus else None, x.minus, x.nan, x.nonzero)


def _exponential(x: Range, floats: Floats) -> Range:
    def bounded(y: float) -> float:
        return math.exp(y) if y < math.log(2.0**1023) else math.inf

    low = 0.0 if x.minus else bounded(x.low)
    if low < 1 / floats.largest:
        low = 0.0  # it may underflow
    found = floats.cut(low, max(bounded(x.high), 0.0), minus=False, plus=x.plus, nan=x.nan)
    if _is_blank(x):
        found = replace(found, low=0.0, high=0.0) if x.minus else replace(found, low=1.0, high=0.0)
    return replace(found, least=tuple((axis, bounded(y)) for axis, y in x.least))


def _reciprocal(x: Range, floats: Floats) -> Range:
    small = floats.smallest
    if _is_blank(x):
        found = Range(math.inf, -math.inf, nan=x.nan)
    elif x.low >= small or x.high <= -small:
        low, high = floats.rounded(*sorted((1 / x.low, 1 / x.high)))
        low, high = max(low, -floats.largest), min(high, floats.largest)
        found = Range(low, high, nan=x.nan)
    else:
        # A quotient by less than the smallest may be infinite, and one by 0 is, of either sign; but
        # where no element is 0, that is excluded as overflow is.
        most = math.inf  # a factor that is larger than any number may make a number
        safe = x.nonzero and floats.moderate is not None
        if safe:
            assert floats.moderate is not None
            most = floats.moderate
        low = 0.0 if x.low >= 0 else -most
        high = 0.0 if x.high <= 0 else most
        infinite = not safe
        found = Range(low, high, NOWHERE if infinite else None, infinite, x.nan)
    if x.is_infinite:  # the inverse of an infinity is 0
        low, high = min(found.low, 0.0), max(found.high, 0.0)
        return replace(found, low=low, high=high)
    return replace(found, nonzero=not found.is_infinite)


def _root(x: Range, floats: Floats) -> Range:
    blank = _is_blank(x)
    negative = x.minus or (not blank and x.low < 0)
    low, high = (math.inf, -math.inf) if blank else (max(x.low, 0.0), max(x.high, 0.0))
    if not blank:
        low, high = floats.rounded(math.sqrt(low), math.sqrt(high))
    return Range(low, high, None, x.plus, x.nan or negative, x.nonzero)


def _logarithm(x: Range, floats: Floats) -> Range:
    blank = _is_blank(x)
    zero = not blank and x.has_zero
    negative = x.minus or (not blank and x.low < 0)
    if blank:
        low, high = math.inf, -math.inf
    else:
        low = math.log(max(x.low, TINIEST)) if x.high > 0 else math.inf
        high = math.log(x.high) if x.high > 0 else -math.inf
        if low <= high:
            low, high = floats.rounded(low, high, KERNEL, 1 + abs(low), 1 + abs(high))
    return Range(low, high, NOWHERE if zero else None, x.plus, x.nan or negative)


def _absolute(x: Range, floats: Floats) -> Range:
    infinite = x.plus or x.minus
    if _is_blank(x):
        return Range(math.inf, -math.inf, None, infinite, x.nan)
    ends = abs(x.low), abs(x.high)
    low = 0.0 if x.low <= 0 <= x.high else min(ends)
    return Range(low, max(ends), None, infinite, x.nan, x.nonzero)


def saturating(
    x: Range, floats: Floats, function: Callable[[float], float], least: float = -1.0
) -> Range:
    """The range of a function that rises from `least` to 1, which it is at infinities.

    A kernel may lead beyond 1: those of Tanh and Sigmoid do, by one or two units in the last place.
    """
    low = least if x.minus else function(x.low)
    high = 1.0 if x.plus else function(x.high)
    low, high = floats.rounded(low, high, KERNEL, 1.0, 1.0)
    if _is_blank(x):
        low, high = (least if x.minus else 1.0), (1.0 if x.plus else least)
    return Range(low, high, None, False, x.nan)


def _periodic(x: Range, floats: Floats) -> Range:
    return Range(*floats.rounded(-1.0, 1.0, KERNEL), None, False, x.nan or x.is_infinite)


def _sign(x: Range, floats: Floats) -> Range:
    positive, negative = _signs(x)
    return Range(-1.0 if negative else 0.0, 1.0 if positive else 0.0, None, False, x.nan)


def _whole(x: Range, to_integer: Callable[[float], int]) -> Range:
    """The range of a function that does not fall and gives integers."""
    blank = _is_blank(x)
    low = x.low if blank or math.isinf(x.low) else float(to_integer(x.low))
    high = x.high if blank or math.isinf(x.high) else float(to_integer(x.high))
    return Range(low, high, NOWHERE if x.minus else None, x.plus, x.nan)


def _greatest(*args: Range | Floats) -> Range:
    xs = [x for x in args if isinstance(x, Range)]
    lows = [-math.inf if x.minus else x.low for x in xs if x.minus or not _is_blank(x)]
    low = max(lows, default=math.inf)
    if low == -math.inf:
        low = min(x.low for x in xs)
    return Range(
        low,
        max(x.high for x in xs),
        NOWHERE if all(x.minus for x in xs) else None,
        any(x.plus for x in xs),
        any(x.nan for x in xs),
        nonzero=all(x.nonzero for x in xs),
    )


def _least(*args: Range | Floats) -> Range:
    return negated(_greatest(*(negated(x) for x in args if isinstance(x, Range))))


def _raised(x: Range, y: Range, floats: Floats) -> Range:
    """A power, whose exponent is one number or of a number that is not small."""
    if _is_blank(x) or _is_blank(y):  # nothing of it is a number
        return ANYTHING
    if y.low == y.high and y.is_real:
        exponent = y.low
        if exponent == int(exponent) and 0 < exponent <= MAX_EXPONENT:
            return floats.power(x, int(exponent))
        if exponent == 0:
            return Range(1.0, 1.0)
        if exponent < 0:
            inner = _raised(x, Range(-exponent, -exponent), floats)
            return _reciprocal(inner, floats)
        if not x.nan and not x.minus and x.low >= 0:
            return floats.of_power(exponent).closed(
                _power_of(x.low, exponent),
                _power_of(x.high, exponent),
                (x, y),
                plus=x.plus,
                roundings=KERNEL,
            )
        return replace(ANYTHING, low=0.0) if not x.nan and x.low >= 0 else ANYTHING
    if x.is_real and y.is_real and x.low >= floats.smallest:
        corners = [a * b for a in (math.log(x.low), math.log(x.high)) for b in (y.low, y.high)]
        return _exponential(Range(min(corners), max(corners)), floats)
    return ANYTHING


def _power_of(x: float, exponent: float) -> float:
    try:
        return float(x**exponent)
    except OverflowError:
        return math.inf


MAX_EXPONENT = 64
"""Largest exponent that is read as a number of factors."""

FUNCTIONS: Mapping[str, Callable[..., Range]] = {
    "reciprocal": _reciprocal,
    "max": _greatest,
    "min": _least,
    "abs": _absolute,
    "exp": _exponential,
    "log": _logarithm,
    "sqrt": _root,
    "tanh": lambda x, floats: saturating(x, floats, math.tanh),
    "erf": lambda x, floats: saturating(x, floats, math.erf),
    "sin": _periodic,
    "cos": _periodic,
    "pi": lambda floats: Range(math.pi, math.pi, nonzero=True),
    "power": _raised,
    "sign": _sign,
    "floor": lambda x, floats: _whole(x, math.floor),
    "round": lambda x, floats: _whole(x, round),
    "nearest": lambda x, floats: x.plain,
}
"""What ranges of the arguments, and the type of floats, say of a function's value."""
