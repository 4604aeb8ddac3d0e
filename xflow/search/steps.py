"""Steps: applications of rules at the nodes of a graph, computed once for each node.

An application of a rule with a single output depends only on the graph below the node, and nodes
are shared by all graphs that contain them, so it is cached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from xflow.analysis.observers import Observed
from xflow.analysis.on_codes import WHOLE, Border
from xflow.analysis.ranges import Ranges
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.fold import ConstantLookup, Folder, is_soon_folded
from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, Opaque, Value, with_inputs
from xflow.core.registry import Operator
from xflow.core.size import UNKNOWN_SIZE, Size, product, with_all
from xflow.rewriting.admission import Places
from xflow.rewriting.cancellation import loses_digits, rounded_leaves
from xflow.rewriting.folding import folded
from xflow.rewriting.index import Entry, RuleIndex, below, operators_of
from xflow.rewriting.instance import Instance
from xflow.rewriting.match import Match, NoMatch, find_matches
from xflow.rewriting.numerics import EVERYWHERE, Hazard
from xflow.rewriting.rewrite import replacement

LIGHTER = 0.9
"""A step whose result takes at most this part of the work counts as one that lightens it."""


@dataclass(frozen=True)
class Step:
    """An application of a rule: values of a graph, and those that replace them."""

    rule: str
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    match: Match
    """Where it matches, and with which sizes."""
    rank: int
    """The rank at which the rule is applied."""
    near: frozenset[Node]
    """The nodes that match, and those that the rule's inputs come from."""
    made: tuple[Node, ...]
    """The nodes that the rule adds."""
    expands: bool = False
    """Whether it replaces one elementwise operator by several."""
    renames: bool = False
    """Whether it renames operators, see `Entry`, or all nodes that it adds depend on constants
    alone: ``x - c`` for ``x + (-c)``."""
    shrinks: bool = False
    """Whether it leaves fewer operators that depend on inputs."""
    lightens: bool = False
    """Whether it leaves less to compute and to move, as where unused rows are dropped before a
    product and no longer after it."""
    fills: bool = False
    """Whether it adds channels to fill blocks, which pays only in their readers."""
    moves: int = 0
    """Whether and which way it moves others past any elementwise operator, see `Entry`."""
    instance: Instance | None = field(default=None, repr=False, compare=False)
    """The rule at that rank."""
    cancels: Hazard = Hazard.NONE
    """Whether, and where, it may lose digits, see `xflow.rewriting.cancellation`."""
    forbidden: Observed = Observed.NOWHERE
    """How the values that it replaces must not be observed."""

    @cached_property
    def brought(self) -> frozenset[object]:
        """The kinds of operators that it adds and that were not there before."""
        return _kinds(self.made) - _kinds(self.match.nodes)

    def is_like(self, other: Step) -> bool:
        """Whether both do the same, or bring in the same kind of operator."""
        same = self.rule == other.rule or self.after == other.after
        return same or not self.brought.isdisjoint(other.brought)


@dataclass(eq=False, slots=True)
class Candidate:
    """A step that may not be allowed where it is: see `Steps.admitted`."""

    step: Step
    is_judged: bool = False
    admitted: Step | None = None
    """The step, if the conditions on values hold, with the observations that it forbids."""


def _kinds(nodes: Iterable[Node]) -> frozenset[object]:
    """The operators of nodes, and which of their inputs are constants, by which kernels differ."""
    return frozenset(
        (node.op, *(value.is_constant for value in node.inputs))
        for node in nodes
        if not node.constant and isinstance(node.op, Operator)
    )


class View:
    """The part of a graph that a left side of at most two operators in depth sees at a node.

    It has the node, the operators that it reads, and of their inputs only the types and which are
    equal; constants are seen as a whole. Nodes with the same `key` offer the same steps up to the
    values at the edge: where a rewrite changed something further down, nothing has to be matched
    again.

    Not if it is `tangled`: a node at the edge is computed from others in the view. Then a rule may
    add a node that equals it by accident, and at another node with the key it would not.
    """

    __slots__ = ("key", "nodes", "tangled")

    def __init__(self, node: Node) -> None:
        numbers: dict[Node, int] = {node: 0}
        key: list[object] = [node.kind, node.types, len(node.inputs)]
        shown: set[Node] = set()
        for value in node.inputs:
            inner = value.node
            if value.is_constant:
                key.append(value)
                continue
            key.append((numbers.setdefault(inner, len(numbers)), value.index))
            if inner in shown:
                continue
            shown.add(inner)
            if not isinstance(inner.op, Operator):
                key.append(inner.types)
                continue
            key += (inner.kind, inner.types, len(inner.inputs))
            for source in inner.inputs:
                if source.is_constant:
                    key.append(source)
                else:
                    number = numbers.setdefault(source.node, len(numbers))
                    key.append((number, source.index, source.type))
        self.key = tuple(key)
        self.nodes = tuple(numbers)
        edge = [each for each in self.nodes[1:] if each not in shown and each.inputs]
        self.tangled = any(_is_made_of(each, numbers) for each in edge)

    def moved(self, steps: Iterable[Step], other: View) -> tuple[Step, ...]:
        """The steps of another node with the same key, moved to this node."""
        new = dict(zip(other.nodes, self.nodes, strict=True))
        return tuple([_moved(step, dict(new)) for step in steps])


def _is_made_of(node: Node, others: Container[Node]) -> bool:
    """Whether a node is computed from `others`, itself aside, and constants alone."""
    stack = [value.node for value in node.inputs]
    done: set[Node] = set()
    while stack:
        inner = stack.pop()
        if inner.constant or inner in others or inner in done:
            continue
        if not isinstance(inner.op, Operator):
            return False
        done.add(inner)
        stack += [value.node for value in inner.inputs]
    return True


class _Suiting(NamedTuple):
    """The rules whose operators are there, at nodes of one operator that read the same ones."""

    near: list[Entry]
    """Those of a single output of which a `View` shows the whole left side."""
    deep: list[Entry]
    """The others of a single output."""
    several: list[Entry]
    """Those of several outputs."""


class _Seen(NamedTuple):
    """The results for the first node with a view's key."""

    view: View
    steps: tuple[Step, ...]
    """Those of rules that see no further."""


def _moved(step: Step, new: dict[Node, Node]) -> Step:
    """`step` where each node of `new` stands for another with the same types; `new` is filled."""

    def move(value: Value) -> Value:
        node = new.get(value.node)
        return value if node is None else node.outputs[value.index]

    def move_all(nodes: Iterable[Node]) -> Iterator[Node]:
        return (new.get(node, node) for node in nodes)

    match = step.match
    made = []
    for node in step.made:
        if node not in new:
            new[node] = with_inputs(node, tuple([move(value) for value in node.inputs]))
        made.append(new[node])
    return Step(
        step.rule,
        tuple([move(value) for value in step.before]),
        tuple([move(value) for value in step.after]),
        Match(
            tuple([move(value) for value in match.roots]),
            {name: move(value) for name, value in match.bindings.items()},
            match.sizes,
            match.reals,
            frozenset(move_all(match.nodes)),
            match.dtype,
            match.operators,
        ),
        step.rank,
        frozenset(move_all(step.near)),
        tuple(made),
        step.expands,
        step.renames,
        step.shrinks,
        step.lightens,
        step.fills,
        step.moves,
        step.instance,
        step.cancels,
    )


class Steps:
    """The steps in graphs over the same leaves. `constants` serves these leaves.

    `block` is how many channels the target's layout has in a block, if it has one: a rule may leave
    open by how much it pads, and then pads to whole blocks. `outside` says how the outputs of the
    graphs are observed, where they are parts of another, and `border` what there is of codes
    around them; leaves hold the facts about themselves.
    `careful` leaves out steps that may lose digits, or fold constants that are too small for their
    type, where the data of constants is not known.
    """

    def __init__(
        self,
        rules: RuleIndex,
        constants: ConstantLookup,
        block: int | None = None,
        *,
        outside: Sequence[Observed] = (),
        border: Border = WHOLE,
        assumption: Assumption = DEFAULT,
        careful: Hazard = Hazard.NONE,
    ) -> None:
        self.rules = rules
        self.constants = constants
        self.block = block
        self.places = Places(Ranges(constants, assumption), outside, border)
        self._normwise = assumption >= Assumption.NORMWISE
        self.careful = careful
        self._folder = Folder(constants)
        self._losses: dict[object, bool] = {}
        self._of: dict[Node, tuple[Candidate, ...]] = {}
        self._of_one: dict[tuple[str, Node], tuple[Candidate, ...]] = {}
        self._named: dict[tuple[Operator, int], dict[str, tuple[list[Entry], list[Entry]]]] = {}
        self._suiting: dict[object, _Suiting] = {}
        self._amounts: dict[Node, Size] = {}
        self._seen: dict[object, _Seen] = {}
        self._numbers: dict[object, int] = {}
        self._names: dict[Node, int] = {}
        self._weights: dict[Node, frozenset[Node]] = {}

    def of(self, graph: Graph) -> Iterator[Step]:
        """All steps in `graph`, outside of constant expressions."""
        return self._all_admitted(self.candidates(graph), graph)

    def at(
        self, node: Node, graph: Graph, test: Callable[[Step], bool] = lambda step: True
    ) -> Iterator[Step]:
        """The steps by rules of a single output at one node of `graph`, of those that pass."""
        wanted = (each for each in self.candidates_at(node, graph) if test(each.step))
        return self._all_admitted(wanted, graph)

    def _all_admitted(self, candidates: Iterable[Candidate], graph: Graph) -> Iterator[Step]:
        found = (self.admitted(each, graph) for each in candidates)
        return (step for step in found if step is not None)

    def candidates(self, graph: Graph) -> Iterator[Candidate]:
        """All steps in `graph`, outside of constant expressions, before it is asked if they may be.

        To ask takes longer than to find them, so that whoever wants few of them asks last.
        """
        computed = [node for node in graph.nodes if not node.constant]
        present: Counter[object] = Counter(node.op for node in computed)
        for node in computed:
            yield from self.candidates_at(node, graph)
            yield from self._several(node, graph, present)

    def candidates_from(self, node: Node, graph: Graph) -> Iterator[Candidate]:
        """Those at one node of `graph`, with those by rules of several outputs of this node."""
        yield from self.candidates_at(node, graph)
        if len(node.outputs) > 1:
            yield from self._several(node, graph, Counter([node.op]))

    def candidates_by(self, rule: str, graph: Graph) -> Iterator[Candidate]:
        """Those of `candidates` that are by one rule, in the same order; no others are looked for.

        For whoever asks again after each step: all that is behind it consists of new nodes.
        """
        computed = [node for node in graph.nodes if not node.constant]
        present: Counter[object] = Counter(node.op for node in computed)
        for node in computed:
            if isinstance(node.op, Operator):
                single, several = self._entries_of(rule, node.op, len(node.types[0].shape))
                if single:
                    yield from self._candidates_by(rule, node, graph, single)
                if several:
                    suiting = [each for each in several if _suits_at(each, node)]
                    yield from map(Candidate, self._matches(node, graph, suiting, present))

    def _candidates_by(
        self, rule: str, node: Node, graph: Graph, entries: Sequence[Entry]
    ) -> Sequence[Candidate]:
        """Those at one node by the entries of one rule of a single output."""
        known = self._of.get(node)
        if known is not None:
            return [each for each in known if each.step.rule == rule]
        found = self._of_one.get((rule, node))
        if found is None:
            suiting = [each for each in entries if _suits_at(each, node)]
            made = self._matches(node, graph, suiting)
            found = self._of_one[rule, node] = tuple(map(Candidate, made))
        return found

    def _entries_of(
        self, rule: str, op: Operator, rank: int
    ) -> tuple[Sequence[Entry], Sequence[Entry]]:
        """The entries of one rule with an operator at the root: of a single output, of several."""
        place = op, rank
        if place not in self._named:
            by_name: dict[str, tuple[list[Entry], list[Entry]]] = {}
            single = sorted(self.rules.single(op, rank), key=lambda each: each.deep)
            for which, entries in enumerate((single, self.rules.several(op, rank))):
                for entry in entries:
                    by_name.setdefault(entry.name, ([], []))[which].append(entry)
            self._named[place] = by_name
        return self._named[place].get(rule, ((), ()))

    def _several(self, node: Node, graph: Graph, present: Counter[object]) -> Iterator[Candidate]:
        """Those by rules of several outputs, the first of which `node` gives."""
        if isinstance(node.op, Operator):
            entries = self._suiting_at(node, node.op).several
            yield from map(Candidate, self._matches(node, graph, entries, present))

    def candidates_at(self, node: Node, graph: Graph) -> tuple[Candidate, ...]:
        """Those by rules of a single output at one node of `graph`."""
        if not isinstance(node.op, Operator):
            return ()
        found = self._of.get(node)
        if found is None:
            view = View(node)
            seen = None if view.tangled else self._seen.get(view.key)
            suiting = self._suiting_at(node, node.op)
            if seen is None:
                near = tuple(self._matches(node, graph, suiting.near))
                if not view.tangled:
                    self._seen[view.key] = _Seen(view, near)
            else:
                near = view.moved(seen.steps, seen.view)
            made = (*near, *self._matches(node, graph, suiting.deep))
            found = self._of[node] = tuple(map(Candidate, made))
        return found

    def _suiting_at(self, node: Node, op: Operator) -> _Suiting:
        """The rules whose operators are there at a node of this operator."""
        below, read, deeper = _operators_below(node)
        place = op, len(node.types[0].shape), below, read, deeper
        found = self._suiting.get(place)
        if found is None:
            found = self._suiting[place] = _Suiting([], [], [])
            for entry in self.rules.single(*place[:2]):
                if entry.needs[0] <= (below if entry.deep else read) and entry.needs[1] <= deeper:
                    (found.deep if entry.deep else found.near).append(entry)
            for entry in self.rules.several(*place[:2]):
                if entry.needs[0] <= read and entry.needs[1] <= deeper:
                    found.several.append(entry)
        return found

    def admitted(self, candidate: Candidate, graph: Graph) -> Step | None:
        """The step, if the conditions on values hold and the place is not observed as it forbids.

        Only the latter depends on the graph: the former are looked at once for each candidate.
        """
        if not candidate.is_judged:
            candidate.is_judged = True
            candidate.admitted = self._judged(candidate.step)
        step = candidate.admitted
        return step if step is not None and self._suits(step, graph) else None

    def _judged(self, step: Step) -> Step | None:
        """The step with the observations that it forbids, if the conditions on values hold."""
        assert step.instance is not None
        told = self.places.forbidden(step.instance, step.match, step.after)
        if isinstance(told, str) or (step.cancels and self._loses(step)):
            return None
        if self._loses_numbers(step):
            return None
        return replace(step, forbidden=told) if told else step

    def _loses_numbers(self, step: Step) -> bool:
        """Whether a constant that a step folds is no number of its type, see `folding`."""
        if not any(node.constant and node.inputs for node in step.made):
            return False
        return any(
            self._losing(value)
            for value in folded(step.before, step.after, [*step.match.bindings.values()])
        )

    def _losing(self, value: Value) -> bool:
        lost = self._folder.loses_numbers(value) if is_soon_folded(value) else None
        return self.careful is Hazard.WEIGHTS if lost is None else lost

    def is_unseen(self, step: Step) -> bool:
        """Whether a step reads constants whose data is not seen here."""
        read = (value for value in step.match.bindings.values() if value.is_constant)
        return any(self.constants(value) is None for value in read)

    def _loses(self, step: Step, *, near: bool = False) -> bool:
        """Whether a step that may lose digits does so with the data of constants.

        With `near`, where inputs are all but equal to constants.
        """
        match, instance = step.match, step.instance
        assert instance is not None
        if self.is_unseen(step):
            return self.careful.includes(step.cancels)
        key = (
            id(instance),
            near,
            match.dtype,
            rounded_leaves(match, self.constants),
            tuple(sorted(match.reals.items())),
            tuple((name, str(size)) for name, size in sorted(match.sizes.items())),
            tuple((name, v if v.is_constant else v.type) for name, v in match.bindings.items()),
        )
        if key not in self._losses:
            lost = loses_digits(instance, match, self.constants, step.cancels, near=near)
            self._losses[key] = bool(lost)
        return self._losses[key]

    def _suits(self, step: Step, graph: Graph) -> bool:
        """Whether the place of a step is not observed as it forbids."""
        places = self.places
        if step.forbidden and not places.allows(step.forbidden, step.before, graph):
            return False
        if places.brings_together(step.match, step.after, graph):
            return False
        if not step.cancels or places.allows(Observed.RELATIVE, step.before, graph):
            return True
        return not self._loses(step, near=True)

    def key(self, graph: Graph) -> object:
        """A key of graphs that is equal for those that the search does not distinguish.

        These are equal up to the order of commutative arguments, and up to how weights are computed
        from the same weights.
        """
        return tuple((self.name(value.node), value.index) for value in graph.outputs)

    def name(self, node: Node) -> int:
        """A number of nodes that is equal for those not distinguished, see `key`."""
        stack = [node]
        while node not in self._names:
            inner = stack[-1]
            unknown = [v.node for v in inner.inputs if v.node not in self._names]
            if unknown:
                stack.extend(unknown)
                continue
            self._names[inner] = self._numbers.setdefault(self._describe(inner), len(self._numbers))
            stack.pop()
        return self._names[node]

    def _describe(self, node: Node) -> object:
        if isinstance(node.op, Leaf | Opaque):
            return node
        if node.constant and node.inputs:
            return self._weights_of(node), node.types
        inputs = [(self._names[value.node], value.index) for value in node.inputs]
        if node.op.commutative:
            inputs.sort()
        return node.kind, tuple(inputs), node.types

    def _weights_of(self, node: Node) -> frozenset[Node]:
        """The leaves that a constant is computed from."""
        if node not in self._weights:
            found = (self._weights_of(value.node) for value in node.inputs)
            own = {node} if isinstance(node.op, Leaf) else set()
            self._weights[node] = frozenset(own).union(*found)
        return self._weights[node]

    def _matches(
        self,
        node: Node,
        graph: Graph,
        entries: Iterable[Entry],
        present: Counter[object] | None = None,
    ) -> Iterator[Step]:
        """The applications of rules at `node`, but for rules with a root not `present`."""
        for entry in entries:
            instance = entry.instance
            refused = entry.refused_normwise if self._normwise else entry.refused
            if refused >= EVERYWHERE:
                continue
            if present is not None and any(
                present[op] < count for op, count in entry.roots.items()
            ):
                continue
            index = instance.lhs[0].index
            if index >= len(node.outputs):
                continue
            at = [node.outputs[index]]
            for match in find_matches(instance, graph, self.constants, at, self.block):
                if any(value.is_constant for value in match.roots):
                    continue
                if refused and any(value.type.dtype in refused for value in _touched(match)):
                    continue
                after = replacement(instance, match)
                if isinstance(after, NoMatch) or _makes_empty(after.nodes):
                    continue
                more = _computed(set(after.nodes)) - _computed(match.nodes)
                if entry.grows and more > 0 and not entry.expands:
                    continue
                yield Step(
                    entry.name,
                    match.roots,
                    after.values,
                    match,
                    instance.rank,
                    _near(match),
                    after.nodes,
                    expands=entry.grows and more > 0,
                    renames=entry.renames or (entry.grows and more == 0),
                    shrinks=more < 0,
                    lightens=self._work(after.nodes) < LIGHTER * self._work(match.nodes),
                    fills=bool(instance.free_symbols),
                    moves=entry.moves,
                    instance=instance,
                    cancels=entry.cancels,
                )

    def _work(self, nodes: Iterable[Node]) -> int:
        """What nodes compute and move at `UNKNOWN_SIZE`; each is looked at once."""
        total: Size = 0
        for node in nodes:
            amount = self._amounts.get(node)
            if amount is None:
                amount = self._amounts[node] = _amount(node)
            total += amount
        return with_all(total, UNKNOWN_SIZE)


def replaced(graph: Graph, step: Step) -> tuple[Graph, dict[Node, Node]]:
    """`graph` with the values replaced that a step replaces, and the new nodes by those before."""
    new = dict(zip(step.before, step.after, strict=True))
    changed = new.keys()
    moved: dict[Node, Node] = {}
    for node in graph.nodes:
        if changed.isdisjoint(node.inputs):
            continue
        inputs = tuple([new.get(value, value) for value in node.inputs])
        made = moved[node] = with_inputs(node, inputs)
        for old, output in zip(node.outputs, made.outputs, strict=True):
            new.setdefault(old, output)
    return Graph(tuple(new.get(value, value) for value in graph.outputs)), moved


def _makes_empty(nodes: Iterable[Node]) -> bool:
    """Whether a tensor without elements is among the results, which the runtime often refuses."""
    return any(size == 0 for node in nodes for kind in node.types for size in kind.shape)


def _computed(nodes: Iterable[Node]) -> int:
    """How many nodes do not depend on constants alone."""
    return sum(not node.constant for node in nodes)


def _amount(node: Node) -> Size:
    """The operations of a node and the elements it moves; 0 if it depends on constants alone."""
    if not isinstance(node.op, Operator) or node.constant:
        return 0
    read = [value.shape for value in node.inputs]
    given = [kind.shape for kind in node.types]
    moved = sum((product(shape) for shape in (*read, *given)), start=0)
    return node.op.flops(read, node.attributes, given) + moved


def _suits_at(entry: Entry, node: Node) -> bool:
    """Whether the operators of a rule's left side are there at a node."""
    _, read, deeper = _operators_below(node)
    return entry.needs[0] <= read and entry.needs[1] <= deeper


def _operators_below(
    node: Node,
) -> tuple[frozenset[Operator], frozenset[Operator], frozenset[Operator]]:
    """The operators that a node reads, without those of constants and with, and what they read."""
    sources = [value.node for value in node.inputs]
    deeper = [value.node for source in sources for value in source.inputs]
    return operators_of(below([node])), operators_of(sources), operators_of(deeper)


def _touched(match: Match) -> tuple[Value, ...]:
    """The values that the match reads and gives."""
    return (*match.roots, *match.bindings.values())


def _near(match: Match) -> frozenset[Node]:
    sources = (value.node for value in match.bindings.values())
    return match.nodes | {node for node in sources if not node.constant}
