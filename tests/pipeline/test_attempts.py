"""The search of a run that measures: the estimate decides first, and a measurement goes on."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphs import call, tensor

from xflow.core.deadline import Deadline
from xflow.core.graph import Graph
from xflow.cost.estimate import Estimator
from xflow.pipeline.attempts import ESTIMATED, ESTIMATED_S, estimated_then_measured
from xflow.rewriting.replacement import Replacement, apply_replacements
from xflow.search.driver import OVER, SLOW, STOPPED, SearchResult

X = tensor("x", 4)
BEFORE = Graph((call("Relu", call("Neg", X)),))
BETWEEN = Graph((call("Relu", call("Abs", X)),))
AFTER = Graph((call("Exp", call("Abs", X)),))


class Measured:
    """What a measurement leaves to the estimate: how it estimates, and where it keeps notes."""

    measures = True
    layouts = Estimator()
    notebook = None
    settings = ("settings",)


@dataclass
class Searches:
    """A search that finds something by the estimate, and something else by measuring."""

    notes: Sequence[str] = ()
    asked: list[tuple[Graph, Any, Deadline]] = field(default_factory=list)

    def __call__(
        self,
        graph: Graph,
        *,
        cost: Any,
        deadline: Deadline,
        work: float | None = None,
        origin: Graph | None = None,
    ) -> SearchResult:
        self.asked.append((graph, cost, deadline))
        assert (work is None) is cost.measures
        assert origin == (BEFORE if cost.measures else None)
        new = AFTER if cost.measures else BETWEEN
        made = Replacement(graph.outputs, new.outputs, ("rule",), 1.0, estimated=not cost.measures)
        return SearchResult(new, (made,), tuple(self.notes), ("a warning",))

    def found(self, seconds: float, stopped: bool = False) -> SearchResult:
        deadline = Deadline.after(seconds, lambda: stopped)
        return estimated_then_measured(BEFORE, self, Measured(), deadline)  # type: ignore[arg-type]


def test_a_search_that_measures_goes_on_where_the_estimate_came_to() -> None:
    searches = Searches()
    found = searches.found(100.0)
    (first, by_estimate, until), (second, measured, end) = searches.asked
    assert (first, second, found.graph) == (BEFORE, BETWEEN, AFTER)
    assert (by_estimate.measures, measured.measures) == (False, True)
    assert by_estimate.layouts is Measured.layouts
    assert Measured.settings in by_estimate.settings
    assert abs(end.moment - until.moment - (1 - ESTIMATED) * 100.0) < 1.0
    assert apply_replacements(BEFORE, found.replacements) == AFTER
    assert [item.estimated for item in found.replacements] == [True, False]
    assert found.warnings == ("a warning",)


def test_a_short_search_belongs_to_the_estimate() -> None:
    searches = Searches()
    searches.found(ESTIMATED_S / 2)
    (_, _, until), (_, _, end) = searches.asked
    assert until.moment == end.moment


def test_where_the_time_is_over_nothing_is_measured_and_it_is_said() -> None:
    searches = Searches(notes=(SLOW,))
    found = searches.found(-1.0)
    assert len(searches.asked) == 1
    assert found.graph == BETWEEN
    assert found.notes == (OVER,)


def test_a_search_that_was_stopped_measures_nothing_more() -> None:
    searches = Searches(notes=(STOPPED,))
    found = searches.found(100.0, stopped=True)
    assert len(searches.asked) == 1
    assert found.notes == (STOPPED,)
