"""Estimates the time of a graph: a roofline model with the fusions and layouts of ONNX Runtime.

An operator takes the larger of its arithmetic at the peak of its class and its traffic at the
memory's bandwidth, and an overhead for the call. What the runtime fuses into the operator before
it is free; a pattern that it fuses into a kernel costs what that kernel does; what depends on
constants alone is computed once and free. Images that go from an operator in the runtime's own
layout to one that is not, or back, are converted, and transposed on the way. Where the target has
`learned` from measurements, each kernel's seconds are corrected by that. The estimate only has to
rank graphs: what is kept, a measurement decides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from statistics import fmean

from xflow.core.graph import Graph
from xflow.core.node import Leaf, Node, TensorType, Value
from xflow.core.registry import Operator
from xflow.core.size import Size, product, substitute, with_all
from xflow.cost import Notebook, Use
from xflow.cost.fusion import Fusions, Kernel, count_readers, operator_name
from xflow.cost.kernels import HEAVY
from xflow.cost.layout import LayoutModel
from xflow.cost.learned.features import KernelCall, Sort, Tensor
from xflow.cost.quantized import Codes
from xflow.cost.target import Stage, TargetModel

BYTES = {"DOUBLE": 8, "INT64": 8, "UINT64": 8, "FLOAT16": 2, "BFLOAT16": 2, "BOOL": 1, "INT8": 1,
         "UINT8": 1}  # fmt: skip
"""Bytes per element where they are not 4."""


class Estimator:
    """Estimates graphs for one target, and caches the costs of nodes.

    `sizes` has the values of size symbols; other symbols get the target's default.
    """

    def __init__(
        self, target: TargetModel | None = None, sizes: Mapping[str, int] | None = None
    ) -> None:
        self.target = target or TargetModel()
        self.sizes = dict(sizes or {})
        self.factors: tuple[float, ...] = (1.0,)
        """The factor by which the seconds at each setting of the sizes count."""
        self.fusions = Fusions(self.target.fusions)
        self.layouts = LayoutModel(self.target.layout)
        products, others = self.target.coded_products, self.target.coded
        self.codes = Codes(products, others, self.target.cuts_off)
        self._seconds: dict[Node, float] = {}
        self._alike: dict[object, float] = {}
        self._corrections: dict[Hashable, float] = {}
        self._corrects = self.target.learned is not None
        self._call = self.target.overhead + self.target.cold_overhead

    def __call__(self, graph: Graph, uses: Sequence[Use] = ()) -> float:
        """The seconds that one run of `graph` takes, whose outputs are used as `uses` says."""
        readers = count_readers(graph)
        wanted = [Use.BLOCKS in use for use in uses]
        results = {
            value for value, use in zip(graph.outputs, uses, strict=False) if Use.RESULT in use
        }
        kernels = self.fusions.chosen(graph, readers, results)
        inside = {node for kernel in kernels.values() for node in kernel.inside}
        units = self.codes.units(graph, results)
        inside |= units.absorbed
        transposed = self.layouts.transposed(graph, readers)
        converted = self.layouts.converted(graph, inside | units.fused, wanted, transposed)
        total = sum(self._conversion(image, image.node in transposed) for image in converted)
        total += len(transposed) * self.target.fused_overhead
        chains: dict[Value, tuple[str, Stage]] = {}
        """For values that may be fused into: the first operator of the chain, and its stage."""
        for node in graph.nodes:
            if node.constant or isinstance(node.op, Leaf) or node in inside or node in transposed:
                continue
            if node in units.fused:
                total += self._on_codes(node, node in units.signed)
                continue
            if node in kernels:
                total += self._kernel(kernels[node], node)
                continue
            name = operator_name(node)
            chain = self._fused(node, name, readers, chains)
            if chain is None:
                total += self.node(node)
                if name in self.target.copied:
                    total += (self._copies(node, graph, readers, uses) - 1) * self.node(node)
                chain = name, Stage.WEIGHTS
            else:
                total += self._fused_into(node, name)
            chains[node.outputs[0]] = chain
        return total

    def _copies(
        self, node: Node, graph: Graph, readers: Mapping[Value, int], uses: Sequence[Use]
    ) -> int:
        """How many times an operator runs that the runtime copies for each of its readers."""
        (value,) = node.outputs
        number = readers.get(value, 0)
        for output, use in zip_longest(graph.outputs, uses, fillvalue=Use.PLAIN):
            if output == value:  # which counts as read by two, see `count_readers`
                number += self.target.several - 2 if use & Use.SEVERAL else -1
        return max(1, number)

    def at_each(self, graph: Graph, uses: Sequence[Use] = ()) -> tuple[float, ...]:
        """The same for each setting of the sizes, of which there is one."""
        return (self(graph, uses),)

    def heavy(self, graph: Graph) -> float:
        """The part of the seconds of a run, 0 to 1, in convolutions and matrix products."""
        nodes = (node for node in graph.nodes if not node.constant and operator_name(node) in HEAVY)
        total = self(graph)
        return min(1.0, sum(map(self.node, nodes)) / total) if total else 0.0

    def anew(self) -> Callable[[], Estimator]:
        """Makes another one like it, without what this one keeps; can be sent to a process."""
        return partial(Estimator, self.target, self.sizes)

    def is_blocked(self, node: Node) -> bool:
        """Whether the runtime gives the result of `node` in its own layout."""
        return self.layouts.is_blocked(node)

    def wants_blocks(self, node: Node) -> bool:
        """Whether the runtime's operator for `node` reads images in its own layout."""
        return self.layouts.wants_blocks(node)

    def fused(self, graph: Graph) -> Iterable[frozenset[Node]]:
        """The nodes of each fused kernel of a whole graph, present or possible."""
        kernels = [kernel.inside | {node} for node, kernel in self._kernels(graph).items()]
        return [*kernels, *self.codes.ties(graph)]

    def cut_off(self, graph: Graph) -> int:
        """The number of products on codes whose sums the runtime may cut off at 16 bits."""
        return self.codes.units(graph).cut_off

    def served(self, graph: Graph) -> Hashable:
        """The operators and fused kernels that compute a whole graph: names, types, how many.

        They are the same for all spellings that the runtime fuses into one kernel.
        """
        kernels = self._kernels(graph)
        inside = {node for kernel in kernels.values() for node in kernel.inside}
        counts = Counter(
            (
                kernels[node].name if node in kernels else operator_name(node),
                node.types,
                node.codes,
            )
            for node in graph.nodes
            if node not in inside and not node.constant and not isinstance(node.op, Leaf)
        )
        return frozenset(counts.items())

    def _kernels(self, graph: Graph) -> Mapping[Node, Kernel]:
        """The fused kernels of a whole graph, by the node that ends each."""
        return self.fusions.chosen(graph, count_readers(graph), graph.outputs)

    def _kernel(self, kernel: Kernel, node: Node) -> float:
        """The seconds that a fused kernel takes, whose result is that of `node`."""
        target = self.target
        moved = sum(map(self._bytes, (*(v.type for v in kernel.inputs), *node.types)))
        # Of two spellings that end in the same kernel the shorter one is the better one.
        fused = len(kernel.inside) * target.fused_overhead
        seconds = self._moving(moved * target.slow.get(kernel.name, 1.0)) + self._call + fused
        return self._counted(Sort.PATTERN, kernel.name, seconds, node, kernel)

    def _on_codes(self, node: Node, signed: bool) -> float:
        """The seconds that an operator takes that is computed on codes."""
        target = self.target
        types = (*(value.type for value in node.inputs), *node.types)
        moved = sum(self._int(product(kind.shape)) for kind in types)
        name = operator_name(node)

        def number(of: Mapping[str, float], key: str, default: float) -> float:
            plain = of.get(key, default)
            return of.get(f"{key}.signed", plain) if signed else plain

        seconds = self._moving(moved * number(target.coded, name, 1.0))
        if name in target.coded_products:
            peak = number(target.peak, target.coded_products[name], target.other_peak)
            seconds = max(seconds, self._computing(node, peak))
        return self._counted(Sort.CODED, name, seconds + self._call, node)

    def _fused_into(self, node: Node, name: str) -> float:
        """The seconds that an operator adds to the one before it, into which it is fused.

        No data is moved again, but a sigmoid, say, still has to be computed.
        """
        slow = 1.0 if name in self.target.bounds else self.target.slow.get(name, 1.0)
        computing = max(0.0, slow - 1.0)
        moved = 2 * self._bytes(node.types[0]) * computing
        seconds = self.target.fused_overhead + self._moving(moved)
        return self._counted(Sort.FUSED, name, seconds, node)

    def _conversion(self, image: Value, turned: bool) -> float:
        """The seconds for an image from one layout to the other, transposed on the way if asked."""
        layout = self.target.layout
        assert layout is not None
        slow = layout.reorder * (layout.turning if turned else 1.0)
        seconds = self._moving(2 * self._bytes(image.type) * slow) + self._call
        if not self._corrects:
            return seconds
        key = Sort.CONVERSION, image.type, turned

        def called() -> KernelCall:
            tensors = (self._tensor(image.type),)
            name = "Transposition" if turned else "Conversion"
            threads = self.target.threads
            return KernelCall(Sort.CONVERSION, name, seconds, threads, tensors, tensors)

        return self._corrected(key, seconds, called)

    def _moving(self, amount: float, threads: int | None = None) -> float:
        """The seconds for so many bytes, in all threads if not in so many."""
        return amount / (self.target.bandwidth * (threads or self.target.threads))

    def _is_serial(self, node: Node) -> bool:
        """Whether the runtime computes an operator in one thread, whatever its inputs are."""
        shapes = [value.shape for value in node.inputs]
        return isinstance(node.op, Operator) and node.op.tasks(shapes, node.attributes) == 1

    def _fused(
        self,
        node: Node,
        name: str,
        readers: Mapping[Value, int],
        chains: Mapping[Value, tuple[str, Stage]],
    ) -> tuple[str, Stage] | None:
        """The chain that `node` is fused into, and its new stage; None if into none."""
        for position, value in enumerate(node.inputs):
            if value not in chains or readers[value] != 1 or value.shape != node.types[0].shape:
                continue
            head, reached = chains[value]
            stage = self.target.fused.get(head, {}).get(name)
            if stage is None and self.layouts.is_blocked(node):
                stage = self.target.fused_in_layout.get(head, {}).get(name)
            if stage is None:
                continue
            others = [v for i, v in enumerate(node.inputs) if i != position]
            if (head, name) in self.target.scaled:
                if not all(_is_scale(v, name) and readers[v] == 1 for v in others):
                    continue
            elif not all(v.is_constant for v in others):
                if (head, name) not in self.target.summed:
                    continue
                if any(v.shape != value.shape for v in others):
                    continue
                stage = Stage.SUM
            elif stage == Stage.WEIGHTS and not self._suits_weights(node, others, head):
                continue
            if Stage.SUM in (stage, reached) and not self._in_layout(node):
                continue
            if stage > reached or stage == reached == Stage.WEIGHTS:
                return head, stage
        return None

    def _in_layout(self, node: Node) -> bool:
        """Whether an operator is computed in the runtime's layout of images, if it has one.

        It is there alone that convolutions take sums with them, and activations behind these.
        """
        return self.target.layout is None or self.layouts.is_blocked(node)

    def _suits_weights(self, node: Node, constants: Sequence[Value], head: str) -> bool:
        """Whether constants that `node` applies differ along the channels alone."""
        if not (isinstance(node.op, Operator) and node.op.elementwise):
            return True  # parameters of a normalization
        rank = len(node.types[0].shape)
        if not rank:
            return True
        channel = self.target.channels[head] % rank
        return all(
            size == 1 or axis == channel
            for value in constants
            for axis, size in enumerate(value.shape, rank - len(value.shape))
        )

    def node(self, node: Node) -> float:
        """The seconds that a node takes alone."""
        seconds = self._seconds.get(node)
        if seconds is None:
            # Nodes that differ in what their inputs are computed from alone take the same time.
            read = tuple([(value.type, value.is_constant) for value in node.inputs])
            key = node.kind, node.types, read, self.layouts.is_blocked(node)
            seconds = self._alike.get(key)
            if seconds is None:
                seconds = self._alike[key] = self._node(node)
            self._seconds[node] = seconds
        return seconds

    def _node(self, node: Node) -> float:
        target = self.target
        name = operator_name(node)
        if name in target.views:
            seconds = target.view_overhead + target.cold_view_overhead
            return self._counted(Sort.OPERATOR, name, seconds, node)
        moved = sum(map(self._bytes, (*(v.type for v in node.inputs), *node.types)))
        if name in target.pairwise:
            moved += 2 * max(0, len(node.inputs) - 2) * self._bytes(node.types[0])
        threads = 1 if self._is_serial(node) else target.threads
        seconds = self._moving(moved * target.slow.get(name, 1.0), threads)
        kernel = target.products.get(name, name)
        if isinstance(node.op, Operator) and (name not in target.slow or kernel in target.peak):
            computing = self._computing(node, self._peak(node, kernel))
            seconds = max(seconds, computing) if kernel == name else seconds + computing
            seconds += self._packing(node)
        if target.layout is not None and not self.layouts.is_blocked(node):
            if not _is_product(node):
                seconds *= target.layout.outside.get(name, 1.0)
            group = node.attributes.get("group", 1)
            seconds += target.group_overhead * (group - 1 if isinstance(group, int) else 0)
        seconds += self._call * target.calls.get(name, 1)
        return self._counted(Sort.OPERATOR, name, seconds, node)

    def _counted(
        self, sort: Sort, name: str, seconds: float, node: Node, kernel: Kernel | None = None
    ) -> float:
        """The seconds of the kernel that ends with `node`, corrected by what was learned."""
        if not self._corrects:
            return seconds
        inputs = node.inputs if kernel is None else kernel.inputs
        read = tuple([(value.type, value.is_constant) for value in inputs])
        blocked = self.layouts.is_blocked(node)
        inside = 0 if kernel is None else len(kernel.inside)
        key = sort, name, node.kind, read, node.types, blocked, inside

        def called() -> KernelCall:
            flops = tasks = 0
            if isinstance(node.op, Operator) and kernel is None:
                flops = self._flops(node)
                tasks = self._tasks(node) or 0
            return KernelCall(
                sort,
                name,
                seconds,
                self.target.threads,
                tuple(self._tensor(value.type, value.is_constant) for value in inputs),
                tuple(map(self._tensor, node.types)),
                {} if kernel else node.attributes,
                flops,
                tasks,
                blocked,
                inside,
            )

        return self._corrected(key, seconds, called)

    def _corrected(self, key: Hashable, seconds: float, called: Callable[[], KernelCall]) -> float:
        """The seconds of a kernel that is `called`, corrected; of those with equal keys alike."""
        factor = self._corrections.get(key)
        if factor is None:
            learned = self.target.learned
            assert learned is not None
            factor = self._corrections[key] = learned(called())
        return seconds * factor

    def _tensor(self, kind: TensorType, constant: bool = False) -> Tensor:
        shape = tuple(map(self._int, kind.shape))
        return Tensor(shape, BYTES.get(kind.dtype, 4), constant)

    def _computing(self, node: Node, peak: float) -> float:
        """The seconds for an operator's arithmetic, at so many operations a second and thread."""
        threads = self._threads(self._tasks(node))
        return self._flops(node) / (peak * threads * self._efficiency(node))

    def _packing(self, node: Node) -> float:
        """The seconds for what a product of codes puts into another order, in one thread."""
        assert isinstance(node.op, Operator)
        shapes = [value.shape for value in node.inputs]
        outputs = [kind.shape for kind in node.types]
        constant = [value.is_constant for value in node.inputs]
        elements = self._int(node.op.packed(shapes, outputs, constant))
        return 2 * elements * self.target.packing / self.target.bandwidth

    def _flops(self, node: Node) -> int:
        """The operations of an operator's arithmetic."""
        assert isinstance(node.op, Operator)
        shapes = [value.shape for value in node.inputs]
        return self._int(node.op.flops(shapes, node.attributes, [t.shape for t in node.types]))

    def _tasks(self, node: Node) -> int | None:
        """How many parts of an operator are shared out among threads; None: as many as are asked.

        At least 1.
        """
        assert isinstance(node.op, Operator)
        tasks = self.layouts.tasks(node)
        if tasks is None:
            tasks = node.op.tasks([value.shape for value in node.inputs], node.attributes)
        return None if tasks is None else max(1, self._int(tasks))

    def _peak(self, node: Node, name: str) -> float:
        """The operations per second and thread of an operator."""
        peak = self.target.peak.get(name, self.target.other_peak)
        if name == "Conv" and _is_product(node) and self.layouts.is_blocked(node):
            return self.target.peak.get(f"{name}.pixels", peak)
        weights = next((value for value in node.inputs if value.is_constant), None)
        if weights is not None:
            signed = weights.type.dtype == "INT8"
            return self.target.peak.get(f"{name}.signed", peak) if signed else peak
        return self.target.peak.get(f"{name}.computed", peak)

    def _threads(self, tasks: int | None) -> float:
        """How many threads compute on average, where so many tasks are shared out among them."""
        threads = self.target.threads
        number = threads if tasks is None else tasks
        return number / math.ceil(number / threads)

    def _efficiency(self, node: Node) -> float:
        """The part of the peak that an operator with few channels, thin groups or rows reaches."""
        group = node.attributes.get("group")
        if group is None or len(node.inputs) < 2:
            return 1.0
        groups = self._int(group) if isinstance(group, int) else 1
        filled = self.layouts.filled(node) * self._of_rows(node)
        if groups == 1 and self.layouts.is_blocked(node):
            return filled
        return filled * self._reached(node, groups)

    def _of_rows(self, node: Node) -> float:
        """The part of the peak that a convolution in the runtime's layout reaches in one column.

        Without borders, the runtime takes all rows for one.
        """
        image = [self._int(size) for size in node.types[0].shape[2:]]
        pads = node.attributes.get("pads")
        if len(image) != 2 or image[1] != 1 or image[0] == 1 or not self.layouts.is_blocked(node):
            return 1.0
        has_borders = isinstance(pads, tuple) and any(size != 0 for size in pads)
        return self.target.single_pixels if has_borders else 1.0

    def _reached(self, node: Node, groups: int) -> float:
        """The part of the peak that an operator reaches where it has few channels."""
        weight = [self._int(size) for size in node.inputs[1].shape]
        inner, outer = max(1, weight[1]), max(1, weight[0] // groups)
        full = self.target.full_channels
        # Of one group, how many channels are read makes no difference: 3 are as good as 64.
        filled = min(1.0, inner / full) if groups > 1 else 1.0
        return math.sqrt(filled * min(1.0, outer / full))

    def _bytes(self, type: TensorType) -> int:
        return BYTES.get(type.dtype, 4) * self._int(product(type.shape))

    def _int(self, size: Size) -> int:
        if isinstance(size, int):
            return size
        return with_all(substitute(size, self.sizes), self.target.unknown_size)


def _is_scale(value: Value, name: str) -> bool:
    """Whether a value is one number, which the operator `name` computes."""
    return not value.shape and not value.is_constant and operator_name(value.node) == name


def _is_product(node: Node) -> bool:
    """Whether it is a convolution that the runtime computes as one product of matrices."""
    if operator_name(node) != "Conv":
        return False
    strides, pads, group = (node.attributes[name] for name in ("strides", "pads", "group"))
    pixels = all(size == 1 for size in node.inputs[1].shape[2:])
    ones = isinstance(strides, tuple) and all(size == 1 for size in strides)
    return pixels and ones and group == 1 and isinstance(pads, tuple) and not any(pads)


class MeanEstimator(Estimator):
    """The mean of the estimates at several settings of the sizes.

    `settings` has the sizes of each and the factor by which its seconds count; with those of
    `over`, all settings of a whole graph count alike, in seconds of the first one.
    """

    def __init__(
        self, target: TargetModel | None, settings: Sequence[tuple[Mapping[str, int], float]]
    ) -> None:
        super().__init__(target, settings[0][0])
        self._settings = settings
        self._others = [Estimator(target, sizes) for sizes, _ in settings[1:]]
        for other in self._others:  # what they keep of nodes holds at all sizes
            other.fusions, other.layouts = self.fusions, self.layouts
        self.factors = tuple(factor for _, factor in settings)

    @classmethod
    def over(
        cls, target: TargetModel | None, sizes: Sequence[Mapping[str, int]], whole: Graph
    ) -> Estimator:
        """The estimator of parts of a whole graph, at one setting or at several."""
        if len(sizes) == 1:
            return Estimator(target, sizes[0])
        first, *others = (Estimator(target, each)(whole) for each in sizes)
        factors = [1.0, *(first / each if each else 1.0 for each in others)]
        return cls(target, list(zip(sizes, factors, strict=True)))

    def __call__(self, graph: Graph, uses: Sequence[Use] = ()) -> float:
        """The mean seconds that one run of `graph` takes."""
        times = zip(self.at_each(graph, uses), self.factors, strict=True)
        return fmean(seconds * factor for seconds, factor in times)

    def at_each(self, graph: Graph, uses: Sequence[Use] = ()) -> tuple[float, ...]:
        """The seconds at each setting."""
        return (
            super().__call__(graph, uses),
            *(estimator(graph, uses) for estimator in self._others),
        )

    def anew(self) -> Callable[[], Estimator]:
        """Makes another one like it."""
        return partial(MeanEstimator, self.target, self._settings)


class KernelLister(Estimator):
    """Lists the kernels that the estimate counts."""

    def __init__(
        self, target: TargetModel | None = None, sizes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(target, sizes)
        self._corrects = True
        self._calls: list[KernelCall] = []

    def listed(self, graph: Graph, uses: Sequence[Use] = ()) -> tuple[list[KernelCall], float]:
        """The kernels of a graph, and the seconds of the estimate that are no kernel's."""
        self._calls = []
        total = self(graph, uses)
        return self._calls, total - sum(call.seconds for call in self._calls)

    def node(self, node: Node) -> float:
        """The seconds of a node, each time anew."""
        return self._node(node)

    def _corrected(self, key: Hashable, seconds: float, called: Callable[[], KernelCall]) -> float:
        self._calls.append(called())
        return seconds


class EstimatedCost:
    """A `CostModel` for which the estimate decides: with the same numbers, the same on any machine.

    Solutions of regions are kept in `notebook`; `settings` are those that the estimate depends on.
    """

    measures = False

    def __init__(
        self,
        layouts: Estimator | None = None,
        notebook: Notebook | None = None,
        settings: object = None,
    ) -> None:
        self.layouts = layouts or Estimator()
        self.notebook = notebook
        self.settings = settings

    def estimate(self, graph: Graph) -> float:
        """The seconds that one run of `graph` takes."""
        return self.layouts(graph)

    def measure(
        self, graphs: Sequence[Graph], seconds: float, *, again: int = 0
    ) -> list[float | None]:
        """Nothing: None for every graph."""
        return [None] * len(graphs)
