#!/usr/bin/env python3
"""What the runtime simplifies around QuantizeLinear and DequantizeLinear: proved or refuted.

    python qdq.py [--page docs/quantization.md]

Asks the prover about each equation of `qdq.toml`, runs the models there, and puts the table into
the page, between its marks.  Exits with 1 if a verdict is not the one that is expected.
"""

import argparse
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from tables import put
from xflow.generator.saturation.derivation import Derived, derive_claim
from xflow.generator.saturation.directions import Database
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules
from xflow.rewriting.text import parse_rules
from xflow.verifier.prove import Proved, Refuted, prove
from xflow.verifier.recheck.check import recheck_rule
from xflow.verifier.recheck.verdicts import Confirmed
from xflow.verifier.refutation.runnable import save_counterexample
from xflow.verifier.rounding.measure import measure

HERE = Path(__file__).resolve().parent
DATA = HERE / "qdq.toml"
PAGE = HERE.parent / "docs" / "quantization.md"
MARK = "qdq"
PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"
STEPS = 1
"""Steps by rules of the database in which an equation may follow: the search makes such steps."""
COLUMNS = ("transformer", "simplification", "verdict", "how the sides agree, or where they differ",
           "second checker", "in the search")  # fmt: skip
NOTHING = ""


@dataclass(frozen=True)
class Simplification:
    """One that the runtime makes: as an equation of rules, or as a model that it changes."""

    by: str
    of: str
    expect: str
    rule: str = ""
    one_type: bool = False
    """Whether the equation names numbers of one type of codes."""
    model: str = ""
    other: str = ""
    """The model after it, where the runtime does not make it any more."""
    feeds: Mapping[str, Any] | None = None
    becomes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def name(self) -> str:
        """The transformer and what it changes."""
        return f"{self.by}: {self.of}"

    def rules(self) -> Iterator[Rule]:
        """The equation, for codes of either type."""
        texts = [self.rule] if self.rule else []
        if "to='" in self.rule and not self.one_type:
            other = {"signed": "unsigned", "unsigned": "signed"}
            texts.append(
                re.sub("'(un)?signed'", lambda m: f"'{other[m[0].strip(chr(39))]}'", self.rule)
            )
        for text in texts:
            yield from parse_rules(f"rule {re.sub('[^a-z]+', '-', self.name.lower())}\n{text}")


@dataclass(frozen=True)
class Outcome:
    """The verdict about a simplification, and in words what it rests on."""

    verdict: str
    words: str
    confirmed: bool | None = None
    """Whether the second checker follows the proof."""
    applied: str = ""
    """The rules of the database that make it, or why the search would not use such a rule."""


def simplifications() -> list[Simplification]:
    """Return those of the file, in order."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    return [
        Simplification(**{**each, "becomes": tuple(each.get("becomes", ()))})
        for each in data["simplification"]
    ]


def judge(item: Simplification, rules: Sequence[Rule] = ()) -> Outcome:
    """Return the verdict: of the prover for each type of codes, or of the runtime."""
    if not item.rule:
        return judge_model(item)
    first, *others = item.rules()
    found = [judge_rule(first, rules), *(judge_rule(rule) for rule in others)]
    for verdict in (UNKNOWN, REFUTED):
        for outcome in found:
            if outcome.verdict == verdict:
                return outcome
    return replace(found[0], confirmed=all(outcome.confirmed for outcome in found))


def judge_rule(rule: Rule, rules: Sequence[Rule] = ()) -> Outcome:
    """Return the verdict of the prover, and where it is refuted, what the runtime says of that."""
    verdict = prove(rule, both_ways=False)
    if isinstance(verdict, Proved):
        claimed = replace(
            rule, where=verdict.where, exact=verdict.exact, types=verdict.types,
            limits=verdict.limits,
        )  # fmt: skip
        confirmed = isinstance(recheck_rule(claimed, verdict.certificate), Confirmed)
        how = {"bits": "to the bit", "numbers": "no operation rounds"}.get(
            verdict.exact or "", "up to rounding"
        )
        where = ", ".join(f"`{text}`" for text in verdict.where)
        applied = applied_of(claimed, rules) if rules else ""
        return Outcome(PROVED, f"{how}; {where}" if where else how, confirmed, applied)
    if isinstance(verdict, Refuted):
        found = verdict.counterexample
        with tempfile.TemporaryDirectory() as folder:
            saved = save_counterexample(found, Path(folder))
        if not saved.confirmed:
            return Outcome(UNKNOWN, "the counterexample does not run")
        inputs = {name: array.tolist() for name, array in found.inputs.items()}
        return Outcome(REFUTED, f"{_told(inputs)}: {found.reason}")
    return Outcome(UNKNOWN, "the normal forms differ")


def applied_of(rule: Rule, rules: Sequence[Rule]) -> str:
    """Return those of `rules` that make the step of a proved rule, or why none does."""
    # A rule that makes the step has what one side has more of.
    left, right = (Counter(re.findall(r"(\w+)\(", side)) for side in (rule.lhs, rule.rhs))
    needed = {*(left - right), *(right - left)}
    suited = [each for each in rules if needed <= each.operators]
    derived = derive_claim(rule, Database.of(suited), STEPS)
    if isinstance(derived, Derived):
        return ", ".join(derived.rules)
    refused = [each.reason for each in measure(rule).refusals if not each.type]
    return f"refused: {refused[0]}" if refused else "no rule"


def judge_model(item: Simplification) -> Outcome:
    """Return whether the runtime gives something else for the model and for what becomes of it."""
    model = onnx.parser.parse_model(item.model)
    feeds = feeds_of(model, item.feeds or {})
    before = run(model, feeds)
    other = onnx.parser.parse_model(item.other) if item.other else optimized(model)
    after = run(other, feeds)
    if not item.other and tuple(n.op_type for n in other.graph.node) != item.becomes:
        return Outcome(UNKNOWN, "the runtime does not make it")
    if all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)):
        return Outcome(UNKNOWN, item.reason)
    shown = [[_shown(part) for part in parts] for parts in (before, after)]
    words = f"{_told(item.feeds or {})}: {', '.join(shown[0])}, and {', '.join(shown[1])} instead"
    return Outcome(REFUTED, words)


def feeds_of(model: onnx.ModelProto, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the inputs of a model as arrays of its types."""
    types = {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in model.graph.input
    }
    return {name: np.array(value, types[name]) for name, value in given.items()}


def optimized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return what the runtime makes of a model before it runs it, on codes of either type."""
    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        options.optimized_model_filepath = str(Path(folder) / "made.onnx")
        ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a model as it is written."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]


def _told(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_shown(value)}" for name, value in inputs.items())


def _shown(value: Any) -> str:
    """Numbers without the brackets of axes of one element; many of them in short."""
    array = np.asarray(value)
    flat = [f"{item:.9g}" if array.dtype.kind == "f" else str(item) for item in array.ravel()]
    if len(flat) > MOST_SHOWN:
        flat = [*flat[:MOST_SHOWN], "..."]
    return flat[0] if array.size == 1 else f"({', '.join(flat)})"


MOST_SHOWN = 8
"""Numbers of an input that the table has."""


def table(items: Sequence[Simplification], outcomes: Sequence[Outcome]) -> str:
    """Return the table of the page, and the counts behind it."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    last = ""
    for item, outcome in zip(items, outcomes, strict=True):
        proved = outcome.verdict == PROVED
        by, last = (item.by if item.by != last else NOTHING), item.by
        checked = ("confirmed" if outcome.confirmed else "not confirmed") if proved else NOTHING
        told = "not shown" if outcome.verdict == UNKNOWN else outcome.verdict
        cells = (by, item.of, told, outcome.words, checked, outcome.applied)
        lines.append(f"| {' | '.join(cells)} |")
    count = Counter(outcome.verdict for outcome in outcomes)
    told = (
        f"Of these {len(items)}, {count[PROVED]} are proved, {count[REFUTED]} refuted, "
        f"{count[UNKNOWN]} neither."
    )
    return "\n".join((*lines, "", told))


def main(arguments: Sequence[str] | None = None) -> int:
    """Put the table into the page; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, metavar="FILE", default=PAGE)
    options = parser.parse_args(arguments)
    rules = load_rules(default_directory())
    items = simplifications()
    outcomes = [judge(item, rules) for item in items]
    put(options.page, MARK, table(items, outcomes))
    wrong = [
        f"{item.name}: {outcome.verdict} ({outcome.words}), and {item.expect} is expected"
        for item, outcome in zip(items, outcomes, strict=True)
        if outcome.verdict != item.expect
    ]
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
