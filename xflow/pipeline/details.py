"""The account of a run: what its report says beyond numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xflow.analysis.value_rewrites.basis import Basis
from xflow.core.assumptions import Assumption
from xflow.cost.estimate import Estimator
from xflow.cost.target import TargetModel
from xflow.onnx.imported import Imported
from xflow.onnx.opset import ceiling
from xflow.pipeline.context import Run
from xflow.pipeline.log import record
from xflow.pipeline.preparation import Prepared
from xflow.report.block_account import account_for_blocks
from xflow.report.drawing import draw, missed
from xflow.report.report import Assumed, Based, Block, Missed
from xflow.rewriting.replacement import Replacement
from xflow.rewriting.rule import Rule
from xflow.rewriting.trace import traced


@dataclass(frozen=True)
class Account:
    """The log of the rewrites, both models as a page draws them, what was left as it is, and what
    the blocks of the model are computed by."""

    log: Mapping[str, Any] | None = None
    drawing: Mapping[str, Any] | None = None
    missed: tuple[Missed, ...] = ()
    blocks: tuple[Block, ...] = ()

    @property
    def bases(self) -> tuple[Based, ...]:
        """What the rewrites of the log rest on, those of graphs inside others included."""
        counts = Counter(name for item in _items(self.log) for name in item["basis"])
        return tuple(
            Based(basis.value, basis.sentence, counts[basis.value])
            for basis in Basis
            if counts[basis.value]
        )

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What the rewrites of the log take for granted, those of graphs inside others included."""
        rules: dict[Assumption, Counter[str]] = {}
        rewrites: Counter[Assumption] = Counter()
        for item in _items(self.log):
            level = Assumption.named(item["assume"])
            rewrites[level] += 1
            rules.setdefault(level, Counter()).update(item["rules"])
        return tuple(
            Assumed(
                level.option,
                level.sentence,
                rewrites[level],
                tuple(name for name, _ in rules[level].most_common()),
            )
            for level in sorted(rewrites)
            if level != Assumption.NONE
        )


def _items(log: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The rewrites of a log, and of those inside it."""
    if log is not None:
        for items in log["rounds"]:
            yield from items
        for inner in log["bodies"]:
            yield from _items(inner["log"])


def account_for(
    run: Run,
    before: Path,
    prepared: Prepared,
    imported: Imported,
    replacements: Sequence[Replacement],
    *,
    rules: Iterable[Rule],
) -> Account:
    """The account of the replacements made in the model of the file `before`, once `prepared`.

    Of a graph inside an operator, the log is all.

    Raises Unrepeatable where the rewrites cannot be repeated from what the log says of them, or
    lead elsewhere then: a model of which nobody can say how it came about is not given out.
    """
    with run.phase("log"):
        log = record(
            None if run.inner else before,
            imported,
            replacements,
            rules,
            target_opset=run.target_opset,
            size_threshold=run.size_threshold,
            prepared=prepared,
            assumption=run.assumption,
            outside=run.outside,
        )
        if run.inner:
            return Account(log)
        trace, graph = traced(imported.graph, replacements)
        estimator = Estimator(TargetModel(threads=run.target.threads))
        limit = ceiling(imported, keep=run.keep_opset, target=run.target_opset)
        return Account(
            log,
            draw(imported, trace, graph),
            missed(imported, graph, estimator),
            account_for_blocks(imported, graph, trace, estimator, limit),
        )
