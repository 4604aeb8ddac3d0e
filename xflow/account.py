"""The account of a run: what its report says beyond numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xflow.blocks.account import account_for_blocks
from xflow.cost.estimate import Estimator
from xflow.cost.target import TargetModel
from xflow.drawing import draw, missed, traced
from xflow.log import record
from xflow.onnx_import import Imported
from xflow.opset import ceiling
from xflow.preparation import Prepared
from xflow.replay import Unfounded
from xflow.report import Block, Missed
from xflow.rule import Rule
from xflow.run import Run
from xflow.search import Replacement


@dataclass(frozen=True)
class Account:
    """The log of the rewrites, both models as a page draws them, what was left as it is, and what
    the blocks of the model are computed by."""

    log: Mapping[str, Any] | None = None
    drawing: Mapping[str, Any] | None = None
    missed: tuple[Missed, ...] = ()
    blocks: tuple[Block, ...] = ()


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

    Without a log, and with a warning of the run, where they cannot be repeated. Of a graph inside
    an operator, the log is all.
    """
    with run.phase("log"):
        try:
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
        except Unfounded as error:
            run.warnings.append(f"The rewrites could not be repeated for the log: {error}.")
            log = None
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
