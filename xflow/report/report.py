"""The report of one run: what was changed, what it gained, and how the time was spent."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from xflow.core.errors import printable
from xflow.core.wording import counted
from xflow.cost import Objective

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

FORMAT_VERSION = 3
"""Raised whenever a field of the JSON changes its meaning or goes away."""

WIDTH = 78
"""Columns that the rendered tables take at most."""

_SHOWN_OPERATORS = 12


@dataclass(frozen=True)
class ModelStats:
    """What a model consists of: its operators and how often each occurs, and its weights."""

    operators: Mapping[str, int]
    weight_bytes: int = 0

    @property
    def nodes(self) -> int:
        """The number of operators in all."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class Latency:
    """The time of one inference: median in seconds, and half the interquartile range around it."""

    median: float
    spread: float
    runs: int = 0
    samples: tuple[float, ...] = ()
    """The seconds of single runs, in order."""


@dataclass(frozen=True)
class Ratio:
    """The time before over the time after, with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Setting:
    """One of several settings of the input shapes, and what was measured at it."""

    shapes: Mapping[str, tuple[int, ...]]
    latency_before: Latency | None = None
    latency_after: Latency | None = None
    ratio: Ratio | None = None


GainSource = Literal["model", "region", "estimate"]


@dataclass(frozen=True)
class RuleUse:
    """One rule, how often it was applied, and what it gains.

    `gain` is in seconds per inference, or in what the objective counts. It is known from leaving
    the rewrites out of the whole `model`, from measuring the `region` alone, or by `estimate`.
    """

    name: str
    count: int
    gain: float = 0.0
    gain_from: GainSource = "region"


@dataclass(frozen=True)
class Based:
    """What so many rewrites rest on, see `xflow.analysis.value_rewrites.basis`."""

    basis: str
    sentence: str
    rewrites: int


@dataclass(frozen=True)
class Assumed:
    """What so many rewrites take for granted of the model's values, and by which rules they go.

    `option` is that of ``--assume``; `sentence` says it in words. Each rewrite counts for the least
    that it needs, and what needs nothing is not among them.
    """

    option: str
    sentence: str
    rewrites: int
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missed:
    """What was left as it is in so many places, and why."""

    what: str
    count: int
    why: str


FormSource = Literal["operator", "fusion", "none"]
NEIGHBOURS = "its neighbours"
"""By what a block is computed that became part of the weights or the operators around it."""


@dataclass(frozen=True)
class BlockForm:
    """How a block is computed: by an operator, by a kernel into which the runtime fuses it, or
    by several operators, and then `name` is empty."""

    by: FormSource
    name: str = ""


@dataclass(frozen=True)
class Block:
    """An attention, a normalization, a softmax or an activation of the input model.

    `name` is the operator that it is or computes the same as, empty where none does; `nodes` are
    the names of its nodes in the input model. It is recognised if the output model computes it by
    an operator or by a kernel of the runtime; else `reason` says why it is not, if that is known.
    """

    kind: str
    name: str
    nodes: tuple[str, ...]
    before: BlockForm
    after: BlockForm
    recognised: bool
    reason: str = ""


@dataclass(frozen=True)
class Target:
    """What the model was optimized for."""

    provider: str
    threads: int
    processor: str = ""
    runtime: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that a run tells about itself; `to_json` writes it, `render` shows it.

    `latency_*` and `ratio` are None where nothing was measured, `largest_error` (relative, over
    all outputs and random inputs) where nothing was compared.  `phases` holds seconds by name.
    `amount_*` are what the objective counts, None for latency: the bytes of the memory's peak or
    of the written model, or operators that run.  `opset_*` are the versions of ONNX's own
    operators, None for a model without any.  Where there are several settings of the input
    shapes, `settings` has all of them, and `shapes`, `latency_*`, `ratio` and `amount_*` are those
    of the worst. The file `report.schema.json` beside this module describes the JSON.
    """

    changed: bool
    before: ModelStats
    after: ModelStats
    target: Target
    input: str = ""
    output: str = ""
    opset_before: int | None = None
    opset_after: int | None = None
    objective: Objective = "latency"
    amount_before: float | None = None
    amount_after: float | None = None
    latency_before: Latency | None = None
    latency_after: Latency | None = None
    ratio: Ratio | None = None
    largest_error: float | None = None
    rules: tuple[RuleUse, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    seed: int = 0
    warnings: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    version: int = FORMAT_VERSION
    drawing: Mapping[str, Any] | None = None
    """Both models as a page draws them, see `xflow.report.drawing`."""
    missed: tuple[Missed, ...] = ()
    blocks: tuple[Block, ...] = ()
    """What stands in the input model, in its order, see `xflow.blocks`."""
    bases: tuple[Based, ...] = ()
    """What the rewrites rest on, and how many on each."""
    assumed: tuple[Assumed, ...] = ()
    """What the rewrites take for granted."""
    log: Mapping[str, Any] | None = None
    """All that is needed to do the same again, see `xflow.pipeline.log`."""

    def to_json(self) -> str:
        """Return the report as JSON text that ends in a newline.

        A number that JSON has no form for (an infinite error) becomes a string.
        """
        plain = _finite(dataclasses.asdict(self))
        return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def render(self) -> "Group":
        """Return the tables that a run ends with, for a terminal of 80 columns or more."""
        from rich.console import Group  # noqa: PLC0415 - `import xflow` stays light
        from rich.padding import Padding  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        parts = [_model_table(self)]
        if self.rules:
            parts.append(_rule_table(self.rules, self.objective))
        lines = [Text(f"~ {_ROUGHLY[source]}") for source in _rough(self.rules)]
        if any(use.gain_from == "model" for use in self.rules):
            lines.append(
                Text("gain: what the model loses without the rule; those that go together")
            )
            lines.append(Text("share it, so that all may add up to more than the whole"))
        if self.phases:
            spent = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.phases.items())
            total = sum(self.phases.values())
            lines.append(Text(f"Seconds: {spent}; {total:.1f} in all"))
        lines += [Text(sentence) for sentence in block_lines(self.blocks)]
        lines += [Text(sentence) for sentence in basis_lines(self.bases)]
        lines += [Text(sentence) for sentence in assumed_lines(self.assumed)]
        lines += [Text(sentence) for sentence in self.messages]
        lines += [Text(f"Warning: {sentence}", style="yellow") for sentence in self.warnings]
        return Group(*parts, *(Padding(line, (0, 1), expand=False) for line in lines))


def _shown(name: str) -> "Text":
    """Return a name of the model's own choice as it is shown: it is no markup."""
    from rich.text import Text  # noqa: PLC0415 - `import xflow` stays light

    return Text(printable(name))


def basis_lines(bases: Sequence[Based]) -> list[str]:
    """Return a sentence for each basis: how many rewrites rest on it."""
    return [f"{counted(each.rewrites, 'rewrite')} by {each.sentence}" for each in bases]


def assumed_lines(assumed: Sequence[Assumed], most: int = 3) -> list[str]:
    """Return a sentence for each assumption: how many rewrites rest on it, and by which rules."""
    lines = []
    for each in assumed:
        named = ", ".join(each.rules[:most])
        rest = f" and {len(each.rules) - most} more" if len(each.rules) > most else ""
        count = f"{each.rewrites} rewrite{' assumes' if each.rewrites == 1 else 's assume'}"
        lines.append(f"{count} that {each.sentence} (--assume {each.option}): {named}{rest}")
    return lines


def block_lines(blocks: Sequence[Block], most: int = 4) -> list[str]:
    """Return how many blocks of each kind became one operator each, and why others did not."""
    if not blocks:
        return []
    lines = [f"In one operator or kernel each: {recognised(blocks)}"]
    missed = Counter(
        (block.kind, block.name or "no operator", block.reason)
        for block in blocks
        if not block.recognised
    )
    for (kind, name, reason), count in missed.most_common(most):
        lines.append(f"In several operators still: {count} x {kind} ({name}): {reason}")
    if len(missed) > most:
        lines.append("Others are in the report (--report, --html)")
    return lines


def recognised(blocks: Sequence[Block]) -> str:
    """Return how many of the blocks of each kind the output model has as one operator each."""
    words = []
    for kind in sorted({block.kind for block in blocks}):
        those = [block.recognised for block in blocks if block.kind == kind]
        plural = kind if len(those) == 1 else f"{kind}{'es' if kind.endswith('x') else 's'}"
        words.append(f"{sum(those)} of {len(those)} {plural}")
    return ", ".join(words)


def _finite(value: object) -> object:
    """Return `value` with every float that JSON cannot hold replaced by its name."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return str(value)
    return value


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


def format_amount(amount: float, objective: Objective) -> str:
    """Return what an objective counts with its unit; seconds for latency."""
    if objective == "latency":
        return format_seconds(amount)
    if objective == "nodes":
        return f"{amount:.0f}"
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.2f} {unit}"
        amount /= 1024
    return f"{amount:.2f} GiB"


def format_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the shapes of inputs as the command line takes them."""
    return " ".join(f"{name}:{','.join(map(str, sizes))}" for name, sizes in shapes.items())


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that leaves one to three digits before the point."""
    unit, scale = _unit(seconds)
    return f"{seconds * scale:.2f} {unit}"


def _unit(seconds: float) -> tuple[str, float]:
    """Return the unit that suits a duration, and how many of it make one second."""
    if abs(seconds) >= 1:
        return "s", 1.0
    if abs(seconds) >= 1e-3:
        return "ms", 1e3
    return "us", 1e6


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "not measured"
    unit, scale = _unit(latency.median)
    return f"{latency.median * scale:.2f} ± {latency.spread * scale:.2f} {unit}"


def _model_table(report: Report) -> "Table":
    """Return operator counts, latency and error, before and after."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    target = report.target
    where = f"{target.provider}, {counted(target.threads, 'thread')}"
    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    table.add_column(where, ratio=1, overflow="fold")
    table.add_column("before", justify="right", width=22)
    table.add_column("after", justify="right", width=22)
    for name, before, after in _operator_rows(report):
        table.add_row(_shown(name), str(before), str(after))
    table.add_section()
    table.add_row("Operators", str(report.before.nodes), str(report.after.nodes))
    if report.amount_before is not None and report.amount_after is not None:
        amounts = (report.amount_before, report.amount_after)
        shown = [format_amount(amount, report.objective) for amount in amounts]
        table.add_row(_AMOUNTS[report.objective], *shown)
    latency = "Latency, worst setting" if report.settings else "Latency"
    table.add_row(latency, _latency(report.latency_before), _latency(report.latency_after))
    if report.ratio:
        ratio = report.ratio
        table.add_row(
            "Times as fast", "", f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
        )
    for setting in report.settings:
        latencies = _latency(setting.latency_before), _latency(setting.latency_after)
        table.add_row(_shown(f"at {format_shapes(setting.shapes)}"), *latencies)
    error = report.largest_error
    table.add_row("Largest relative error", "", "not compared" if error is None else f"{error:.2g}")
    return table


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


def _rule_table(rules: tuple[RuleUse, ...], objective: Objective) -> "Table":
    """Return the rules applied, the most gainful first."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, width=WIDTH, pad_edge=False)
    table.add_column("Rule applied", ratio=1, overflow="fold")
    table.add_column("times", justify="right")
    table.add_column("gain", justify="right")
    for use in sorted(rules, key=lambda use: (-use.gain, use.name)):
        mark = "~ " if use.gain_from in _ROUGHLY else ""
        table.add_row(use.name, str(use.count), mark + format_amount(use.gain, objective))
    return table
