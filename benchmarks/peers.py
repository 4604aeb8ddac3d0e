#!/usr/bin/env python3
"""Optimize a model by one of the other tools that there are, with its default settings.

python peers.py PEER IN.onnx OUT.onnx
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnx

# The peers are an optional extra, and a process loads the one alone whose time it is to take.


def onnxslim(source: Path, target: Path) -> None:
    """OnnxSlim: folding, removal of what has no effect, some fusions."""
    import onnxslim  # noqa: PLC0415

    onnxslim.slim(str(source), str(target))


def onnxsim(source: Path, target: Path) -> None:
    """ONNX Simplifier: folding by the runtime, and the passes of onnxoptimizer."""
    import onnxsim  # noqa: PLC0415

    simplified, is_equal = onnxsim.simplify(str(source))
    if not is_equal:
        raise SystemExit("onnxsim found that its output differs")
    onnx.save(simplified, target)


def onnxscript(source: Path, target: Path) -> None:
    """The optimizer of onnxscript, which PyTorch's exporter runs: folding and rewrite rules."""
    import onnxscript.optimizer  # noqa: PLC0415

    onnx.save(onnxscript.optimizer.optimize(onnx.load(source)), target)


def ort_fusions(source: Path, target: Path) -> None:
    """The fusions of onnxscript to operators of ONNX Runtime's own domain."""
    import onnx_ir  # noqa: PLC0415
    from onnxscript.rewriter.ort_fusions import optimize_for_ort  # noqa: PLC0415

    optimized, _ = optimize_for_ort(onnx_ir.load(source))
    onnx_ir.save(optimized, target)


def onnxoptimizer(source: Path, target: Path) -> None:
    """The optimizer that was once ONNX's own: its passes that fuse and eliminate."""
    import onnxoptimizer  # noqa: PLC0415

    onnx.save(onnxoptimizer.optimize(onnx.load(source)), target)


@dataclass(frozen=True)
class Peer:
    """Another optimizer: `run` reads a file and writes another."""

    package: str
    run: Callable[[Path, Path], None]

    @property
    def version(self) -> str:
        """The version of the package that is installed, or nothing."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return ""


PEERS = {
    "onnxslim": Peer("onnxslim", onnxslim),
    "onnxsim": Peer("onnxsim", onnxsim),
    "onnxscript": Peer("onnxscript", onnxscript),
    "ORT fusions": Peer("onnxscript", ort_fusions),
    "onnxoptimizer": Peer("onnxoptimizer", onnxoptimizer),
}
"""The peers by the names that the table gives them."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    PEERS[options.peer].run(options.source, options.target)
