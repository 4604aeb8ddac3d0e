"""Measures the numbers of the target model on this machine.

Every number is the time of a probe (`probes`), divided by the estimate of the probe's graph where
that number is 1: so what is counted, and how, is defined in the estimate alone. Probes are timed
together with a reference, whose drift is taken out: probes of products with a product of matrices,
and others with products of elements, since what slows the memory down leaves the arithmetic as it
was. A number whose probe fails, is lost in the noise or is out of range keeps its default, in
proportion to the machine's speed, see `numbers`.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.core.progress import Progress
from xflow.core.registry import Array, Operator
from xflow.cost.calibration import peak_probes, probes
from xflow.cost.calibration.numbers import (
    ALIKE,
    BLOCKS,
    default_of,
    is_alike,
    is_of_codes,
    is_sane,
    with_numbers,
)
from xflow.cost.calibration.probes import Constants, Probe
from xflow.cost.comparison import Timing
from xflow.cost.estimate import Estimator
from xflow.cost.machine import LISTENING_S, Crowd, is_x86, most_flops, vector_floats
from xflow.cost.measure import Measurer
from xflow.cost.store import Platform, Store
from xflow.cost.target import Layout, TargetModel
from xflow.cost.worker import Failed
from xflow.onnx.region import region_model
from xflow.onnx.writer import UnwritableError

Measure = Callable[[Graph], float]
Values = Callable[[Sequence[Probe]], "list[float | Failed]"]
"""Tells a number by each of some probes, or by all of them together."""

SECONDS = 8.0
"""Seconds of running in a calibration; loading the models comes on top. They suffice:
calibrations of one machine differ by some 3 % in the mean of all numbers, and with three times as
many seconds by 2 %, which is far less than what counts as a difference (see `numbers`)."""
OPSET = 21
"""Opset of the models, unless an operator is newer: the first with all normalizations."""
BATCH = 9
"""Models that are loaded at a time, and run in turns."""
PRODUCTS = frozenset({"attention", "contraction", "convolution"})
"""The roles of operators that are bound by arithmetic."""
LOADING_S = 20.0
SURE = 3.0
"""How many times its standard error a time has to be."""
IN_BLOCKS = 1.4
"""How many times as fast a pool has to be where its channels fill blocks, to be in a layout."""


@dataclass(frozen=True)
class Number:
    """A number of the target: where `measured` is None, `reason` says why nothing is known of it.

    For names and units see `numbers`.
    """

    name: str
    default: float
    measured: float | None
    reason: str = ""


@dataclass(frozen=True)
class _Took:
    """The time of a run of a graph, and its standard error, as parts of that of a reference."""

    part: float
    error: float
    beside: Graph


@dataclass(frozen=True)
class Calibration:
    """The numbers of a target, measured or with the reason why not."""

    numbers: tuple[Number, ...]

    @property
    def measured(self) -> dict[str, float]:
        """The measured numbers by name."""
        return {each.name: each.measured for each in self.numbers if each.measured is not None}


def calibrated(
    place: Platform,
    measurer: Measurer,
    store: Store,
    progress: Progress | None = None,
    *,
    seconds: float = SECONDS,
) -> TargetModel | None:
    """The target model of a place: the stored one, or what is measured now, and then stored.

    Where other processes keep the machine busy, the numbers of a thread are measured with as many
    as there is room for, and kept for that many. Where nothing can be measured, the model is the
    default one; None if processes that were not there before came in the way. Raises ProviderError
    if `measurer`'s provider does not work here.
    """
    known = stored(place, store)
    if known is not None:
        return known
    crowd = Crowd()
    time.sleep(LISTENING_S)
    threads = crowd.free(place.threads) if place.provider == "cpu" else place.threads
    if threads < place.threads:
        fewer = replace(place, threads=threads)
        found = calibrated(fewer, measurer.with_threads(threads), store, progress, seconds=seconds)
        return found and replace(found, threads=place.threads)
    sensitive = not measurer.target.takes_processor_time
    if sensitive and crowd.in_the_way(threads):
        return None
    measured = calibrate(measurer, progress, seconds=seconds)
    if sensitive and crowd.in_the_way(threads):
        return None
    keep(measured, place, store)
    return with_numbers(default_target(place), measured.measured)


def default_target(place: Platform) -> TargetModel:
    """The target model of a place of which nothing is measured.

    The default numbers are of x86 processors. On other places, convolutions of one pixel and
    products of matrices count as equally fast: which of them is faster differs.
    """
    average = TargetModel(threads=place.threads)
    if place.provider == "cpu" and is_x86():
        return average.with_block(vector_floats())
    return average.with_equal_products()


def stored(place: Platform, store: Store) -> TargetModel | None:
    """The target model of a place as it was measured before; None if it was not."""
    text = store.calibration(place)
    if text is None:
        return None
    try:
        return with_numbers(default_target(place), json.loads(text))
    except (ValueError, TypeError, AttributeError, RecursionError):  # it is damaged
        return None


def keep(found: Calibration, place: Platform, store: Store) -> None:
    """Store what was measured, if anything was."""
    if found.measured:
        store.put_calibration(place, json.dumps(found.measured, sort_keys=True))


def calibrate(
    measurer: Measurer, progress: Progress | None = None, *, seconds: float = SECONDS
) -> Calibration:
    """Measure the numbers of `measurer`'s target. Raises ProviderError if that does not work."""
    return _Calibrator(measurer, seconds, progress or (lambda phase, details: None)).run()


class _Calibrator:
    """One calibration: the times of its graphs, and the numbers found so far."""

    def __init__(self, measurer: Measurer, seconds: float, progress: Progress) -> None:
        self.measurer = measurer
        self.seconds = seconds
        self.progress = progress
        self.threads = measurer.target.threads
        is_cpu = measurer.target.provider == "cpu"
        self.most_flops = most_flops() if is_cpu else math.inf
        self.default = TargetModel(threads=self.threads)
        self.constants = Constants(probes.BATCHES[measurer.target.provider])
        self.reference = probes.reference(self.constants)
        self.product = peak_probes.reference(self.constants)
        self.nothing = probes.nothing(self.constants)
        self.timings: dict[Graph, _Took | Failed] = {}
        self.references_s: dict[Graph, list[float]] = {self.reference: [], self.product: []}
        """The seconds that each of the two references took, batch by batch."""
        self.batch_s = 0.0
        """Seconds of running for a batch of models."""
        self.numbers: dict[str, Number] = {}

    def run(self) -> Calibration:
        """Time all probes, and compute the numbers, first those that others depend on."""
        calls, views = probes.calls(self.constants), probes.views(self.constants)
        elementwise = list(probes.elementwise(self.default, self.constants))
        moved = [
            *elementwise,
            *probes.moved(self.constants),
            *probes.fused(self.default, self.constants),
        ]
        peaks = list(peak_probes.peaks(self.constants))
        is_cpu = self.measurer.target.provider == "cpu"
        layouts = peak_probes.layouts(self.constants) if is_cpu else {}
        groups = peak_probes.groups(self.constants)
        self.time([calls, views, *moved, *peaks, *layouts.values(), *groups.values()])

        self.set_alike(_by_name([calls, views]), _by_each(partial(self.took, per=_count)), 1.0)
        self.overhead = self.value("overhead")
        self.set("bandwidth", [self.bandwidth(elementwise)])
        self.set_alike(_by_name(moved), _by_each(self.slowness), 1.0)
        self.set_alike(_by_name(peaks), _by_each(partial(self.rate, measure=_flops)), None)
        if is_cpu:
            self.set_on_codes()
            self.set_layout(layouts)
        else:  # the runtime's layout is one of its kernels for processors
            self.set("layout.block", [0.0])
        self.set_full_channels(groups)
        return Calibration(tuple(self.numbers.values()))

    def time(self, wanted: Sequence[Probe]) -> None:
        """Time the graphs of all probes, some at a time, each beside a reference of its kind."""
        products = [probe for probe in wanted if _has_products(probe)]
        others = [probe for probe in wanted if not _has_products(probe)]
        batches = [
            *((self.reference, graphs) for graphs in _batches(others, [self.nothing])),
            *((self.product, graphs) for graphs in _batches(products)),
        ]
        self.batch_s = self.batch_s or self.seconds / len(batches)
        for number, (beside, graphs) in enumerate(batches):
            self.progress("calibrate", {"part": number + 1, "of": len(batches)})
            timed = self.time_together([beside, *graphs], self.batch_s)
            reference = timed[beside]
            if isinstance(reference, Timing):
                self.references_s[beside].append(reference.median)
            for graph, timing in timed.items():
                if not isinstance(self.timings.get(graph), _Took):
                    self.timings[graph] = _took(timing, reference, beside)

    def set_alike(
        self, wanted: Mapping[str, Sequence[Probe]], values: Values, usual: float | None
    ) -> None:
        """Set numbers that are about `usual` times their defaults on most machines.

        They are given by name, with the probes whose times tell them. None: as many times as the
        one in the middle. Those that are not are timed once more, and of both values the one that
        is nearer is believed: what else has the memory for a tenth of a second makes a number or
        two wrong each time on a shared machine, and each time others.
        """
        for name, group in wanted.items():
            self.set(name, values(group))
        numbers = [self.numbers[name] for name in wanted]
        factors = [each.measured / each.default for each in numbers if each.measured is not None]
        factor = usual or (statistics.median(factors) if factors else 1.0)
        odd = [each.name for each in numbers if not _is_usual(each, factor)]
        if not odd:
            return
        first, self.timings = self.timings, {}
        self.time([probe for name in odd for probe in wanted[name]])
        for name in odd:
            before = self.numbers[name]
            self.set(name, values(wanted[name]))
            if self.numbers[name].measured is None:
                reason = f"not confirmed: {self.numbers[name].reason}"
                self.numbers[name] = replace(self.numbers[name], reason=reason)
            self.numbers[name] = min(
                before, self.numbers[name], key=lambda number: _surprise(number, factor)
            )
        self.timings = first

    def time_together(
        self, graphs: Sequence[Graph], seconds: float
    ) -> dict[Graph, Timing | Failed]:
        """Time graphs in turns."""
        models: dict[Graph, bytes] = {}
        timed: dict[Graph, Timing | Failed] = {}
        for graph in graphs:
            ops = [node.op for node in graph.nodes if isinstance(node.op, Operator)]
            opset = max(OPSET, *(op.since for op in ops))
            try:
                models[graph] = region_model(graph, self.constants, opset=opset)
            except UnwritableError as error:
                timed[graph] = Failed(str(error))
        results = self.measurer.time_together(
            list(models.values()), seconds, deadline=Deadline.after(2 * seconds + LOADING_S)
        )
        return {**timed, **dict(zip(models, results, strict=True))}

    def took(self, probe: Probe, per: Measure | None = None) -> float | Failed:
        """The seconds of a probe beyond its base and its calls, in all or per unit."""
        mine = self.timings[probe.graph]
        base = self.timings[self.nothing if probe.base is None else probe.base]
        if isinstance(mine, Failed):
            return mine
        if isinstance(base, Failed):
            return base
        calls = 0.0 if per is _count else self.overhead * self.amount(probe, _count)
        here, there = (self.reference_seconds(each.beside) for each in (mine, base))
        seconds = here * mine.part - there * base.part - calls
        if seconds < SURE * math.hypot(here * mine.error, there * base.error):
            return Failed("lost in the noise")
        return seconds / (1.0 if per is None else self.amount(probe, per))

    def reference_seconds(self, reference: Graph) -> float:
        """The seconds of a reference in most batches: in some, something else came in between."""
        return statistics.median(self.references_s[reference])

    def amount(self, probe: Probe, measure: Measure) -> float:
        """The amount that the estimate counts in a probe, less that of its base."""
        return measure(probe.graph) - (0.0 if probe.base is None else measure(probe.base))

    def rate(self, probe: Probe, measure: Measure) -> float | Failed:
        """How much of something a thread does in a second."""
        seconds = self.took(probe)
        if isinstance(seconds, Failed):
            return seconds
        return self.amount(probe, measure) / (seconds * self.threads)

    def bandwidth(self, elementwise: Sequence[Probe]) -> float | Failed:
        """The bytes in a second at which kernels that memory limits are as slow as by default.

        The reference is one of them, which may take longer beside the others here than where the
        defaults were measured. All others would seem to be faster then: those for which that is a
        little more than `ALIKE` would be told apart from those for which it is a little less. So
        the one in the middle is taken for as slow as by default.
        """
        reference = self.rate(Probe("bandwidth", self.reference), _bytes)
        if isinstance(reference, Failed):
            return reference
        limited = [(default_of(self.default, each.name), each) for each in elementwise]
        rates = [(slow, self.rate(each, _bytes)) for slow, each in limited if slow < ALIKE]
        ratios = [reference / rate / slow for slow, rate in rates if not isinstance(rate, Failed)]
        return reference / statistics.median(ratios) if ratios else reference

    def slowness(self, probe: Probe) -> float | Failed:
        """How many times as long a probe takes as the bandwidth tells for the same bytes."""
        rate = self.rate(probe, _bytes)
        return rate if isinstance(rate, Failed) else self.value("bandwidth") / rate

    def set_layout(self, found: Mapping[str, Probe]) -> None:
        """Set whether the runtime has its own layout, and the cost of computing outside of it."""

        # Of all operators it is the average pool that suffers most.
        pool = found["AveragePool"]
        odd = self.ratio(pool, found["AveragePool.odd"])
        eighths = self.ratio(pool, found["AveragePool.eighths"])
        if isinstance(odd, Failed) or isinstance(eighths, Failed):
            failed = odd if isinstance(odd, Failed) else eighths
            self.set("layout.block", [failed])
            return
        block = 0 if odd < IN_BLOCKS else BLOCKS[eighths >= IN_BLOCKS]
        self.set("layout.block", [float(block)])
        if block:
            outside = {
                f"layout.outside.{name}": (found[name], found[f"{name}.odd"])
                for name in ("AveragePool", "MaxPool", "GlobalAveragePool", "Conv")
            }
            self.set_alike(outside, lambda both: [self.ratio(*both)], 1.0)
            pools = found["MaxPool"]
            self.set_alike({"layout.reorder": [pools]}, _by_each(self.reorder), 1.0)
            self.set("group_overhead", [self.took(found["Conv.groups"], per=_groups)])

    def set_on_codes(self) -> None:
        """Set how fast products on codes are, and whether their sums are cut off."""
        found = list(peak_probes.on_codes(self.constants))
        self.time(found)
        self.set_alike(_by_name(found), _by_each(partial(self.rate, measure=_flops)), None)
        seen = [self.cuts_off(*each) for each in peak_probes.extremes(self.constants)]
        failed = [each for each in seen if isinstance(each, Failed)]
        self.set("cuts_off", failed or [float(any(seen))])

    def cuts_off(self, graph: Graph, x: Array, right: float) -> float | Failed:
        """1 where a product on codes is not right, else 0."""
        data = region_model(graph, self.constants, opset=OPSET)
        found = self.measurer.outputs(data, [x])
        if isinstance(found, Failed):
            return found
        return float(not all(np.allclose(each, right) for each in found))

    def ratio(self, inside: Probe, outside: Probe) -> float | Failed:
        """How many times as long the second of two probes takes for as much arithmetic."""
        fast, slow = (self.rate(probe, _flops) for probe in (inside, outside))
        if isinstance(fast, Failed):
            return fast
        return slow if isinstance(slow, Failed) else fast / slow

    def reorder(self, pools: Probe) -> float | Failed:
        """Set the cost of conversions: a single pool converts its input, and its output back."""
        assert pools.base is not None
        several, single = self.took(pools), self.took(Probe("layout.reorder", pools.base))
        if isinstance(several, Failed):
            return several
        if isinstance(single, Failed):
            return single
        pool = several * _flops(pools.base) / self.amount(pools, _flops)
        # Each way it is read once and written once, as the pool's own data is.
        bytes_a_second = self.value("bandwidth") * self.threads
        return (single - pool) * bytes_a_second / (2 * _bytes(pools.base))

    def set_full_channels(self, found: Mapping[int, Probe]) -> None:
        """Set the channels from which groups reach the peak, to fit the times of thin groups."""
        peak = self.value("peak.Conv") * self.threads
        full: list[float] = []
        failed: list[Failed] = []
        for channels, probe in found.items():
            seconds = self.took(probe)
            if isinstance(seconds, Failed):
                failed.append(seconds)
                continue
            if self.value("layout.block") and channels > 1:  # single ones are in the layout
                groups = self.value("group_overhead") * self.amount(probe, _groups)
                seconds = max(0.0, seconds - groups) / self.value("layout.outside.Conv")
            full.append(max(1.0, channels * seconds * peak / self.amount(probe, _flops)))
        self.set("full_channels", [statistics.geometric_mean(full)] if full else failed)

    def set(self, name: str, values: Sequence[float | Failed]) -> None:
        """Set a number to the median of the values that its probes give."""
        default = default_of(self.default, name)
        found = [value for value in values if not isinstance(value, Failed)]
        failed = [value.reason for value in values if isinstance(value, Failed)]
        measured = float(statistics.median(found)) if found else None
        reason = "" if found else failed[0]
        most = self.most_flops if name.startswith("peak.") and not is_of_codes(name) else math.inf
        if measured is not None and not (is_sane(name, measured) and measured <= most):
            measured, reason = None, f"makes no sense: {measured:.3g}"
        self.numbers[name] = Number(name, default, measured, reason)

    def value(self, name: str) -> float:
        """A number as far as it is known."""
        known = self.numbers.get(name)
        if known is None or known.measured is None:
            return default_of(self.default, name)
        return known.measured


def _has_products(probe: Probe) -> bool:
    """Whether a probe takes the time of convolutions, products of matrices or attentions."""
    return any(node.role in PRODUCTS for node in probe.graph.nodes)


def _batches(wanted: Sequence[Probe], first: Sequence[Graph] = ()) -> list[list[Graph]]:
    """The graphs of probes as they are loaded together, each with its base, behind the `first`."""
    batches = [list(first)]
    for probe in wanted:
        graphs = [g for g in (probe.graph, probe.base) if g is not None]
        if len(batches[-1]) + len(graphs) > BATCH:
            batches.append([])
        batches[-1] += graphs
    return [graphs for graphs in batches if graphs]


def _took(timing: Timing | Failed, reference: Timing | Failed, beside: Graph) -> _Took | Failed:
    """A timing as a part of that of the reference `beside` it."""
    if isinstance(timing, Failed):
        return timing
    if isinstance(reference, Failed):
        return reference
    part = timing.median / reference.median
    return _Took(part, timing.spread * part / math.sqrt(len(timing.samples)), beside)


def _is_usual(number: Number, factor: float) -> bool:
    """Whether a number is about so many times its default."""
    return number.measured is None or is_alike(factor * number.default, number.measured)


def _surprise(number: Number, factor: float) -> float:
    """How far a number is from so many times its default, as the logarithm of a quotient."""
    if number.measured is None:
        return 0.0
    return abs(math.log(number.measured / (factor * number.default)))


def _by_each(value: Callable[[Probe], float | Failed]) -> Values:
    """What tells a number by each of its probes."""
    return lambda group: list(map(value, group))


def _by_name(probes: Iterable[Probe]) -> dict[str, list[Probe]]:
    named: dict[str, list[Probe]] = {}
    for probe in probes:
        named.setdefault(probe.name, []).append(probe)
    return named


_PLAIN = TargetModel(
    threads=1,
    peak={},
    other_peak=math.inf,
    bandwidth=math.inf,
    slow={},
    overhead=0.0,
    cold_overhead=0.0,
    view_overhead=0.0,
    cold_view_overhead=0.0,
    fused_overhead=0.0,
    group_overhead=0.0,
    full_channels=1,
    layout=None,
    cuts_off=False,
)
"""A target on which nothing takes time: with one number as 1, the estimate is its multiplier."""
_bytes = Estimator(replace(_PLAIN, bandwidth=1.0))
_flops = Estimator(replace(_PLAIN, other_peak=1.0))
_groups = Estimator(
    replace(_PLAIN, group_overhead=1.0, layout=replace(Layout(), rank=0, outside={}))
)
_count = Estimator(replace(_PLAIN, overhead=1.0, view_overhead=1.0))
