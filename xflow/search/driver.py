"""The search over a whole graph: regions are solved, equal ones once, in passes with other cuts.

An estimate guides the search in each region; the cheapest forms that it finds are measured against
the original, and one of them replaces it only if it is faster by more than the noise.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xflow.analysis.observers import Observed
from xflow.analysis.on_codes import OnCodes, anew
from xflow.analysis.refinement import objection
from xflow.analysis.value_rewrites.basis import confirmed
from xflow.analysis.value_rewrites.least_float_masks import RAISED, raised
from xflow.blocks.find import find_larger, find_spelled_out, may_be_operators
from xflow.core.deadline import Deadline
from xflow.core.fold import ConstantLookup, Folder, no_constants
from xflow.core.graph import Graph, walk
from xflow.core.node import Node, Value
from xflow.core.progress import Progress
from xflow.core.rounding import limits
from xflow.core.sorts import FLOATS
from xflow.core.wording import counted
from xflow.cost import CostModel, Use
from xflow.rewriting.cancellation import hazard_of
from xflow.rewriting.folding import loses_numbers
from xflow.rewriting.numerics import Hazard
from xflow.rewriting.replacement import Replacement, apply_replacements, apply_round
from xflow.rewriting.replay import Surroundings, Unfounded, repeated
from xflow.rewriting.rule import Rule
from xflow.search.constants import Constants
from xflow.search.context import DEFAULTS, Context
from xflow.search.cutting import blocks_of, cut
from xflow.search.decision import Decider
from xflow.search.explorers import Exploration, Explorers
from xflow.search.processes import SearchProcesses
from xflow.search.region import Region
from xflow.search.solution_cache import Memory, Remembered, Solution
from xflow.search.states import State, cheapest
from xflow.search.unfilled import cut_unfilled
from xflow.search.ways import Ways

OVER = "the search ran out of its budget, and might find more with a larger one"
SLOW = (
    "the search ran out of time before it was through with the work of its budget: a machine that "
    "is faster or less busy, or a larger budget, may lead to another result"
)

STOPPED = "the search was stopped before its budget was spent, and might have found more"


@dataclass(frozen=True)
class SearchResult:
    """The graph that was found, its replacements, and remarks for the user."""

    graph: Graph
    replacements: tuple[Replacement, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def search(
    graph: Graph,
    rules: Sequence[Rule],
    cost: CostModel,
    *,
    deadline: Deadline,
    budget: float | None = None,
    work: float | None = None,
    origin: Graph | None = None,
    context: Context = DEFAULTS,
    constants: ConstantLookup = no_constants,
    outside: Observed = Observed.NOWHERE,
    processes: int | SearchProcesses = 1,
    progress: Progress | None = None,
    only_proved: bool = False,
) -> SearchResult:
    """The best form of `graph` that the rules lead to before `deadline`.

    Regions are explored in that many `processes` at once, or in those that are there already, if
    they have the same rules. Deterministic for a seed as far as `cost`
    is, unless the deadline cuts it short. What is found is remembered as what `budget` seconds lead
    to, which may be some more than there are until the deadline, and vary less (None: as many).
    Where nothing is measured, it ends with its work, see `Limits.work`, and passes share that out
    and not time, unless `work` says how much it may be at most: then each has its share of both.
    `progress` is told what is gained over `origin`, of which `graph` was made (None: over `graph`).
    `outside` is what is sensitive to the graph's outputs, where it is a part. With `only_proved`,
    all rewrites are applications of rules.
    """
    layout = None if cost.layouts is None else cost.layouts.target.layout
    budget = deadline.left if budget is None else budget
    known = Constants(constants, context.assumption, outside, context.policy)
    settings = (context, layout, cost.measures, cost.settings)
    memory, memory_of_waves = (
        Memory(cost.notebook, rules, budget, *settings, *what, constants=known, opset=context.opset)
        for what in ((), ("waves",))
    )
    with contextlib.ExitStack() as stack:
        if isinstance(processes, int):
            processes = stack.enter_context(SearchProcesses(rules, processes, context.policy))
        elif processes.rules != tuple(rules):
            processes = stack.enter_context(SearchProcesses(rules, processes.count, context.policy))
        job = _Search(
            Explorers(processes, known, cost, context),
            cost,
            memory,
            memory_of_waves,
            known,
            deadline=deadline,
            work=work,
            opset=context.opset,
            progress=progress,
            only_proved=only_proved,
        )
        return job.run(graph, origin or graph)


@dataclass(frozen=True)
class _Reached:
    """Where a search is: the graph, the replacements that led there, and what they gain."""

    graph: Graph
    replacements: tuple[Replacement, ...]
    gained: float


class _Search:
    """One search: its budget, and the solutions of regions so far."""

    def __init__(
        self,
        explorers: Explorers,
        cost: CostModel,
        memory: Memory,
        memory_of_waves: Memory,
        constants: Constants,
        *,
        deadline: Deadline,
        work: float | None,
        opset: int | None,
        progress: Progress | None,
        only_proved: bool,
    ) -> None:
        self.explorers = explorers
        self.cost = cost
        self.memory = memory
        self.memory_of_waves = memory_of_waves
        self.policy = constants.policy
        self.only_proved = only_proved
        self.opset = opset
        self.deadline = deadline
        self.decider = Decider(cost, self.policy, deadline)
        self.constants = constants
        self.progress = progress
        self.solved: dict[tuple[object, ...], Solution | None] = {}
        self.cuts: dict[tuple[object, ...], Region] = {}
        """The regions so far, where the estimate decides."""
        self.held: list[tuple[Region, Remembered]] | None = None
        """What may be kept of them, while it is open whether that leads to something better."""
        self.effort = 1
        self.by_time = cost.measures or work is not None
        """Whether a pass may only take its share of the time."""
        if work is None and not cost.measures:
            work = self.policy.work_per_s * _whole(deadline.left)
        self.work = work
        """The work that is left, where work and not time is shared out."""
        self.deepens = False
        """Whether regions that go short are searched again with more work."""
        self.starved: set[tuple[object, ...]] = set()
        """Regions for which the work did not suffice, or the time of a pass."""
        self.anew: set[tuple[object, ...]] = set()
        """Regions that are searched again with more work: what is kept of them is of less."""
        self.cut_short: set[tuple[object, ...]] = set()
        """Regions that time cut short in a search by work, or work of which there is more to come:
        what was found is not kept for later runs."""
        self.unfinished: set[tuple[object, ...]] = set()
        """Regions whose search was cut short; a further one starts from the form found."""
        self.timed: set[Node] = set()
        """Nodes of regions of which forms were measured, and of the forms that these have."""
        self.notes: list[str] = []
        self.replacements: list[Replacement] = []
        self.ranges = constants.ranges
        self.folder = Folder(constants.lookup)
        self.directions = explorers.directions
        self.gained = 0.0
        """The gain of all rewrites so far, in seconds or the unit of the cost."""
        self.ways = Ways(self.policy)
        self.kept: dict[frozenset[Node], Solution] = {}
        """Solutions that were seen to keep digits in the graph as it stands, by their nodes."""
        self.place: Surroundings | None = None
        self.been: set[tuple[object, ...]] = set()
        """The forms of the graph before each pass, see `_computed`."""
        self.whole = 0.0
        """The estimated cost of the graph before any rewrite."""

    def run(self, graph: Graph, origin: Graph) -> SearchResult:
        """Search pass after pass, cutting at other places each time, while that gains.

        After a pass over the whole graph come passes over the neighbourhood of its changes, for as
        long as there are any: an operator that moves through the graph crosses seams one by one.
        """
        if not self.explorers.index:
            return SearchResult(graph, (), ("there are no rules to apply",))
        if not self.only_proved:
            graph = self.as_known(graph)
        if self.progress is not None or self.cost.measures:
            self.whole = self.cost.estimate(origin)
            self.gained = self.whole - self.cost.estimate(graph)
        graph = self.search_waves(graph)
        if self.work is None:
            for effort in self.policy.efforts:
                self.effort = effort
                graph = self.search_again(graph, self.unfinished)
            over = self.over
        else:
            start = _Reached(graph, tuple(self.replacements), self.gained)
            whole, self.work = self.work, 0.0
            parts = self.policy.deepening if self.by_time else (1.0,)
            for number, share in enumerate(parts, 1):
                self.work += share * whole
                self.deepens = number < len(parts)
                graph = self.search_again(graph, self.starved)
            for _ in range(self.policy.rounds):
                if self.starved and not self.is_over:
                    graph = self.search_again(graph, self.starved)
            over = self.over
            graph = self.search_deeper(start, graph)
        if self.decider.timed and not self.replacements:
            forms = counted(self.decider.timed, "other form")
            self.notes.append(f"{forms} of its parts were timed, and none was faster for certain")
        if self.deadline.stopped:
            self.notes.append(STOPPED)
        elif over:
            self.notes.append(over)
        return SearchResult(
            graph, tuple(self.replacements), tuple(self.notes), tuple(self.warnings())
        )

    def warnings(self) -> Iterator[str]:
        """Problems with the stored solutions, in sentences."""
        refused = self.memory.refused + self.memory_of_waves.refused
        if refused:
            what = "solution" if refused == 1 else "solutions"
            yield (
                f"{refused} stored {what} of parts of the model did not follow from the rules, and "
                "did not count: the store of measurements is damaged, or somebody else writes to it"
            )

    def search_again(self, graph: Graph, keys: set[tuple[object, ...]]) -> Graph:
        """Pass after pass, in which these regions are new; the set is empty then."""
        for key in keys:
            self.solved.pop(key, None)
        if self.work is not None:
            self.anew |= keys
        keys.clear()
        return self.search_passes(graph)

    def search_passes(self, graph: Graph) -> Graph:
        """Pass after pass over the graph with one effort, while that gains."""
        idle = 0
        for number in range(self.policy.passes):
            if idle == 2 or self.is_over:
                break
            before = graph
            first = self.work is None and number % 2 == 0
            share = self.policy.first_share if first else self.policy.pass_share
            new, graph = self.search_pass(graph, number, None, share)
            idle = 0 if graph != before and new else idle + 1
            follow = number
            while graph != before and not self.is_over:
                near = _near(before, graph)
                before, follow = graph, follow + 1
                _, graph = self.search_pass(graph, follow, near, self.policy.near_share)
        return graph

    def search_deeper(self, start: _Reached, graph: Graph) -> Graph:
        """`graph`, or what more effort leads to from `start` where blocks are still spelled out.

        The way to an operator may be long, and longer still behind what gained a little before. So
        regions in which a block is left are searched once more as they were before any rewrite;
        what is known of the others is used again. Nothing of it is kept unless it is better.
        """
        if self.work is None or self.is_over:
            return graph
        if not may_be_operators(graph, self.constants.lookup, self.opset):
            return graph
        keys = [key for key in self.unfinished if self.is_left_spelled(key)]
        if not keys:
            return graph
        before = _Reached(graph, tuple(self.replacements), self.gained)
        self.replacements, self.gained = list(start.replacements), start.gained
        deadline = self.deadline
        if self.by_time:
            self.deadline = deadline.part(self.policy.deeper)
        self.work *= self.policy.deeper
        self.effort = self.policy.efforts[-1]
        self.held = []
        self.been.clear()
        for key in keys:
            self.solved.pop(key, None)
        graph = self.search_passes(start.graph)
        self.deadline, held, self.held = deadline, self.held, None
        if self.price(graph) < self.price(before.graph):
            for region, known in held:
                self.keep(region, known)
            return graph
        self.replacements, self.gained = list(before.replacements), before.gained
        return before.graph

    def price(self, graph: Graph) -> float:
        """The estimated cost of the whole graph, whose outputs are results of the model."""
        if self.cost.layouts is None:
            return self.cost.estimate(graph)
        return self.cost.layouts(graph, uses=[Use.RESULT] * len(graph.outputs))

    def is_left_spelled(self, key: tuple[object, ...]) -> bool:
        """Whether a block that may be one operator is none in a region and in its solution."""
        region, solution = self.cuts.get(key), self.solved.get(key)
        if region is None or self.is_over:
            return False
        forms = [region.graph, *([Graph(solution.outputs)] if solution else [])]
        constants = self.constants.of(region)
        return all(may_be_operators(form, constants, self.opset) for form in forms)

    def search_waves(self, graph: Graph) -> Graph:
        """`graph` with the waves that gain, which come first."""
        if self.cost.layouts is None:
            return graph
        regions = cut_unfilled(graph, self.constants, self.cost.layouts)
        solved: dict[tuple[object, ...], Solution | None] = {}
        until = self.deadline.part(self.policy.waves)
        for region in regions:
            if region.key not in solved:
                solved[region.key] = self.wave(graph, region, until)
        return self.rewrite(graph, regions, solved)

    def wave(self, graph: Graph, region: Region, until: Deadline) -> Solution | None:
        """The form that waves give a region of a graph, if any.

        They end at `until`, or with their work.
        """
        known = self.memory_of_waves.get(region, self.policy.efforts[-1])
        if known is not None:
            return known.solution
        if self.is_over:
            return None
        self.tell("wave", operators=len(region.nodes))
        work = math.inf if self.work is None else self.policy.waves * self.work
        found = self.explorers.waves(region, work, until if self.by_time else self.deadline)
        if self.work is not None:
            self.work -= found.work
        if len(found.states) > 1:
            runs = self.policy.measured_runs * len(found.states)
            wanted = max(runs * found.states[0].cost, self.policy.measure_s[1])
            seconds = min(wanted, self.policy.waves * self.deadline.left)
            states = found.states
            known = self.decide(self.surroundings(graph), region, states, seconds, worth=1.0)
            if not known.lasting:  # how much wider tensors take is rough: that is to be measured
                return None
        elif found.exhausted:
            known = Remembered(None, effort=self.policy.efforts[-1])
        if known is None:
            return None
        if found.exhausted and not self.deadline.stopped:
            self.memory_of_waves.put(region, replace(known, effort=self.policy.efforts[-1]))
        return known.solution

    def as_known(self, graph: Graph) -> Graph:
        """`graph` with rewrites by facts about its values, such as that a test is false."""
        known = confirmed(graph, self.ranges)
        found = [Replacement((old,), (new,), (name,), 0.0, fact=name) for old, new, name in known]
        made = self.apart(graph, found[::-1])
        self.replacements += made
        return apply_replacements(graph, made)

    def search_pass(
        self, graph: Graph, number: int, near: frozenset[Node] | None, share: float
    ) -> tuple[int, Graph]:
        """Search the regions that have a node of `near`, all if that is None.

        Returns how many of them were new, and the graph that they lead to. It takes at most that
        share of the time that remains.
        """
        regions = cut(graph, self.constants, number % 2 == 1, self.cost.layouts)
        if near is not None:
            regions = [region for region in regions if not near.isdisjoint(region.nodes)]
        if self.work is not None:
            self.cuts.update((region.key, region) for region in regions)
        new = self.solve(graph, regions, share, number)
        return new, self.rewrite(graph, regions, self.solved)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self.deadline.passed or (self.work is not None and self.work <= 0)

    @property
    def over(self) -> str:
        """What there is to say of a budget that is spent; nothing otherwise."""
        if not self.is_over:
            return ""
        return OVER if self.work is None or self.work <= 0 else SLOW

    def tell(self, phase: str, **details: object) -> None:
        """Report progress."""
        if self.progress is not None:
            left = f"{self.deadline.left:.0f} s"
            best = self.whole / (self.whole - self.gained) if self.whole > self.gained else 1.0
            self.progress(phase, {**details, "best": f"~{best:.3f}x", "left": left})

    def solve(self, graph: Graph, regions: Sequence[Region], share: float, pass_number: int) -> int:
        """Search and measure those regions of a graph that are new; return how many these are.

        It takes at most that share of what remains.
        """
        until = self.deadline.part(share)
        groups: dict[tuple[object, ...], list[Region]] = {}
        for region in regions:
            if region.key not in self.solved:
                groups.setdefault(region.key, []).append(region)
        recalled = 0
        for key, group in groups.items():
            known = None if key in self.anew else self.memory.get(group[0], self.effort)
            if known is not None:
                recalled += 1
                self.settle(group[0], known)
                self.timed.update(*(each.nodes for each in group))
        groups = {key: group for key, group in groups.items() if key not in self.solved}
        weights = {key: self.weight(group[0], len(group)) for key, group in groups.items()}
        searching = until.part(self.policy.searching)
        work = None if self.work is None else share * self.work
        keys = list(groups)
        end = searching if work is None else until if self.by_time else self.deadline
        spent = self.explore_blocks(graph, [group[0] for group in groups.values()], end, work)
        work = None if work is None else work - spent
        explored = self.explored({key: groups[key][0] for key in keys}, weights, end, work)
        forms: dict[object, list[State]] = {}
        for done, (key, result) in enumerate(explored):
            self.tell("search", **{"pass": pass_number + 1, "region": done + 1, "of": len(keys)})
            self.solved[key] = None
            (self.unfinished.discard if result.exhausted else self.unfinished.add)(key)
            if self.work is not None:
                self.work -= result.work
                is_short = result.late or (result.starved and (self.deepens or self.effort > 1))
                (self.cut_short.add if is_short else self.cut_short.discard)(key)
                if result.starved or (self.by_time and result.late):
                    self.starved.add(key)
            original = result.states[0]
            forms[key] = [s for s in result.states if self.is_hopeful(s, original)]
        found: list[tuple[float, Region, list[State]]] = []
        for key in filter(forms.__contains__, keys):  # not in the order in which they came
            region, (original, *others) = groups[key][0], forms[key]
            if others:
                gain = (original.cost - others[0].cost) * len(groups[key])
                found.append((gain, region, forms[key]))
            else:
                self.keep(region, self.remembered(region, None))
        found.sort(key=lambda item: -item[0])
        surroundings = self.surroundings(graph)
        promising = sum(hope > 0 for hope, *_ in found)
        for done, (hope, region, states) in enumerate(found):
            self.tell("measure", **{"pass": pass_number + 1, "region": done + 1, "of": len(found)})
            seconds = until.left / ((promising if hope > 0 else len(found)) - done)
            low, high = self.policy.measure_s
            if self.cost.measures and hope <= 0 and seconds < low:
                continue
            is_late = self.cost.measures and until.left < low <= self.deadline.left
            if is_late and hope < self.policy.worth * self.whole:
                self.unfinished.add(region.key)  # there may be time for it later
                continue
            # The form may gain what the estimate does not see.
            most = max(hope, self.policy.surprise * states[0].cost * len(groups[region.key]))
            worth = most / self.whole if self.whole > 0 else 1.0
            seconds = min(high, max(low, seconds))
            known = self.decide(surroundings, region, states, seconds, worth)
            if known.lasting:
                self.timed.update(*(each.nodes for each in groups[region.key]))
            elif self.deadline.stopped or not self.timed.isdisjoint(region.nodes):
                continue  # the estimate has no say where something was measured
            self.keep(region, known)
            self.settle(region, known)
        return len(groups) + recalled

    def explore_blocks(
        self,
        graph: Graph,
        regions: Sequence[Region],
        end: Deadline,
        work: float | None,
    ) -> float:
        """Explore the new blocks that regions of a graph spell out; return the work that it took.

        They take at most the policy's part of the time, or of the work. Of what is found only the
        ways count: the forms do not replace anything.
        """
        if not regions:
            return 0.0
        found = blocks_of(graph, regions, self.constants, self.cost.layouts, self.opset)
        blocks = self.ways.new_blocks(found)
        if not blocks:
            return 0.0
        part = self.policy.blocks
        results = self.explorers.explore(
            blocks,
            [self.weight(block, 1) for block in blocks],
            end.part(part) if self.by_time else end,
            work=None if work is None else part * work,
        )
        done = dict(results)
        for number in sorted(done):  # not in the order in which they came
            block, result = blocks[number], done[number]
            form = cheapest(result.states).graph
            spelled = find_spelled_out(form, self.constants.of(block), self.opset)
            self.ways.note_block(block, result, is_operator=not spelled)
        spent = float(sum(each.work for each in done.values()))
        if self.work is not None:
            self.work -= spent
        return spent

    def explored(
        self,
        regions: Mapping[tuple[object, ...], Region],
        weights: Mapping[tuple[object, ...], float],
        end: Deadline,
        work: float | None,
    ) -> Iterator[tuple[tuple[object, ...], Exploration]]:
        """The results of regions by their keys: first those that are not alike, then the others.

        Time and work are shared out by weights.
        """
        firsts = self.ways.unlike(regions, weights)
        others = [key for key in regions if key not in firsts]
        weights = {
            key: weight * (1.0 if key in firsts else self.policy.retraced)
            for key, weight in weights.items()
        }
        total = sum(weights.values())
        # Without any region the processes are waited for nevertheless: they read rules.
        for keys in (firsts, others) if others else (firsts,):
            part = sum(weights[key] for key in keys) / total if others and total else 1.0
            results = self.explorers.explore(
                [regions[key] for key in keys],
                [weights[key] for key in keys],
                end.part(part) if keys is firsts and others and self.by_time else end,
                work=None if work is None else part * work,
                effort=self.effort,
                ways=[self.ways.to(regions[key]) for key in keys],
                of_blocks=self.ways.of_blocks,
            )
            found: dict[int, Exploration] = {}
            for number, result in results:
                found[number] = result
                yield keys[number], result
            for number in sorted(found):  # not in the order in which they came
                self.ways.note(regions[keys[number]], found[number])

    def is_hopeful(self, state: State, original: State) -> bool:
        """Whether a form costs so little by the estimate that it may be the faster one."""
        policy = self.policy
        other = self.cost.measures and state.has_other_kernels(original)
        return state.cost < original.cost * (policy.kernels_hope if other else policy.hope)

    def keep(self, region: Region, known: Remembered) -> None:
        """Keep the entry of a region for later runs, unless its search was stopped or cut short."""
        if self.held is not None:
            self.held.append((region, known))
        elif not self.deadline.stopped and region.key not in self.cut_short:
            self.memory.put(region, known)

    def weight(self, region: Region, number: int) -> float:
        """The weight of a region, of which there are so many, in sharing out the budget.

        It is the root of the cost, since cheap regions can gain much, too, and larger where
        something is spelled out for which the runtime has kernels.
        """
        root = math.sqrt(self.cost.estimate(region.graph) * number)
        spelled = find_larger(region.graph, self.constants.of(region))
        return root * (self.policy.spelled if spelled else 1.0)

    def remembered(self, region: Region, solution: Solution | None) -> Remembered:
        """The entry of a region for the memory; an exhausted one holds for any effort."""
        final = region.key not in self.unfinished
        return Remembered(solution, final, self.policy.efforts[-1] if final else self.effort)

    def settle(self, region: Region, known: Remembered) -> None:
        """Take over the entry of a region."""
        solution = self.solved[region.key] = known.solution
        if known.effort < self.policy.efforts[-1]:
            self.unfinished.add(region.key)
        if solution is not None and known.final:
            # The next pass meets the new form.
            self.solved.setdefault((solution.outputs, *region.key[1:]), None)

    def decide(
        self,
        surroundings: Surroundings,
        region: Region,
        states: Sequence[State],
        seconds: float,
        worth: float,
    ) -> Remembered:
        """The form that a region should have, see `Decider`."""
        keeps = partial(self.keeps_digits, surroundings, region)
        found = self.decider.decide(region, states, seconds, worth, keeps)
        return replace(self.remembered(region, found.solution), lasting=not found.hurried)

    def surroundings(self, graph: Graph) -> Surroundings:
        """What counts for regions of a graph."""
        if self.place is None or self.place.graph is not graph:
            outside = self.constants.outside
            self.place = Surroundings(graph, self.ranges, outside, self.directions, self.folder)
            self.kept.clear()
        return self.place

    def keeps_digits(self, surroundings: Surroundings, region: Region, solution: Solution) -> bool:
        """Whether a solution loses no digits at the region's own constants, see `cancellation`.

        The search did not see their data. What adds them to round is not rewritten, either.
        """
        is_doubted = self.doubted(region, solution) or self.may_round(region)
        if not is_doubted or self.kept.get(region.nodes) is solution:
            return True
        if solution.trail is None:
            return False
        try:
            repeated(surroundings, region.outputs, region.inputs, solution.trail, "a solution")
        except Unfounded:
            return False
        self.kept[region.nodes] = solution
        return True

    def doubted(self, region: Region, solution: Solution) -> set[Hazard]:
        """How the rules of a solution may lose digits, less what its search has avoided."""
        rules = self.directions
        hazards = {hazard_of(rules[name]) for name in solution.rules if name in rules}
        return {each for each in hazards if each and not region.careful.includes(each)}

    def may_round(self, region: Region) -> bool:
        """Whether sums of a region may round to integers, as large constants are added.

        Those that are seen in the search alone are known there. Others may become large as they are
        multiplied.
        """
        for value in region.inputs:
            if value.is_constant and value.type.dtype in FLOATS:
                known = self.ranges.of(value)
                if max(-known.low, known.high) >= 2.0 ** (limits(value.type.dtype).nmant // 2):
                    return True
        return False

    def avoid(self, region: Region, solution: Solution) -> None:
        """Search a region anew without such rules as those by which a solution loses digits."""
        others = self.doubted(region, solution) - {Hazard.WEIGHTS}
        avoided = Hazard.CANCELLATION if others else Hazard.WEIGHTS
        self.constants.careful.update(dict.fromkeys(region.nodes, avoided))

    def within_range(self, graph: Graph, made: list[Replacement]) -> list[Replacement]:
        """Those replacements that lead to no more products whose sums the runtime cuts off.

        In a region, what lies outside is not known. Another one may have to be rewritten first.
        """
        layouts = self.cost.layouts
        if layouts is None or not made:
            return made
        most, cut_off = layouts.cut_off(graph), layouts.cut_off
        return _together(made, lambda items: cut_off(apply_replacements(graph, items)) <= most)

    def apart(self, graph: Graph, made: list[Replacement]) -> list[Replacement]:
        """Those replacements behind which the runtime computes nothing more on codes.

        None does by itself, in its region; two that stand next to each other may.
        """

        def are_apart(items: Sequence[Replacement]) -> bool:
            moved: dict[Value, Value] = {}
            after = OnCodes(apply_round(graph, items, moved), self.ranges)
            return not anew(self.constants.on_codes(graph), after, moved)

        return _together(made, are_apart) if made else made

    def rewrite(
        self,
        graph: Graph,
        regions: Sequence[Region],
        solved: Mapping[tuple[object, ...], Solution | None],
    ) -> Graph:
        """Put the solutions in that are known for regions' keys, from the last one to the first.

        In this order each replacement is about values that the others have not changed.
        """
        made = []
        surroundings = self.surroundings(graph)
        for region in reversed(regions):
            solution = solved.get(region.key)
            if solution is None:
                continue
            if not self.keeps_digits(surroundings, region, solution):
                self.avoid(region, solution)
                continue
            outputs = raised(solution.outputs, region.graph, region.own, self.ranges)
            fact = RAISED if outputs != solution.outputs else ""  # not by the rules alone
            if fact and self.only_proved:
                continue
            names = (*solution.rules, fact) if fact else solution.rules
            new = shown = region.instantiate(outputs)
            if fact:
                whole = raised(solution.outputs, region.graph, region.own, self.ranges, wholly=True)
                shown = region.instantiate(whole)
                if surroundings.checks.raised_masks(region.instantiate(solution.outputs), new):
                    continue
            if objection(region.outputs, shown, set(region.inputs), self.ranges):
                continue  # each step was admitted, but the whole is not shown to be
            if loses_numbers(region.outputs, new, region.inputs, self.folder):
                self.constants.careful.update(dict.fromkeys(region.nodes, Hazard.WEIGHTS))
                continue
            origin = (region.inputs, solution.trail, fact, solution.estimated)
            made.append(Replacement(region.outputs, new, names, solution.gain, *origin))
        made = self.apart(graph, self.within_range(graph, made))
        if not made:
            return graph
        after = apply_replacements(graph, made)
        self.been.add(_computed(graph))
        if _computed(after) in self.been:
            return graph  # faster by one cut and slower by another: this would never end
        for item in made:
            if not item.estimated and item.gain:
                self.timed.update(walk(item.after, item.inputs))
        self.replacements += made
        self.gained += sum(item.gain for item in made)
        return after


def _together(
    made: list[Replacement], is_allowed: Callable[[Sequence[Replacement]], bool]
) -> list[Replacement]:
    """All replacements if these are allowed together, or else each that is beside those kept."""
    if is_allowed(made):
        return made
    kept: list[Replacement] = []
    for item in made:
        if is_allowed([*kept, item]):
            kept.append(item)
    return kept


def _whole(seconds: float) -> float:
    """Seconds that are known up to the time that passes meanwhile, as what they were."""
    return math.ceil(seconds) if math.isfinite(seconds) else seconds


def _near(before: Graph, after: Graph) -> frozenset[Node]:
    """The nodes of `after` where it differs from `before`, and those that they read.

    After a difference all nodes are new objects, so nodes are compared by their operators and those
    of the nodes that they read.
    """
    known = {_surroundings(node) for node in before.nodes}
    new = {node for node in after.nodes if _surroundings(node) not in known}
    return frozenset(new | {value.node for node in new for value in node.inputs})


def _surroundings(node: Node) -> object:
    return _doing(node), tuple((_doing(value.node), value.index) for value in node.inputs)


def _computed(graph: Graph) -> tuple[object, ...]:
    """The operators of a graph that run each time, with their inputs, however weights are made."""
    nodes = [node for node in graph.nodes if not node.constant]
    numbers = {node: number for number, node in enumerate(nodes)}
    return tuple(
        (_doing(node), tuple((numbers.get(value.node), value.index) for value in node.inputs))
        for node in nodes
    )


def _doing(node: Node) -> object:
    return node.kind, node.types, node.codes
