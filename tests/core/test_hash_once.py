"""Hashes are computed once, and anew in another process."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from xflow.core.hash_once import hash_once


@hash_once
@dataclass(frozen=True)
class Pair:
    """Two values."""

    first: object
    second: object = None


class Counted:
    """A value that counts how often it is hashed."""

    count = 0

    def __hash__(self) -> int:
        self.count += 1
        return 1


def test_the_hash_of_a_field_is_asked_for_once() -> None:
    counted = Counted()
    pair = Pair(Pair(counted))
    assert hash(pair) == hash(pair)
    assert {pair: 1}[pair] == 1
    assert counted.count == 1


def test_equal_values_have_equal_hashes_and_others_do_not() -> None:
    pair = Pair("a", 1)
    assert hash(pair) == hash(Pair("a", 1))
    assert hash(replace(pair, second=2)) == hash(Pair("a", 2)) != hash(pair)


def test_a_hash_is_not_pickled() -> None:
    pair = Pair("a", 1)
    before = pickle.dumps(pair)
    hash(pair)
    assert pickle.dumps(pair) == before
    assert pickle.loads(before) == pair
