"""xflow: makes ONNX models faster by rewrites that are proved for all sizes.

`optimize` takes a model and gives a `Result`: the model that was found, and a report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xflow.api import Result, optimize

    __version__: str

__all__ = ["Result", "__version__", "optimize"]


def __getattr__(name: str) -> Any:
    """Load what is asked for: ONNX and its runtime take a second that `--help` has not."""
    if name in ("Result", "optimize"):
        from xflow import api  # noqa: PLC0415

        return getattr(api, name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("xflow-onnx")
    raise AttributeError(f"module 'xflow' has no attribute {name!r}")
