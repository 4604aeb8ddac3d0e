"""The tables that a run ends with, on a terminal."""

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from xflow.core.errors import printable
from xflow.core.wording import counted
from xflow.cost import Objective
from xflow.report.formats import format_amount, format_shapes, unit_of
from xflow.report.report import GainSource, Latency, Ratio, Report, RuleUse, Setting
from xflow.report.sentences import assumed_lines, basis_lines, block_lines, profile_lines

WIDTH = 78
"""Columns that the rendered tables take at most."""

_SHOWN_OPERATORS = 12
_SHOWN_SHAPES = 3
"""Inputs by which a setting of the sizes is told from others."""

_AMOUNTS: Mapping[Objective, str] = {
    "memory": "Peak memory",
    "size": "Size of the model",
    "nodes": "Operators that run",
}
_ROUGHLY: Mapping[GainSource, str] = {
    "region": "by measuring the rewritten regions alone, not the whole model",
    "estimate": "by estimate, not by measurement",
}


def _rough(rules: Iterable[RuleUse]) -> list[GainSource]:
    """Return what gains come from where that is not the whole model."""
    return sorted({use.gain_from for use in rules} & _ROUGHLY.keys())


def render(report: Report) -> Group:
    """Return the tables of a report, for a terminal of 80 columns or more."""
    parts = [_model_table(report)]
    if report.rules:
        parts.append(_rule_table(report.rules, report.objective))
    lines = [Text(f"~ {_ROUGHLY[source]}") for source in _rough(report.rules)]
    if any(use.gain_from == "model" for use in report.rules):
        lines.append(Text("gain: what the model loses without the rule; those that go together"))
        lines.append(Text("share it, so that all may add up to more than the whole"))
    if report.phases:
        spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phases.items())
        total = sum(report.phases.values())
        lines.append(Text(f"Seconds: {spent}; {total:.1f} in all"))
    lines += [Text(sentence) for sentence in profile_lines(report.profile)]
    lines += [Text(sentence) for sentence in block_lines(report.blocks)]
    lines += [Text(sentence) for sentence in basis_lines(report.bases)]
    lines += [Text(sentence) for sentence in assumed_lines(report.assumed)]
    lines += [Text(sentence) for sentence in report.messages]
    lines += [Text(f"Warning: {sentence}", style="yellow") for sentence in report.warnings]
    return Group(*parts, *(Padding(line, (0, 1), expand=False) for line in lines))


def as_text(name: str) -> Text:
    """Return a name that others have chosen as it is shown: it is no markup."""
    return Text(printable(name))


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "not measured"
    unit, scale = unit_of(latency.median)
    return f"{latency.median * scale:.2f} ± {latency.spread * scale:.2f} {unit}"


def _model_table(report: Report) -> Table:
    """Return operator counts, latency and error, before and after."""

    target = report.target
    where = f"{target.provider}, {counted(target.threads, 'thread')}"
    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    table.add_column(where, ratio=1, overflow="fold")
    table.add_column("before", justify="right", width=22)
    table.add_column("after", justify="right", width=22)
    for name, before, after in _operator_rows(report):
        table.add_row(as_text(name), str(before), str(after))
    table.add_section()
    table.add_row("Operators", str(report.before.nodes), str(report.after.nodes))
    if report.amount_before is not None and report.amount_after is not None:
        amounts = (report.amount_before, report.amount_after)
        shown = [format_amount(amount, report.objective) for amount in amounts]
        table.add_row(_AMOUNTS[report.objective], *shown)
    latency = "Latency, worst setting" if report.settings else "Latency"
    latency += f", {counted(report.timed_threads, 'thread')}" if report.timed_threads else ""
    table.add_row(latency, _latency(report.latency_before), _latency(report.latency_after))
    if report.ratio:
        table.add_row("Times as fast", "", _ratio(report.ratio))
    for label, setting in zip(_labels(report.settings), report.settings, strict=True):
        latencies = _latency(setting.latency_before), _latency(setting.latency_after)
        table.add_row(as_text(f"at {label}"), *latencies)
        if setting.ratio:
            table.add_row("  times as fast", "", _ratio(setting.ratio))
    error = report.largest_error
    table.add_row("Largest relative error", "", "not compared" if error is None else f"{error:.2g}")
    return table


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _labels(settings: Sequence[Setting]) -> list[str]:
    """What tells settings from each other: the shapes that differ, but for many the first."""
    known = dict.fromkeys(name for each in settings for name in each.shapes)
    differ = [name for name in known if len({each.shapes.get(name) for each in settings}) > 1]
    names = differ or list(known)
    more = f" and {len(names) - _SHOWN_SHAPES} more" if len(names) > _SHOWN_SHAPES else ""
    shown = names[:_SHOWN_SHAPES]
    return [
        format_shapes({name: each.shapes[name] for name in shown if name in each.shapes}) + more
        for each in settings
    ]


def _operator_rows(report: Report) -> list[tuple[str, int, int]]:
    """Return (operator, before, after) where the count changed, the largest counts first.

    The unchanged operators make one row, and so do changes beyond the first dozen.
    """
    before, after = report.before.operators, report.after.operators
    rows = [(name, before.get(name, 0), after.get(name, 0)) for name in {*before, *after}]
    changed = sorted((row for row in rows if row[1] != row[2]), key=lambda r: (-max(r[1:]), r[0]))
    shown = changed[:_SHOWN_OPERATORS]
    rest = changed[_SHOWN_OPERATORS:]
    if rest:
        shown.append(("other changed", sum(r[1] for r in rest), sum(r[2] for r in rest)))
    same = sum(row[1] for row in rows if row[1] == row[2])
    if same:
        shown.append(("unchanged", same, same))
    return shown


def _rule_table(rules: tuple[RuleUse, ...], objective: Objective) -> Table:
    """Return the rules applied, the most gainful first."""

    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    table.add_column("Rule applied", ratio=1, overflow="fold")
    table.add_column("times", justify="right")
    table.add_column("gain", justify="right")
    for use in sorted(rules, key=lambda use: (-use.gain, use.name)):
        mark = "~ " if use.gain_from in _ROUGHLY else ""
        table.add_row(use.name, str(use.count), mark + format_amount(use.gain, objective))
    return table
