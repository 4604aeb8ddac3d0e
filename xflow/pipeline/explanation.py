"""What would be done to a model, region by region."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xflow.pipeline.api import Model, optimize
from xflow.report.formats import format_amount
from xflow.report.report import NEIGHBOURS, Block, BlockForm, Missed, Report
from xflow.report.sentences import profile_lines

SHOWN = 3
"""Of regions that are alike, how many are named beside the first."""


@dataclass(frozen=True)
class RegionChange:
    """A part of the model that would be rewritten.

    `before` and `after` count operators by name; `names` are the names of those replaced, as far as
    the model has any. `rules` are the steps in order, with how often each follows itself. `gain` is
    in seconds, or in what the objective counts, as the search knows it.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    names: tuple[str, ...]
    rules: tuple[tuple[str, int], ...]
    gain: float

    @property
    def ends(self) -> str:
        """The first and the last name."""
        ends = dict.fromkeys(self.names[:1] + self.names[-1:])
        return " to ".join(ends) or "operators without names"

    def is_like(self, other: RegionChange) -> bool:
        """Whether the same is replaced by the same, by the same rules in whatever order."""
        mine, its = (
            (dict(each.before), dict(each.after), dict(each.rules)) for each in (self, other)
        )
        return mine == its


@dataclass(frozen=True)
class Explanation:
    """What would be done to a model; `str` of it is for people."""

    report: Report
    regions: tuple[RegionChange, ...]
    missed: tuple[Missed, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def lines(self) -> Iterator[str]:
        """The text, of 80 columns as far as names allow."""
        report = self.report
        if not report.changed:
            yield "Nothing would be done: the output would be the input's own graph."
        else:
            count = len(self.regions)
            yield (
                f"{count or 'No'} region{'' if count == 1 else 's'} of the main graph would be "
                "rewritten; operators: "
                f"{report.before.nodes} > {report.after.nodes}"
            )
        told: list[RegionChange] = []
        for number, region in enumerate(self.regions, 1):
            if any(region.is_like(each) for each in told):
                continue
            told.append(region)
            alike = [each for each in self.regions[number:] if region.is_like(each)]
            yield ""
            gain = format_amount(region.gain, report.objective)
            yield f"Region {number}: {region.ends}, gain ~ {gain}"
            yield from _wrapped("before", _counts(region.before))
            yield from _wrapped("after", _counts(region.after))
            yield from _wrapped(
                "by", [name if times == 1 else f"{name} x {times}" for name, times in region.rules]
            )
            if alike:
                gain = format_amount(sum(each.gain for each in alike), report.objective)
                yield f"  {len(alike)} more like it, gain ~ {gain} together:"
                ends = [each.ends for each in alike[:SHOWN]]
                yield from _wrapped("at", ends + ["..."] * (len(alike) > SHOWN))
        if self.missed:
            yield ""
            yield "Left as it is:"
            for item in self.missed:
                yield from _wrapped(f"{item.count:4} x", [f"{item.what}: {item.why}"], "  ")
        if report.blocks:
            yield ""
            yield "Blocks:"
            for block, names in _alike(report.blocks):
                yield from _wrapped(f"{len(names):4} x", [_told(block)], "  ")
                if not block.recognised:
                    yield from _wrapped("at", names[:6] + ["..."] * (len(names) > 6), " " * 10)
        for sentence in profile_lines(report.profile):
            yield ""
            yield from _wrapped("", [sentence], "")
        for sentence in (*report.messages, *(f"Warning: {each}" for each in report.warnings)):
            yield ""
            yield from _wrapped("", [sentence], "")


def explain(model: Model, **options: Any) -> Explanation:
    """What `xflow.optimize` would do to a model; nothing is written.

    The options are those of `xflow.optimize`, but nothing is timed unless ``cost="measured"``, and
    the budget is 10 seconds. Raises XflowError.

    >>> print(xflow.explain("model.onnx"))
    """
    return explain_report(
        optimize(model, **{"budget": 10.0, "cost": "estimated", **options}).report
    )


def explain_report(report: Report) -> Explanation:
    """What a report says was done, region by region."""
    drawing: Mapping[str, Any] = report.drawing or {"before": {}, "after": {}, "regions": []}
    log: Mapping[str, Any] = report.log or {"rounds": []}
    rewrites = [item for items in log["rounds"] for item in items]
    sides = [drawing[side].get("nodes", []) for side in ("before", "after")]
    regions = []
    for number, members in enumerate(drawing["regions"]):
        inside = [[node for node in nodes if node["region"] == number] for nodes in sides]
        steps = [step["rule"] for k in members for step in rewrites[k]["steps"] or ()]
        regions.append(
            RegionChange(
                Counter(node["op"] for node in inside[0]),
                Counter(node["op"] for node in inside[1]),
                tuple(node["name"] for node in inside[0] if node["name"]),
                tuple(Counter(steps).items()),
                sum(rewrites[k]["gain"] for k in members),
            )
        )
    regions.sort(key=lambda region: -region.gain)
    return Explanation(report, tuple(regions), report.missed)


def _alike(blocks: Sequence[Block]) -> list[tuple[Block, list[str]]]:
    """Blocks of which the same is to be said, missed ones first, and where each of them ends."""
    found: dict[Block, list[str]] = {}
    for block in sorted(blocks, key=lambda block: (block.recognised, block.kind)):
        found.setdefault(replace(block, nodes=()), []).append(block.nodes[-1])
    return list(found.items())


def _told(block: Block) -> str:
    """What became of a block, in words."""
    what = f"{block.kind} {block.name or 'without an operator'}"
    ways = (_way(block.before), _way(block.after))
    if block.recognised:
        return f"{what}: {ways[0]}" if ways[0] == ways[1] else f"{what}: {ways[0]}, then {ways[1]}"
    return f"{what}: stays in several operators, since {block.reason}"


def _way(form: BlockForm) -> str:
    words = {
        "operator": f"as {'part of ' if form.name == NEIGHBOURS else ''}{form.name}",
        "fusion": f"fused by the runtime ({form.name})",
        "none": "in several operators",
    }
    return words[form.by]


def _counts(operators: Mapping[str, int]) -> list[str]:
    order = sorted(operators.items(), key=lambda item: (-item[1], item[0]))
    return [f"{name} {count}" for name, count in order] or ["nothing"]


def _wrapped(label: str, items: list[str], indent: str = "  ") -> Iterator[str]:
    """Items behind a label, separated by commas, in lines of 80 columns where that is possible."""
    head = f"{indent}{label:8}" if label else indent
    line = head
    words = items[0].split(" ") if len(items) == 1 else [f"{item}," for item in items]
    for word in words:
        if len(line) + len(word) > 80 and line.strip():
            yield line.rstrip()
            line = " " * len(head)
        line += f"{word} "
    yield line.rstrip().rstrip(",")
