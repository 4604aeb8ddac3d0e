"""Flags of onnxsim and onnxslim: translated to xflow's, or refused with the flag to use instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xflow.core.errors import UsageError

SAME = {
    "--test-input-shape": "--input-shapes",  # onnxsim
    "--check-n": "--check",  # onnxsim
    "--check-rtol": "--rtol",  # onnxsim
    "--check-atol": "--atol",  # onnxsim
    "--mutable-initializer": "--keep-initializer-inputs",  # onnxsim
}
"""Flags with the same meaning as one of xflow's."""

DONE = frozenset({"--model-check", "--include-subgraph", "--enable-fuse-bn"})
"""Flags without a value, of onnxslim and onnxsim, for behaviour that xflow has by default."""

SHAPES = ("--input-shapes", "--test-input-shape")
"""Flags behind which these tools take the shapes of several inputs at once."""

_SHAPES = (
    "the written model keeps its dynamic dimensions; --input-shapes NAME:1,3,224,224 says at which "
    "sizes it is checked and timed"
)
_PATTERNS = "there are rules here: --skip-rules NAME leaves some out, xflow rules list names them"
_EXTERNAL = "weights stay where the input has them, and go to a file where a model exceeds 2 GiB"
_PROOFS = "each rule is proved; xflow certify IN OUT REPORT.json confirms a run of --report"
_TYPES = "xflow does not change element types"
_FOLDING = "constants are folded only where a rewrite needs it; --size-threshold bounds by how much"

ANSWERS = {
    "--overwrite-input-shape": _SHAPES,
    "--input-shape": _SHAPES,
    "--model-check-inputs": _SHAPES,
    "--dynamic-input-shape": _SHAPES,
    "--skip-fusion-patterns": _PATTERNS,
    "--skip-optimizations": _PATTERNS,
    "--skip-optimization": _PATTERNS,
    "--skip-optimizer": _PATTERNS,
    "--enable-optimization": _PATTERNS,
    "--list-default-optimizers": _PATTERNS,
    "--list-other-optimizers": _PATTERNS,
    "--skip-fuse-bn": _PATTERNS,
    "--skip-constant-folding": _FOLDING,
    "--no-large-tensor": _FOLDING,
    "--save-as-external-data": _EXTERNAL,
    "--external-data-threshold": _EXTERNAL,
    "--no-shape-infer": "shapes are inferred for the search alone and not written",
    "--skip-shape-inference": "shapes are inferred for the search alone and not written",
    "--enable-onnxruntime-optimization": "the runtime's own optimizations are always on in timings",
    "--inspect": "see xflow explain IN",
    "--dump-to-disk": "see --report FILE.json",
    "--graph-diff": "see --html FILE: both graphs side by side",
    "--node-reduction-plot": "see --html FILE: both graphs side by side",
    "--profile": "the table at the end, --report and --html tell the seconds of each phase",
    "--certify": _PROOFS,
    "--no-certify": _PROOFS,
    "--inline-functions": "calls of functions are inlined where a rewrite reaches into them",
    "--providers": "see --provider cpu or --provider cuda",
    "--cuda": "see --provider cuda",
    "--input-data-path": "inputs are drawn at random, with values that suit what reads them",
    "--input-fill": "inputs are drawn at random, with values that suit what reads them",
    "--initializers-as-non-constants": "weights are constants here, and rewritten with the model",
    "--outputs": "xflow changes neither inputs nor outputs",
    "--unused-output": "xflow changes neither inputs nor outputs",
    "--dtype": _TYPES,
    "--fp16-quantize": _TYPES,
    "--dynamic-quantize": _TYPES,
    "--static-quantize": _TYPES,
    "--weight-only-quantize": _TYPES,
}
"""Flags of onnxsim and onnxslim that xflow does not have, and what it has instead."""


def translate(arguments: Sequence[str]) -> list[str]:
    """`arguments` of `optimize` with other tools' flags replaced by xflow's.

    Raises UsageError, which names xflow's flag, for one that cannot be translated.
    """
    made: list[str] = []
    for number, word in enumerate(arguments):
        if word == "--":
            return [*made, *arguments[number:]]
        flag, equals, value = word.partition("=")
        if flag in ANSWERS:
            raise UsageError(f"there is no {flag} here", do=ANSWERS[flag])
        if word in DONE:
            continue
        if _goes_on(arguments[:number], word):
            made.append("--input-shapes")
        made.append(SAME.get(flag, flag) + equals + value)
    return made


def _goes_on(before: Sequence[str], word: str) -> bool:
    """Whether `word` is the second or a later one of the shapes behind one flag."""
    rest = list(before)
    while rest and _is_shape(rest[-1]):
        rest.pop()
    return _is_shape(word) and len(rest) < len(before) and rest[-1:] in ([flag] for flag in SHAPES)


def _is_shape(word: str) -> bool:
    return re.fullmatch(r"[^-].*:\d+(,\d+)*", word) is not None
