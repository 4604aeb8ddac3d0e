"""The tables of the benchmark: for the terminal, and for a page."""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from judge import Fault
from tools import AGAIN, BUSY, OWN, XFLOW, Attempt, Failure
from xflow.cost.kernels import Profile
from xflow.report.formats import percent

NO_GAIN = 1.01
"""The ratio below which a model has gained nothing."""
SAME = 0.01
"""The difference of logarithms below which two outputs are as fast."""


@dataclass(frozen=True)
class Row:
    """The results for one model.

    `is_built` tells the networks that are built after papers from the exported ones; `profiles`
    are of the original and, if xflow changed it, of its output.  `headroom`, `removed` and
    `spent_on` are explained in `headroom.py`; `nodes_...`, `rules` and `phases` are of xflow.
    """

    model: str
    is_built: bool
    attempts: list[Attempt]
    headroom: float | None = None
    removed: float | None = None
    spent_on: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    recognised: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    """By kind, how many blocks one operator or one of the runtime's kernels computes in xflow's
    output, and how many the model has."""
    missed: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """The blocks that are not recognised, as xflow's report has them."""
    opaque: dict[str, float] = dataclasses.field(default_factory=dict)
    """What part of the nodes of an operator no rule knows, by its name, where that is any."""
    rules: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    profiles: list[Profile] = dataclasses.field(default_factory=list)

    def attempt(self, tool: str) -> Attempt:
        """The result of one tool."""
        return next(made for made in self.attempts if made.tool == tool)

    def by(self, tools: Sequence[str]) -> "Row":
        """The same of some of the tools alone."""
        return dataclasses.replace(self, attempts=[self.attempt(tool) for tool in tools])

    @property
    def operators(self) -> str:
        """How many there are before and after xflow."""
        if self.nodes_before == self.nodes_after:
            return f"{self.nodes_before or ''}"
        return f"{self.nodes_before}>{self.nodes_after}"

    @property
    def before_s(self) -> float | None:
        """Seconds of a run of the original, where anything was timed against it."""
        times = [made.before_s for made in self.attempts if made.before_s is not None]
        return times[0] if times else None

    @property
    def best(self) -> str:
        """The tool with the largest ratio of those that are faster beyond their spread."""
        faster = [made for made in self.attempts if made.low is not None and made.low > 1]
        return max(faster, key=lambda made: made.gain).tool if faster else "none"


def rows_of(results: Mapping[str, Any]) -> list[Row]:
    """Return the rows that a run of the benchmark has written as JSON."""
    return [
        Row(**{**row, "attempts": [Attempt(**made) for made in row["attempts"]]})
        for row in results["rows"]
    ]


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of ratios, 1 if there are none."""
    return math.exp(sum(map(math.log, ratios)) / max(1, len(ratios)))


def blocks(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by where the models are from, without empty blocks."""
    parts = {
        "exported": [row for row in rows if not row.is_built],
        "built after the papers": [row for row in rows if row.is_built],
    }
    return {title: part for title, part in parts.items() if part}


def means(rows: Sequence[Row], tools: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return each tool's geometric mean over each block; "best peer" takes each model's best."""
    result: dict[str, dict[str, float]] = {}
    for title, part in blocks(rows).items():
        result[title] = {
            tool: geometric_mean([row.attempt(tool).gain for row in part]) for tool in tools
        }
        peers = [tool for tool in tools if tool not in OWN]
        if peers:
            best = [max(row.attempt(tool).gain for tool in peers) for row in part]
            result[title]["best peer"] = geometric_mean(best)
    return result


def kept_when_busy(rows: Sequence[Row]) -> float | None:
    """Return the part of xflow's gain that is left where a core was busy; None without any gain.

    Gains are the logarithms of geometric means.
    """
    idle, busy = (
        math.log(geometric_mean([row.attempt(tool).gain for row in rows])) for tool in (XFLOW, BUSY)
    )
    return busy / idle if idle > 0 else None


def is_found_again(row: Row) -> bool:
    """Whether what a second run made is as fast as what the first one did, within 1 %."""
    first, second = row.attempt(XFLOW), row.attempt(AGAIN)
    return first.fault == second.fault and abs(math.log(second.gain / first.gain)) < SAME


# The table of ratios


def header(tools: Sequence[str]) -> tuple[str, ...]:
    """Return the titles of the columns of ratios."""
    return ("model", "operators", "ms", *tools, "best", "headroom", "removed")


def row_cells(row: Row, tools: Sequence[str], *, spread: bool = True) -> tuple[str, ...]:
    """Return the texts of one line of the table of ratios."""
    return (
        row.model,
        row.operators,
        "" if row.before_s is None else f"{row.before_s * 1e3:.1f}",
        *(_ratio(row.attempt(tool), spread=spread) for tool in tools),
        row.best,
        "" if row.headroom is None else percent(row.headroom),
        "" if row.removed is None else percent(row.removed),
    )


def _ratio(made: Attempt, *, spread: bool) -> str:
    if made.ratio is None:
        return made.fault
    if made.is_unchanged:
        return "1"
    mark = "*" if made.fault else ""
    text = f"{made.ratio:.3f}{mark}"
    return f"{text} ({made.low:.3f}-{made.high:.3f})" if spread else text


def mean_cells(title: str, part: dict[str, float], tools: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of the line of geometric means."""
    return (
        f"geometric mean, {title}",
        "",
        "",
        *(f"{part[tool]:.3f}" for tool in tools),
        "",
        "",
        "",
    )


def render(rows: Sequence[Row], tools: Sequence[str], title: str) -> Table:
    """Return the table for the terminal; it is too narrow for spreads."""
    table = Table(box=box.SIMPLE_HEAD, title=title, padding=(0, 1))
    for name in header(tools):
        table.add_column(name, justify="left" if name == "model" else "right")
    averages = means(rows, tools)
    for block, part in blocks(rows).items():
        for row in part:
            style = "red" if row.attempt(XFLOW).fault else None
            table.add_row(*row_cells(row, tools, spread=False), style=style)
        table.add_section()
        table.add_row(*mean_cells(block, averages[block], tools))
        table.add_section()
    return table


# The page

LEGEND = """\
Times as fast as ONNX Runtime with all its optimizations, and the 95 % interval. Where a tool fails
the model stays as it is, and counts as 1 in the means. `1` without interval: the output is the
input, byte for byte. `*`: not valid by the checker of ONNX, but the runtime takes it. *Operators*:
before and after xflow. *Best*: the fastest, if it is faster than the original beyond its interval.
*Headroom*: the part of the kernels' time outside convolutions and matrix products. *Removed*: the
part of that which is gone in xflow's output."""


RECOGNISED = """\
Blocks that one operator, or one of the runtime's kernels, computes in xflow's output:"""


def markdown(rows: Sequence[Row], tools: Sequence[str]) -> list[str]:
    """Return the lines of the page: ratios, costs, failures, and where there is nothing to gain."""
    lines = [
        LEGEND,
        "",
        *_table_of_ratios(rows, tools),
        "",
        "Seconds and peak memory (MiB) of each tool:",
        "",
        *table(("model", *tools), [_costs(row, tools) for row in rows]),
        "",
        "Outputs that are missing or not right, of each tool:",
        "",
        *table(("tool", *_kinds(), "examples"), [_faults(rows, tool) for tool in tools]),
    ]
    kinds = list(dict.fromkeys(kind for row in rows for kind in row.recognised))
    if kinds:
        lines += ["", RECOGNISED, ""]
        lines += table(("model", *kinds), [_recognised(row, kinds) for row in rows])
    idle = [row for row in rows if row.attempt(XFLOW).gain < NO_GAIN and row.spent_on]
    if idle:
        lines += ["", "Where xflow gains nothing:", ""]
        lines += [f"- {row.model}: {row.spent_on}." for row in idle]
    return lines


def _recognised(row: Row, kinds: Sequence[str]) -> tuple[str, ...]:
    counts = (row.recognised.get(kind) for kind in kinds)
    return (row.model, *(f"{each[0]} of {each[1]}" if each else "" for each in counts))


def put(page: Path, mark: str, text: str) -> None:
    """Put `text` between the marks of that name of a page. Raises ValueError where it has none."""
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{page} has no marks {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def decimals(value: float | None) -> str:
    """Return the text of a number of two decimals, and a dash where there is none."""
    return "-" if value is None else f"{value:.2f}"


def _known_median(values: Iterable[float | None]) -> str:
    """Return the text of the median of those that are known."""
    known = [value for value in values if value is not None]
    return decimals(statistics.median(known) if known else None)


def two_medians(first: Iterable[float | None], second: Iterable[float | None]) -> str:
    """Return the texts of two medians, the second in brackets."""
    return f"{_known_median(first)} ({_known_median(second)})"


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown; the first column is of words."""
    first, *rest = (f"| {' | '.join(cells)} |" for cells in (titles, *lines))
    return [first, f"|---|{'---:|' * (len(titles) - 1)}", *rest]


def _table_of_ratios(rows: Sequence[Row], tools: Sequence[str]) -> list[str]:
    lines: list[tuple[str, ...]] = []
    averages = means(rows, tools)
    for title, part in blocks(rows).items():
        lines += [row_cells(row, tools) for row in part]
        lines.append(mean_cells(f"{len(part)} {title}", averages[title], tools))
    text = table(header(tools), lines)
    for title, average in averages.items():
        if "best peer" in average:
            mean = f"{average['best peer']:.3f}"
            text += ["", f"Best peer of each model, picked after timing, {title}: {mean}."]
    return text


def _costs(row: Row, tools: Sequence[str]) -> tuple[str, ...]:
    made = [row.attempt(tool) for tool in tools]
    costs = [f"{one.seconds:.1f}, {one.memory / 2**20:.0f}" if one.seconds else "" for one in made]
    return (row.model, *costs)


def _kinds() -> tuple[str, ...]:
    return (*Failure, *Fault)


def _faults(rows: Sequence[Row], tool: str) -> tuple[str, ...]:
    """Return how often a tool has failed in which way, and one sentence for each way."""
    made = [(row.model, row.attempt(tool)) for row in rows]
    counts = Counter(one.fault for _, one in made)
    examples = {one.fault: f"{model}: {one.wrong}" for model, one in made if one.wrong}
    said = "; ".join(examples.values()).replace("|", "\\|")
    return (tool, *(f"{counts[kind]}" if counts[kind] else "" for kind in _kinds()), said)
