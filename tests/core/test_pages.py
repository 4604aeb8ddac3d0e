"""Pages of mapped weights are given back, and nothing is lost by it."""

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from products import two_products

from xflow.core.pages import release
from xflow.cost import child
from xflow.cost.worker import Worker
from xflow.validation import equivalence, reference

SIZE = 2**22
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "weights.data"
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    return path


def resident(path: Path) -> int:
    """The bytes of a file's mappings that are resident in this process."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            ours = line.endswith(path.name)
        elif ours and words[0] == "Rss:":
            total += 1024 * int(words[1])
    return total


@linux
def test_a_mapped_array_is_no_longer_resident_and_the_same(data: Path) -> None:
    array = np.memmap(data, np.uint8, mode="r")
    copy = np.array(array)
    assert resident(data) >= SIZE
    release(array[16:].reshape(2, -1))
    assert resident(data) < SIZE
    assert np.array_equal(array, copy)


def test_what_was_written_to_a_mapping_and_what_is_in_memory_stays(data: Path) -> None:
    mine = np.memmap(data, np.uint8, mode="c")
    mine[:100] = 7
    for array in (mine, mine[:50], np.full(100, 7)):
        release(array)
        assert (array[:50] == 7).all()


@linux
def test_weights_that_the_runtime_has_mapped_are_given_back(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the runtime maps them: private and writable; a part of which somebody wrote to stays."""
    monkeypatch.setattr(child, "RESIDENT_BYTES", 0)
    with data.open("rb") as file:
        both = mmap.PROT_READ | mmap.PROT_WRITE
        clean = mmap.mmap(file.fileno(), SIZE // 2, mmap.MAP_PRIVATE, both)
        dirty = mmap.mmap(file.fileno(), SIZE // 2, mmap.MAP_PRIVATE, both, offset=SIZE // 2)
    before = bytes(clean)
    dirty[:3] = b"new"
    with child.giving_back([str(data)]):
        assert bytes(clean) == before
        assert dirty[:3] == b"new"
    pages = child.Pages([str(data)])
    assert resident(data) > 0
    pages.release()
    assert resident(data) < SIZE
    assert dirty[:3] == b"new"
    assert bytes(clean) == before


def test_a_large_model_is_checked_with_its_pages_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "LARGE", 0)
    asked = []
    ask = Worker.ask

    def spy(worker: Worker, request: dict[str, object], *rest: Any) -> object:
        asked.append(request.get("mapped"))
        return ask(worker, request, *rest)

    monkeypatch.setattr(Worker, "ask", spy)
    path = tmp_path / "model.onnx"
    onnx.save(
        two_products(), path, save_as_external_data=True, location="model.data", size_threshold=0
    )
    assert equivalence.check_equivalent(path, path, samples=2).ok
    assert [str((tmp_path / "model.data").resolve())] in asked
