"""Hashes of nested values that are computed once."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def hash_once(cls: type[T]) -> type[T]:
    """A class of frozen dataclasses that remember their hash: one of all fields, theirs included.

    It is not pickled: in another process, texts have other hashes.
    """
    compute = cls.__hash__

    def cached(self: Any) -> int:
        known: dict[str, Any] = self.__dict__
        found: int | None = known.get("_hash")
        if found is None:
            found = known["_hash"] = compute(self)
        return found

    def state(self: Any) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    cls.__hash__ = cached  # type: ignore[method-assign]
    cls.__getstate__ = state  # type: ignore[method-assign]
    return cls
