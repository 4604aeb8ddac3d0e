"""The log of a run: what a model was, and each application of a rule that led to another one.

It holds all that is needed to do the same again without searching, and to check it without
believing anybody: the hash of the model, the rules as text, and for each rewrite where it was made
and by which steps. See `derivation` for the steps, and `replay` for doing it again.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from xflow.analysis.observers import Observed
from xflow.analysis.value_rewrites.basis import bases_of
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.errors import ReportError
from xflow.core.expressions import shortened
from xflow.core.graph import Graph
from xflow.core.limits import GROWTH
from xflow.onnx.files import data_locations
from xflow.onnx.imported import Imported
from xflow.onnx.inlining import Call
from xflow.onnx.subgraphs import BodyKey
from xflow.pipeline.preparation import DEPTH, Prepared
from xflow.report.report import FORMAT_VERSION
from xflow.rewriting.derivation import Application, numbering, place_of, read_place
from xflow.rewriting.replacement import Replacement, apply_replacements, rounds
from xflow.rewriting.replay import Exchange, Replay, Rewrite, Round, Unfounded
from xflow.rewriting.rule import Rule, directions_of
from xflow.rewriting.text import parse_rules

Json = dict[str, Any]

LARGEST = 2**26
"""Bytes of the largest report that is read; those of models with a thousand operators have some."""
MOST_RULES = 2_000
"""Most rules of a log; the whole database has about so many, and a run uses some dozens."""
MOST_STEPS = 200_000
"""Most rewrites and steps of a log; a thousand operators were rewritten in some thousands."""

_CHUNK = 2**22


class Unrepeatable(Exception):  # noqa: N818 - a verdict, not a mishap
    """A replacement that does not follow from what is written down of it, and why."""

    def __init__(self, culprit: Replacement, why: str) -> None:
        super().__init__(why)
        self.culprit = culprit


@dataclass(frozen=True)
class Log:
    """What was written down of a run.

    `digest` is that of the input model, see `digest_of`; there is none for a graph inside an
    operator. `rules` are all rules that the steps name. If it is `empty`, the output is the input's
    own model.
    """

    digest: Json | None
    rules: tuple[Rule, ...]
    rounds: tuple[Round, ...]
    program: str = ""
    target_opset: int | None = None
    size_threshold: int = GROWTH
    frozen: bool = False
    """Whether weights that were inputs, too, became constants before anything else."""
    inlined: frozenset[Call] = frozenset()
    """The calls that were inlined behind that."""
    bodies: Mapping[BodyKey, Log] = field(default_factory=dict)
    """What was done behind that to graphs inside operators."""
    assumption: Assumption = Assumption.NONE
    """What was taken for granted of the values of the model."""
    distrusted: tuple[str, ...] = ()
    """The names of dimensions that nothing was concluded from."""

    @property
    def empty(self) -> bool:
        """Whether nothing was done."""
        return not (self.rounds or self.frozen or self.inlined or self.bodies)

    def all(self) -> Iterator[Log]:
        """This log, and those of all graphs inside operators."""
        yield self
        for log in self.bodies.values():
            yield from log.all()

    @property
    def directions(self) -> Mapping[str, Rule]:
        """The directions of the rules by their names."""
        return directions_of(self.rules)


def digest_of(path: Path) -> Json:
    """SHA-256 of a model's file, and of each file beside it that holds data of it."""
    found: Json = {"sha256": _sha256(path)}
    names = sorted(data_locations(path))
    if names:
        found["external"] = {name: _sha256(path.parent / name) for name in names}
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def record(
    before: Path | None,
    imported: Imported,
    replacements: Sequence[Replacement],
    rules: Iterable[Rule],
    *,
    target_opset: int | None = None,
    size_threshold: int = GROWTH,
    prepared: Prepared,
    assumption: Assumption = DEFAULT,
    outside: Observed = Observed.NOWHERE,
) -> Json:
    """The log of a run that made these replacements in the model of the file `before`.

    There is no file for a graph inside an operator. `target_opset` and `size_threshold` are how the
    model was written, see `export_model`; `prepared` is what was done to the model of the file
    before it was imported; `assumption` is what was taken for granted of its values, `outside` what
    is sensitive to its outputs.

    Raises Unrepeatable where they cannot be repeated from what is known of them.
    """
    parts = list(rounds(imported.graph, replacements))
    made = [[_rewrite(graph, item, imported) for item in items] for graph, items in parts]
    used = {
        step["rule"].removesuffix(".reverse")
        for items in made
        for item in items
        for step in item["steps"] or ()
    }
    log: Json = {
        "program": f"xflow {version('xflow-onnx')}",
        "input": before and digest_of(before),
        "rules": {rule.name: str(rule) for rule in rules if rule.name in used},
        "rounds": made,
        "target_opset": target_opset,
        "size_threshold": size_threshold,
        "assume": assumption.option,
        "distrusted": sorted(prepared.distrusted),
        "frozen": prepared.frozen,
        "inlined": [] if prepared.inlined is None else sorted(prepared.inlined.calls),
        "bodies": [
            {"node": place[0], "attribute": place[1], "log": inner}
            for place, inner in prepared.bodies.items()
        ],
    }
    log = json.loads(json.dumps(log))  # what a reader will see
    again = _read(log)
    made_again = Replay(
        again.directions, imported.constants, assumption=assumption, outside=outside
    )
    applied = [item for _, items in parts for item in items]
    graph = imported.graph
    try:
        for items, written in zip(again.rounds, log["rounds"], strict=True):
            graph, weakest = made_again.weakest(graph, items)
            for least, item in zip(weakest, written, strict=True):
                item["assume"] = least.option
        if graph.outputs != apply_replacements(imported.graph, replacements).outputs:
            raise Unfounded("the last rewrite", "repeating all of them leads to another model")
    except Unfounded as error:
        raise Unrepeatable(_culprit(applied, made_again.made), str(error)) from None
    return log


def _culprit(items: Sequence[Replacement], made: Sequence[Exchange]) -> Replacement:
    """The first of some replacements that led elsewhere; else the first that was not made again."""
    for item, exchange in zip(items, made, strict=False):
        if (item.before, item.after) != exchange:
            return item
    return items[min(len(made), len(items) - 1)]


def _rewrite(graph: Graph, item: Replacement, imported: Imported) -> Json:
    """One replacement in `graph`, and which nodes of the model it concerns."""
    numbers = numbering(graph)
    return {
        "before": [list(place_of(value, numbers)) for value in item.before],
        "inputs": [list(place_of(value, numbers)) for value in item.inputs],
        "steps": None if item.trail is None else [step.to_json() for step in item.trail],
        "fact": item.fact or None,
        "basis": [each.value for each in bases_of(item.fact, by_rules=item.trail is not None)],
        "rules": list(item.rules),
        "gain": item.gain,
    }


def read_report(path: str | Path) -> tuple[Json, Log]:
    """The report in a file, and the log in it. Raises ReportError, in one sentence.

    It may come from anybody, so nothing in it is believed, and its size is bounded in every way.
    """
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise ReportError("this is not a regular file", str(path))
        with Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ReportError("there is no such file", str(path)) from None
    except IsADirectoryError:
        raise ReportError("this is a directory, not a report", str(path)) from None
    except (OSError, ValueError) as error:  # a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ReportError(f"the file cannot be read ({reason})", str(path)) from None
    if len(data) > LARGEST:
        raise ReportError(f"a file of more than {LARGEST >> 20} MiB is no report", str(path))
    try:
        report = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):  # no text, no JSON, or nested without end
        report = None
    if not isinstance(report, dict) or type(report.get("version")) is not int:
        raise ReportError("this is no report of xflow", str(path), "give a file of --report")
    if report["version"] != FORMAT_VERSION:
        version = shortened(str(report["version"]), 20)
        what = f"a report of format {version}, where {FORMAT_VERSION} is understood"
        raise ReportError(what, str(path), "optimize the model again")
    if not isinstance(report.get("log"), dict):
        raise ReportError("the report holds no log", str(path), "optimize the model again")
    try:
        _check_extent(report["log"])
        log = _read(report["log"])
        if log.digest is None:
            raise ValueError("no hash of the model")
        return report, log
    except Exception as error:  # there is no end to what may be wrong with it
        reason = shortened(" ".join(f"{type(error).__name__} {error}".split()), 120)
        raise ReportError(f"its log makes no sense ({reason})", str(path)) from None


def _check_extent(log: Json, depth: int = 0) -> tuple[int, int]:
    """How many rules and steps a log has. Raises ValueError where no run makes so many."""
    if depth > DEPTH:
        raise ValueError(f"graphs inside one another more than {DEPTH} deep")
    rules = len(log["rules"])
    steps = sum(1 + len(item["steps"] or ()) for items in log["rounds"] for item in items)
    for inner in log.get("bodies", ()):
        more_rules, more_steps = _check_extent(inner["log"], depth + 1)
        rules, steps = rules + more_rules, steps + more_steps
        if rules > MOST_RULES:
            break
    if rules > MOST_RULES:
        raise ValueError(f"{rules} rules, where {MOST_RULES} are allowed")
    if steps > MOST_STEPS:
        raise ValueError(f"{steps} steps, where {MOST_STEPS} are allowed")
    return rules, steps


def _read(log: Json) -> Log:
    """The log that `record` wrote. Raises one of many errors for anything else."""
    rules = []
    for name, text in log["rules"].items():
        (rule,) = parse_rules(text, f"rule {name} of the log")
        if rule.name != name:
            raise ValueError(f"a rule {rule.name} under the name {name}")
        rules.append(rule)
    made = tuple(tuple(_read_rewrite(item) for item in items) for items in log["rounds"])
    digest = log["input"] and dict(log["input"])
    if digest and not isinstance(digest["sha256"], str):
        raise TypeError("the hash is no text")
    opset, threshold, frozen = log["target_opset"], log["size_threshold"], log["frozen"]
    if type(threshold) is not int or not (opset is None or type(opset) is int):
        raise TypeError("the opset or the threshold is no number")
    if not 0 <= threshold < 2**63 or not 1 <= (opset or 1) < 2**31:
        raise ValueError("the opset or the threshold is no such number")
    if not isinstance(frozen, bool):
        raise TypeError("frozen is neither true nor false")
    program = str(log["program"])
    assumption = Assumption.named(log["assume"])
    calls = frozenset(_read_call(call) for call in log.get("inlined", ()))
    bodies = {
        (read_place([item["node"], 0])[0], str(item["attribute"])): _read(item["log"])
        for item in log.get("bodies", ())
    }
    distrusted = tuple(map(str, log.get("distrusted", ())))
    settings = (program, opset, threshold, frozen, calls, bodies, assumption, distrusted)
    return Log(digest or None, tuple(rules), made, *settings)


def _read_call(call: Sequence[Any]) -> Call:
    if not isinstance(call, list) or not all(type(number) is int for number in call):
        raise TypeError("a call is no list of numbers")
    return tuple(call)


def _read_rewrite(item: Json) -> Rewrite:
    steps = item["steps"]
    return Rewrite(
        tuple(map(read_place, item["before"])),
        tuple(map(read_place, item["inputs"])),
        None if steps is None else tuple(Application.from_json(step) for step in steps),
        str(item["fact"] or ""),
    )
