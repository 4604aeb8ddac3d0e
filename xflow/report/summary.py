"""What the report says of models, measurements and rewrites."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import onnx_ir as ir

from xflow.cost.comparison import Comparison
from xflow.cost.kernels import Profile
from xflow.onnx.external_data import external_tensors
from xflow.onnx.nodes import subgraphs
from xflow.onnx.proto_compat import to_message
from xflow.report.report import (
    GainSource,
    KernelTime,
    Latency,
    Missed,
    ModelStats,
    Ratio,
    RuleUse,
    Setting,
)
from xflow.rewriting.replacement import Replacement
from xflow.validation.attribution import Path


def model_stats(model: ir.Model) -> ModelStats:
    """What a model consists of, the nodes of subgraphs included."""
    operators: Counter[str] = Counter()
    for node in model.graph:
        operators[node.op_type] += 1
        for graph in subgraphs(node):
            operators.update(inner.op_type for inner in graph)
    tensors = (value.const_value for value in model.graph.initializers.values())
    return ModelStats(
        dict(sorted(operators.items())),
        sum(tensor.nbytes for tensor in tensors if tensor is not None),
    )


def written_bytes(model: ir.Model) -> int:
    """Bytes that a model takes when it is written, its external data included."""
    proto = to_message(model)
    outside = (
        math.ceil(math.prod(tensor.dims) * ir.DataType(tensor.data_type).itemsize)
        for tensor in external_tensors(proto)
    )
    total: int = proto.ByteSize() + sum(outside)
    return total


def latency(comparison: Comparison | None, which: Literal["before", "after"]) -> Latency | None:
    """The time of one of the models that were compared."""
    if comparison is None:
        return None
    timing = comparison.before if which == "before" else comparison.after
    spread = timing.spread * timing.median / 2
    return Latency(timing.median, spread, len(timing.samples), timing.samples)


def ratio(comparison: Comparison | None) -> Ratio | None:
    """How many times as fast the second model is."""
    if comparison is None:
        return None
    return Ratio(comparison.ratio, comparison.low, comparison.high)


def settings(
    shapes: Sequence[Mapping[str, tuple[int, ...]]],
    comparisons: Sequence[Comparison | None],
    *,
    ratios: bool,
) -> tuple[Setting, ...]:
    """What was measured at each of several settings; nothing where there is only one."""
    if len(shapes) < 2:
        return ()
    return tuple(
        Setting(
            each,
            latency(found, "before"),
            latency(found, "after"),
            ratio(found) if ratios else None,
        )
        for each, found in zip(shapes, comparisons, strict=True)
    )


def kernel_times(
    profile: Profile, before: ModelStats, missed: Sequence[Missed]
) -> tuple[KernelTime, ...]:
    """A profile of the input model, with what part of each operator's nodes was `missed`."""
    counts: Counter[str] = Counter()
    for each in missed:
        counts[each.what] += each.count
    return tuple(
        KernelTime(name, seconds, min(1.0, counts[name] / max(1, before.operators.get(name, 0))))
        for name, seconds in profile.items()
    )


def rule_uses(
    replacements: Sequence[Replacement], gains: Mapping[Path, float], otherwise: GainSource
) -> tuple[RuleUse, ...]:
    """The rules applied; the gain of a group is shared out evenly among its rules.

    `gains` are those that the whole model tells, by group. The others are the sums of what the
    search found for each replacement, which is known from `otherwise`.
    """
    counts: Counter[str] = Counter()
    totals: dict[str, float] = {}
    rough: dict[str, GainSource] = {}
    for item in replacements:
        gain = 0.0 if item.rules in gains else item.gain
        for name in item.rules:
            counts[name] += 1
            totals[name] = totals.get(name, 0.0) + gain / len(item.rules)
            if item.rules not in gains:
                rough[name] = "estimate" if item.estimated else rough.get(name, otherwise)
    for path in dict.fromkeys(item.rules for item in replacements if item.rules in gains):
        for name in path:
            totals[name] += gains[path] / len(path)
    return tuple(
        RuleUse(name, counts[name], totals[name], rough.get(name, "model"))
        for name in sorted(counts)
    )
