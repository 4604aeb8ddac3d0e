"""Flags of other tools that users know by heart: taken for ours, or answered with ours."""

from __future__ import annotations

from collections.abc import Sequence

from xflow.errors import UsageError

SAME = {
    "--test-input-shape": "--input-shapes",  # onnxsim
    "--check-n": "--check",  # onnxsim
}
"""Flags that mean what one of ours does."""

DONE = frozenset({"--model-check"})
"""Flags without a value that ask for what is done anyway; onnxslim's."""

_SHAPES = (
    "the written model keeps its dynamic dimensions; --input-shapes NAME:1,3,224,224 says at which "
    "sizes it is checked and timed"
)
_PATTERNS = "there are rules here: --skip-rules NAME leaves some out, xflow rules list names them"
_EXTERNAL = "weights stay where the input has them, and go to a file where a model exceeds 2 GiB"
_FOLDING = "constants are folded only where a rewrite needs it; --size-threshold bounds by how much"

ANSWERS = {
    "--overwrite-input-shape": _SHAPES,
    "--dynamic-input-shape": _SHAPES,
    "--skip-fusion-patterns": _PATTERNS,
    "--skip-optimizations": _PATTERNS,
    "--skip-optimization": _PATTERNS,
    "--skip-fuse-bn": _PATTERNS,
    "--skip-constant-folding": _FOLDING,
    "--no-large-tensor": _FOLDING,
    "--save-as-external-data": _EXTERNAL,
    "--no-shape-infer": "shapes are inferred for the search alone and not written",
    "--skip-shape-inference": "shapes are inferred for the search alone and not written",
    "--enable-onnxruntime-optimization": "the runtime's own optimizations are always on in timings",
    "--inspect": "see xflow explain IN",
    "--inputs": "xflow changes neither inputs nor outputs",
    "--outputs": "xflow changes neither inputs nor outputs",
    "--unused-output": "xflow changes neither inputs nor outputs",
    "--dtype": "xflow does not change element types",
}
"""Flags of onnxsim and onnxslim that xflow does not have, and what it has instead."""


def translate(arguments: Sequence[str]) -> list[str]:
    """`arguments` of `optimize` with other tools' flags as ours.

    Raises UsageError, with ours in it, for one that has no such meaning here.
    """
    made: list[str] = []
    for number, word in enumerate(arguments):
        if word == "--":
            return [*made, *arguments[number:]]
        flag, equals, value = word.partition("=")
        if flag in ANSWERS:
            raise UsageError(f"there is no {flag} here", do=ANSWERS[flag])
        if word not in DONE:
            made.append(SAME.get(flag, flag) + equals + value)
    return made
