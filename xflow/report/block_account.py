"""Which blocks of a model the runtime has a kernel for, before and after it was rewritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xflow.blocks.find import OF_LAST_AXES, FoundBlock, find_blocks
from xflow.core.graph import Graph
from xflow.core.node import Node
from xflow.cost.estimate import Estimator
from xflow.cost.fusion import Kernel, count_readers
from xflow.onnx.imported import Imported
from xflow.onnx.opset import Ceiling, current_opset
from xflow.onnx.schema import accepts
from xflow.ops import operator, operators
from xflow.report.drawing import onnx_name
from xflow.report.report import NEIGHBOURS, Block, BlockForm
from xflow.rewriting.trace import Trace

_SPELLED = BlockForm("none")
TAKEN_APART = "its operators cost less than the one that computed it before"


def account_for_blocks(
    imported: Imported, graph: Graph, trace: Trace, estimator: Estimator, limit: Ceiling
) -> tuple[Block, ...]:
    """The blocks of a model that became `graph`, as `trace` tells, in order.

    The estimator knows what the runtime fuses; `limit` is how far the opset could be raised.
    """
    passed = {key: node.op_type for key, node in imported.opaque_nodes.items()}
    before = _Side(imported, imported.graph, estimator, passed)
    after = _Side(imported, graph, estimator, passed)
    pairs = _pair(before, after, trace)
    written = {
        imported.values[output].node: number
        for number, node in enumerate(imported.model.graph)
        for output in node.outputs
        if output in imported.values  # a mask of Dropout, which nobody reads, is not
    }
    blocks = []
    for found in before.found:
        mine, other = before.form(found), pairs.get(found.root)
        nodes = sorted(found.nodes, key=lambda node: written.get(node, 0))
        names = tuple(dict.fromkeys(onnx_name(imported, node) for node in nodes))
        theirs, reason = _SPELLED, ""
        if other is not None:
            theirs = after.form(other)
            if theirs == _SPELLED:
                was_one = mine != _SPELLED
                reason = TAKEN_APART if was_one else after.reason(other, limit)
        elif mine == _SPELLED:
            reason = "it was rewritten into something that does not look like one any more"
        else:  # a normalization that became part of weights, an activation of another one
            theirs = BlockForm("operator", NEIGHBOURS)
        recognised = theirs != _SPELLED
        blocks.append(Block(found.kind, found.name, names, mine, theirs, recognised, reason))
    return tuple(blocks)


@dataclass
class _Side:
    """The blocks of one graph, and the kernels that the runtime has for them."""

    imported: Imported
    graph: Graph
    estimator: Estimator
    passed_through: Mapping[str, str]
    found: Sequence[FoundBlock] = ()
    kernels: Mapping[Node, Kernel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found = find_blocks(self.graph, self.imported.constants, self.passed_through)
        chosen = self.estimator.fusions.chosen(
            self.graph, count_readers(self.graph), self.graph.outputs
        )
        self.kernels = {
            node: kernel for root, kernel in chosen.items() for node in (root, *kernel.inside)
        }

    def form(self, found: FoundBlock) -> BlockForm:
        """How the runtime computes a block."""
        if found.is_operator:
            return BlockForm("operator", found.name)
        kernel = self.kernels.get(found.root)
        if kernel is not None and all(self.kernels.get(node) is kernel for node in found.nodes):
            return BlockForm("fusion", kernel.name)
        return _SPELLED

    def reason(self, found: FoundBlock, limit: Ceiling) -> str:
        """Why nothing computes a block as a whole, as far as that is known."""
        if not found.name:
            return "it is a function of one tensor for which there is no operator"
        if found.products > 1:
            return f"its scores are the sum of {found.products} products"
        if found.name in OF_LAST_AXES and not found.is_over_last_axes:
            axes = ", ".join(map(str, found.axes))
            return f"it normalizes axes {axes}, and the operator the last ones"
        if all(op.name != found.name for op in operators()):
            return f"no rule speaks of {found.name}"
        op = operator(found.name)
        dtype = found.root.types[0].dtype
        newest = limit.opset or current_opset(self.imported.model)
        if newest is not None and op.since > newest:
            why = limit.obstacle and f": {limit.obstacle} cannot be raised"
            return f"{op.name} came with opset {op.since}, and the model's stays at {newest}{why}"
        if not accepts(op.op_type, op.domain, newest or op.since, {0: dtype}, [dtype]):
            return f"{op.name} takes no elements of type {dtype}"
        read = self._read_inside(found)
        if read:
            return f"others read what lies inside it, at {', '.join(read[:3])}"
        return "within the budget no rewrite led there from this spelling, or none that gained"

    def _read_inside(self, found: FoundBlock) -> list[str]:
        """The names of nodes inside a block whose outputs others read, or the model gives."""
        names = []
        for node in self.graph.nodes:
            if node not in found.nodes or node is found.root:
                continue
            values = node.outputs
            users = (user for value in values for user in self.graph.users.get(value, ()))
            outputs = any(value in self.graph.outputs for value in values)
            if outputs or any(user not in found.nodes for user in users):
                names.append(onnx_name(self.imported, node) or str(node.op))
        return names


def _pair(before: _Side, after: _Side, trace: Trace) -> dict[Node, FoundBlock]:
    """For the roots of blocks before the blocks that they have become.

    A block whose last operator is still there is the same one, and so is one that ends at another
    of its operators. Others are paired in order, among those of a kind in one set of rewrites that
    touch each other: rewrites keep the dataflow.
    """
    nodes = before.graph.nodes
    mine = {(found.kind, node): found for found in before.found for node in found.nodes}
    pairs: dict[Node, FoundBlock] = {}
    rest: dict[tuple[str, int], list[FoundBlock]] = defaultdict(list)
    for found in after.found:
        origin = trace.origin.get(found.root)
        same = None if origin is None else mine.get((found.kind, nodes[origin]))
        if same is not None:  # if several end in it, the last one
            pairs[same.root] = found
        else:
            touched = [trace.made[node] for node in found.nodes if node in trace.made]
            for number in touched[:1]:
                rest[found.kind, trace.root(number)].append(found)
    place = {node: number for number, node in enumerate(nodes)}
    for found in before.found:
        if found.root in pairs:
            continue
        numbers = (trace.replaced.get(place[node]) for node in found.nodes)
        for number in (number for number in numbers if number is not None):
            ways = rest.get((found.kind, trace.root(number)))
            if ways:
                pairs[found.root] = ways.pop(0)
                break
    return pairs
