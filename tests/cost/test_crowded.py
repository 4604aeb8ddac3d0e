"""Measurements while other processes keep the machine busy: with fewer threads, and told so."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from graphs import call, tensor, weights

import xflow.ops  # noqa: F401 - fills the registry
from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.cost import measure as measure_module
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.estimate import Estimator
from xflow.cost.machine import Crowd, Watch, usable_cores
from xflow.cost.measure import Measurer, Setting, Target
from xflow.cost.model import Costs, CostsAtSettings, lost_by_threads
from xflow.cost.store import Store
from xflow.cost.target import TargetModel
from xflow.cost.worker import Failed, Worker
from xflow.pipeline.timing_verdict import timed_with_fewer, timing_objection

pytestmark = pytest.mark.own_process


def convolution(rows: int) -> Graph:
    """One of few channels, which the runtime shares out among threads by rows."""
    x = tensor("row", 1, 64, rows, 2**14 // rows)
    w = tensor("v", 64, 64, 1, 5, constant=True)
    return Graph((call("Conv", x, w),))


ONE_ROW, ROWS = convolution(1), convolution(16)


class Told(Watch):
    """A watch that says that there is room for so many threads."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def free(self, threads: int) -> int:
        return min(threads, self.room)


class Fake(Measurer):
    """Times models by what it is told, for a number of threads: seconds in the models' order."""

    def __init__(self, room: int, seconds: Mapping[int, Sequence[float]]) -> None:
        super().__init__(Target("cpu", 2), Worker())
        self.worker.watch = Told(room)
        self.seconds_of = seconds
        self.asked: list[int] = []

    @property
    def runtime_version(self) -> str:
        return "1.0"

    def time_at_each(self, models: Sequence[Any], *_: Any, **__: Any) -> Any:
        return [(Timing((1.0,) * 4),)] * len(models)

    def time_together(self, models: Sequence[Any], seconds: float, **_: Any) -> list[Any]:
        self.asked.append(self.target.threads)
        times = self.seconds_of[self.target.threads]
        return [Timing((time,) * 4) for time in times[: len(models)]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "costs.sqlite") as store:
        yield store


def costs(measurer: Fake, store: Store) -> Costs:
    return Costs(measurer, store, weights)


class TestRegions:
    def test_they_are_measured_with_the_threads_that_there_is_room_for(self, store: Store) -> None:
        measurer = Fake(1, {1: (4.0, 2.0)})
        cost = costs(measurer, store)
        assert cost.measure([ONE_ROW, ROWS], 0.1) == [4.0, 2.0]
        assert measurer.asked == [1]
        (warning,) = cost.warnings
        assert "measured with 1 of 2 threads" in warning

    def test_what_more_threads_lose_by_the_estimate_counts(self, store: Store) -> None:
        cost = costs(Fake(1, {1: (4.0, 4.0)}), store)
        shares = lost_by_threads([ROWS, ONE_ROW], 1, Estimator(TargetModel(threads=2)))
        assert shares[0] == 1
        assert 1.5 < shares[1] <= 2
        assert cost.measure([ROWS, ONE_ROW], 0.1) == [4.0, 4.0 * shares[1]]

    def test_what_was_measured_with_all_threads_is_known_on_a_busy_machine(
        self, store: Store
    ) -> None:
        idle = costs(Fake(2, {2: (3.0, 1.0)}), store)
        assert idle.measure([ONE_ROW, ROWS], 0.1) == [3.0, 1.0]
        assert idle.warnings == []
        measurer = Fake(1, {})
        assert costs(measurer, store).measure([ONE_ROW, ROWS], 0.1) == [3.0, 1.0]
        assert not measurer.asked

    def test_what_was_measured_with_fewer_threads_does_not_count_for_all(
        self, store: Store
    ) -> None:
        costs(Fake(1, {1: (4.0, 2.0)}), store).measure([ONE_ROW, ROWS], 0.1)
        again = Fake(1, {})
        assert costs(again, store).measure([ONE_ROW, ROWS], 0.1) == [4.0, 2.0]
        assert not again.asked
        idle = Fake(2, {2: (3.0, 1.0)})
        assert costs(idle, store).measure([ONE_ROW, ROWS], 0.1) == [3.0, 1.0]
        assert idle.asked == [2]

    def test_no_solution_is_kept_that_was_found_with_fewer_threads(self, store: Store) -> None:
        cost = costs(Fake(2, {1: (4.0, 2.0), 2: (3.0, 1.0)}), store)
        cost.measure([ONE_ROW, ROWS], 0.1)
        cost.notebook.put("first", "a form")
        cost._measurer.worker.watch = Told(1)
        cost.measure([ROWS, ONE_ROW], 0.1)
        cost.notebook.put("second", "another form")
        assert cost.notebook.get("first") == "a form"
        assert cost.notebook.get("second") is None
        several = CostsAtSettings([costs(Fake(2, {}), store), cost], cost.layouts)
        several.notebook.put("third", "another form")
        assert several.notebook.get("third") is None


class TestRoom:
    @pytest.fixture
    def crowd(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many threads there was room for during each measurement, one after the other."""
        told: list[int] = []

        class Seen(Crowd):
            age = 1.0

            def free(self, threads: int) -> int:
                return min(threads, told.pop(0))

        monkeypatch.setattr(measure_module, "Crowd", Seen)
        return told

    def test_what_was_disturbed_is_measured_again_with_fewer(self, crowd: list[int]) -> None:
        crowd += [1]
        measurer = Fake(2, {})
        found, threads = measurer.undisturbed(lambda alike: alike.target.threads)
        assert (found, threads) == (1, 1)
        assert not crowd

    def test_it_is_not_where_there_is_no_time_for_it(self, crowd: list[int]) -> None:
        crowd += [1]
        measurer, late = Fake(2, {}), Deadline.after(0.0)
        assert measurer.undisturbed(lambda alike: alike.target.threads, late) == (None, 2)
        crowd += [1]
        found = measurer.compare_at_each(b"", b"", 0.1, [Setting()], deadline=late)
        assert isinstance(found, Failed)
        assert "other processes came in the way" in found.reason

    def test_on_a_gpu_the_processors_are_no_matter(self) -> None:
        measurer = Measurer(Target("cuda", 2), Worker())
        measurer.worker.watch = Told(1)
        assert measurer.undisturbed(lambda alike: alike.target.threads) == (2, 2)


SECONDS = Timing((1.0,) * 4)


def test_a_model_that_was_timed_with_fewer_threads_has_to_gain_more() -> None:
    seen = Comparison(1.008, 1.006, 1.01, SECONDS, SECONDS, passes=8)
    assert timing_objection([seen], counted=False) == ""
    fewer = replace(seen, threads=1)
    assert "not measurably faster" in timing_objection([fewer], counted=False)
    assert timing_objection([fewer.scaled(1.01)], counted=False) == ""
    assert timed_with_fewer([seen], 2) == ()
    (warning,) = timed_with_fewer([seen, fewer], 2)
    assert "timed with 1 of 2 threads" in warning


def network(depth: int) -> bytes:
    """So many layers of equal work."""
    layers = "".join(f" x{n + 1} = MatMul(x{n}, x{n})" for n in range(depth))
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> '
        f"g (float[96, 96] x0) => (float[96, 96] x{depth}) {{{layers} }}"
    )
    return bytes(model.SerializeToString())


@pytest.mark.skipif(sys.platform != "linux", reason="others are not pinned to a core there")
def test_one_thread_is_timed_by_what_it_computes_whoever_shares_its_core() -> None:
    """Three times the work takes three times as long, though others take most of the core."""
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(2 * usable_cores())]
    try:
        with Measurer(Target("cpu", 1)) as measurer:
            settings = [Setting()]
            found = measurer.compare_at_each(network(12), network(4), 2.0, settings, passes=2)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert not isinstance(found, Failed)
    assert 2.0 < found[0].ratio < 4.0
