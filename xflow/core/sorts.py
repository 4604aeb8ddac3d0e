"""Element types, and the four sorts of them that rules speak of.

Tensors of a model have ONNX element types, those of a rule have sorts: ``REAL`` stands for one
element type throughout the rule, the same for all its tensors; ``BOOL`` is the Boolean type;
``INT`` is any type that ONNX admits for indices, for each tensor its own; and ``CODE`` is likewise
any type that holds codes of quantized numbers.
"""

from __future__ import annotations

from functools import cache

REAL = "REAL"
BOOL = "BOOL"
INT = "INT"
CODE = "CODE"
SORTS = frozenset({REAL, BOOL, INT, CODE})
NUMBERS = frozenset({REAL, INT})
"""Those with which rules compute: what is computed of codes in 8 bits would not be their sum."""

ELEMENT = "T"
"""In declarations of operators: an element type that is one for all the places that name it."""

SINGLE, DOUBLE = "FLOAT", "DOUBLE"

HALVES = ("FLOAT16", "BFLOAT16")
FLOATS = (SINGLE, *HALVES, DOUBLE)
"""Element types that hold real numbers, up to rounding."""

INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
"""Element types that hold integers and wrap around."""


INDICES = ("INT32", "INT64")
"""Element types that ``INT`` stands for."""

CODES = ("INT8", "UINT8")
"""Element types that ``CODE`` stands for."""

_OF_ONE_SORT = {INT: INDICES, CODE: CODES}

REALS_ONLY = "reals"
AND_INTEGERS = "reals, integers"
ANY_TYPE = "any"
HOLDS_FOR = (REALS_ONLY, AND_INTEGERS, ANY_TYPE)
"""For which element types in the place of ``REAL`` a rule holds; integers wrap around."""


@cache
def admits(types: str, dtype: str) -> bool:
    """Whether a rule that holds for `types`, one of HOLDS_FOR, does so for an element type."""
    if types == ANY_TYPE:
        return dtype not in (*SORTS - {BOOL}, "?")
    return dtype in FLOATS or (types == AND_INTEGERS and dtype in INTEGERS)


def is_of_sort(dtype: str, sort: str) -> bool:
    """Whether an element type is one for which a sort other than ``REAL`` stands, or is itself."""
    return dtype == sort or dtype in _OF_ONE_SORT.get(sort, ())


@cache
def suits(dtype: str, sorts: frozenset[str]) -> bool:
    """Whether an element type, or a sort, is of `sorts`; any type of integers is of ``INT``."""
    return sort_of(dtype) in sorts or (dtype in INTEGERS and INT in sorts)


def integer_range(dtype: str) -> tuple[int, int]:
    """The least and the greatest element of an integer type; of others only 0 and 1 are known."""
    if dtype not in INTEGERS:
        return 0, 1
    bits = int(dtype.lstrip("UINT"))
    return (0, 2**bits - 1) if dtype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@cache
def sort_of(dtype: str) -> str | None:
    """The sort of an element type of a model or a rule; None for one that rules do not know."""
    if dtype in FLOATS or dtype == REAL:
        return REAL
    if dtype in CODES or dtype == CODE:
        return CODE
    if dtype in INTEGERS or dtype == INT:
        return INT
    return BOOL if dtype == BOOL else None
