"""xflow: makes ONNX models faster by rewrites that are proved for all sizes.

`optimize` takes a model and gives a `Result`: the model that was found, and a report. `explain`
says what it would do, and `check` whether two models are the same. `OptimizePass` optimizes in a
pipeline of onnx-ir's passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

_HERE = Path(__file__).parent
if not (_HERE / "verifier").exists() and (_HERE.parent / "verifier" / "prove.py").is_file():
    # A script in a checkout imports this folder, whatever is installed: its other parts stand
    # beside it there.
    __path__.append(str(_HERE.parent))

if TYPE_CHECKING:
    from xflow.pipeline.agreement import check
    from xflow.pipeline.api import optimize
    from xflow.pipeline.explanation import Explanation, explain
    from xflow.pipeline.passes import OptimizePass
    from xflow.pipeline.pipeline import Result
    from xflow.validation.equivalence import CheckResult

    __version__: str

__all__ = [
    "CheckResult",
    "Explanation",
    "OptimizePass",
    "Result",
    "__version__",
    "check",
    "explain",
    "optimize",
]

_HOMES = {
    "CheckResult": "validation.equivalence",
    "Result": "pipeline.api",
    "check": "pipeline.agreement",
    "optimize": "pipeline.api",
    "Explanation": "pipeline.explanation",
    "explain": "pipeline.explanation",
    "OptimizePass": "pipeline.passes",
}


def __dir__() -> list[str]:
    """The names that there are for others, loaded or not."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load what is asked for: ONNX and its runtime take a second that `--help` has not."""
    if name in _HOMES:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"xflow.{_HOMES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("xflow-onnx")
    raise AttributeError(f"module 'xflow' has no attribute {name!r}")
