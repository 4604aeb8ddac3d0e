"""A report as one page of HTML that needs no network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from xflow.core.errors import RuleFileError
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Value
from xflow.core.wording import counted
from xflow.report.formats import format_amount, format_seconds
from xflow.report.report import Report
from xflow.report.sentences import assumed_lines, basis_lines
from xflow.rewriting.instance import Instance
from xflow.rewriting.numerics import Numerics
from xflow.rewriting.rule import Rule
from xflow.rewriting.text import parse_rules

Json = Mapping[str, Any]

_ASSETS = ("page.css", "page.js", "cytoscape.min.js", "dagre.min.js")


def page(report: Json) -> str:
    """The page for a report, as JSON has it. The scripts that it needs are in it."""
    assets = files("xflow.report") / "web"
    parts = {name: (assets / name).read_text(encoding="utf-8") for name in _ASSETS}
    log = report.get("log") or {}
    title = f"{report['input'] or 'model'} → {report['output'] or 'model'}"
    target = report["target"]
    footer = (
        f"{log.get('program', 'xflow')}; ONNX Runtime {target['runtime']}, {target['provider']}, "
        f"{target['threads']} threads, {target['processor']}; seed {report['seed']}."
    )
    shown = {key: value for key, value in report.items() if key != "log"}
    shown["log"] = (
        {"rounds": [[_brief(item) for item in items] for items in log["rounds"]]} if log else None
    )
    shown["sides"] = {each.name: _drawn(each) for each in _directions(log.get("rules", {}))}
    parts |= {
        "title": html.escape(title),
        "verdict": html.escape(verdict(report)),
        "footer": html.escape(footer),
        # Nothing in a script element may look like the end of it.
        "data": json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c"),
    }
    template = (assets / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.]+)\}\}", lambda match: parts[match[1]], template)


def summary(report: Report) -> str:
    """The verdict, the operators and the rules of a report, as a piece of HTML."""
    plain = json.loads(report.to_json())
    before, after = report.before.operators, report.after.operators
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    counts = [(name, before.get(name, 0), after.get(name, 0)) for name in names]
    counts.append(("all operators", report.before.nodes, report.after.nodes))
    uses = sorted(report.rules, key=lambda use: -use.gain)
    gains = [(use.name, use.count, format_amount(use.gain, report.objective)) for use in uses]
    notes = (
        *basis_lines(report.bases),
        *assumed_lines(report.assumed),
        *report.messages,
        *report.warnings,
    )
    return (
        f"<p><b>{html.escape(verdict(plain))}</b></p>"
        + _table(("operator", "before", "after"), counts)
        + (_table(("rule applied", "times", "gain"), gains) if gains else "")
        + "".join(f"<p>{html.escape(text)}</p>" for text in notes)
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [heads, *rows]
    cells = (
        "".join(f"<{tag}>{html.escape(str(value))}</{tag}>" for value in line)
        for tag, line in zip(["th", *["td"] * len(rows)], lines, strict=True)
    )
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in cells) + "</table>"


def verdict(report: Json) -> str:
    """What came of a run, in one sentence."""
    target = report["target"]
    fewer = report.get("timed_threads")
    where = f"{fewer} of " if fewer else ""
    where += counted(target["threads"], "thread")
    where = f"{target['processor'] or target['provider']}, {where}"
    if not report["changed"]:
        return f"Nothing was gained on {where}: the output is the input's own graph."
    before, after, ratio = (report[key] for key in ("latency_before", "latency_after", "ratio"))
    if report["amount_before"] is not None:
        amounts = [
            format_amount(report[f"amount_{side}"], report["objective"])
            for side in ("before", "after")
        ]
        gain = f"{amounts[1]} instead of {amounts[0]}"
    elif ratio is None:
        cost = "the learned cost" if report.get("cost") == "learned" else "estimate"
        gain = f"Rewritten by {cost} alone, nothing was timed"
    else:
        gain = (
            f"{ratio['value']:.3f} times as fast (95 % confidence: {ratio['low']:.3f} to "
            f"{ratio['high']:.3f}), {format_seconds(after['median'])} instead of "
            f"{format_seconds(before['median'])}"
        )
    error = report["largest_error"]
    same = "not compared with the input"
    if error is not None:
        same = f"equal to the input within a relative error of {float(error):.2g} on random inputs"
    return f"{gain} on {where}; {same}."


def _brief(item: Json) -> Json:
    """A rewrite as the page needs it: which rules, and the gain."""
    steps = [{"rule": step["rule"]} for step in item["steps"] or ()]
    return {"steps": steps, "gain": item["gain"]}


def _directions(texts: Mapping[str, str]) -> list[Rule]:
    """The directions of the rules whose stanzas these are; those left out that are none."""
    found: list[Rule] = []
    for text in texts.values():
        try:
            found += [each for rule in parse_rules(text) for each in rule.directions()]
        except RuleFileError:
            continue
    return found


def _drawn(rule: Rule) -> Json:
    """A rule's two sides as graphs, what is known of it, and its text."""
    instance = rule.instance(rule.ranks[0])
    facts = [
        ("true where", ", ".join(rule.where) or "both sides are defined"),
        ("proof", _proof(rule.notes.get("proof", ""))),
        ("rounding", _rounding(rule.numerics)),
    ]
    return {
        "lhs": side_graph(instance, instance.lhs),
        "rhs": side_graph(instance, instance.rhs),
        "facts": facts,
        "text": str(rule),
    }


def _proof(record: str) -> str:
    """The line `proof` of a rule, in words."""
    known = re.fullmatch(r"(\w+), all sizes; (\d+) obligations?; (\S+)", record)
    if known is None:
        return record or "not recorded"
    numbers, questions, certificate = known.groups()
    solver = f" A solver settled {questions} questions about sizes." if questions != "0" else ""
    return (
        f"Both sides are equal over the {numbers} at every index, for all sizes.{solver} "
        f"The certificate is {certificate} in the folder of the rules."
    )


def _rounding(numerics: Numerics | None) -> str:
    """The line `numerics` of a rule, in words."""
    if numerics is None:
        return "not measured"
    errors = [
        f"{each.left} → {each.right} in {each.type} (extreme inputs: {each.extreme_left} → "
        f"{each.extreme_right})"
        for each in numerics.figures
    ]
    said = f"largest relative error, left → right: {', '.join(errors)}" if errors else numerics.note
    refused = ", ".join(map(str, numerics.refusals))
    return f"{said}. Never used: {refused}" if refused else said


def side_graph(instance: Instance, values: tuple[Value, ...]) -> Json:
    """One side of a rule as nodes with labels, inputs first."""
    numbers: dict[object, int] = {}
    nodes: list[dict[str, Any]] = []
    for node in Graph(values).nodes:
        numbers[node] = len(nodes)
        is_leaf = isinstance(node.op, Leaf)
        label = node.op.key if isinstance(node.op, Leaf) else getattr(node.op, "name", "?")
        nodes.append(
            {"label": label, "leaf": is_leaf, "inputs": [numbers[v.node] for v in node.inputs]}
        )
    return {"nodes": nodes}
