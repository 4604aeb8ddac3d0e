"""xflow as a pass of onnx-ir, to stand in a pipeline with others."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from xflow.pipeline.api import optimize
from xflow.report.report import Report

__all__ = ["OptimizePass"]


class OptimizePass(ir.passes.FunctionalPass):
    """Optimizes a model on this machine; the input model is not changed.

    The options are those of `xflow.optimize`. `report` is that of the last call, None before it.

    >>> pipeline = ir.passes.Sequential(xflow.OptimizePass(budget=60))
    >>> faster = pipeline(model).model
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.report: Report | None = None

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Optimize a model. Raises XflowError, see `xflow.optimize`."""
        result = optimize(model, **self.options)
        self.report = result.report
        made = result.model if result.report.changed else model.clone()
        return ir.passes.PassResult(made, modified=result.report.changed)
