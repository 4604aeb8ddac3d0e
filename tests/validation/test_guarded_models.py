"""Random guarded models, rewritten with nothing that looks at the result but this test.

xflow compares each rewritten model with its original before it writes it. That is switched off
here, so that the rules, the analysis of what is a number, and the search are judged by themselves:
what was a number and right is one afterwards, and the same up to rounding; what is discrete is the
same. Every other model is searched with a cost that is a whim, so that unlikely rewrites are made.

Bugs that are put into the analysis have to be found: otherwise the models would tell nothing. Many
thousands of models: `pytest -m many tests/validation/test_guarded_models.py`, in parts that several
processes may share (`-n 2`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import suites
from guarded_models import Guarded, feeds, guarded_model
from longer import some
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_
from whims import Whim

import xflow
from xflow.analysis import observers
from xflow.analysis.observers import Observed
from xflow.analysis.ranges import Ranges
from xflow.analysis.value_rewrites import basis, nan_tests
from xflow.core import assumptions, intervals
from xflow.core.graph import Graph
from xflow.core.intervals import Range
from xflow.core.node import Value
from xflow.core.registry import Array
from xflow.core.value_conditions import FINITE, Fact
from xflow.cost import Objective
from xflow.onnx import importer
from xflow.onnx.checker import check_model
from xflow.pipeline import attempts, pipeline
from xflow.pipeline.details import Account
from xflow.rewriting import replay
from xflow.rewriting.admission import Places
from xflow.rewriting.instance import Instance
from xflow.rewriting.rule import BITS
from xflow.search import driver
from xflow.search.policy import POLICY
from xflow.search.processes import SearchProcesses
from xflow.validation.equivalence import CheckResult
from xflow.validation.exact import NoExactForm, in_double, widened
from xflow.validation.validate import Broken, Checked, Validator, write_temporary

IN_CI, MANY, PART = 200, 20_000, 500
WORK_PER_S, BUDGET_S = 20, 60.0
"""The work of a search, see `xflow.search`, ends it long before its time is over."""

Feed = dict[str, Array]
Runnable: TypeAlias = "onnxruntime.InferenceSession | Stepwise"


# Optimization without a check --------------------------------------------------------------------


def believed(self: Validator, model: ir.Model) -> Checked | Broken:
    """In the place of `Validator.compare`: what the ONNX checker takes is right."""
    write_temporary(model, self.after)
    check_model(self.after)
    return Checked(model, self.after, CheckResult(True))


class Salted(Whim):
    """A whim that is another one for each model, and the same one in each process."""

    salt = 0

    def estimate(self, graph: Graph) -> float:
        """Something between 0.5 and 1."""
        told = [
            (
                getattr(node.op, "name", ""),
                sorted((name, str(value)) for name, value in node.attributes.items()),
                [str(kind) for kind in node.types],
                [value.index for value in node.inputs],
            )
            for node in graph.nodes
        ]
        digest = hashlib.sha256(f"{self.salt} {told}".encode()).digest()
        return 0.5 + int.from_bytes(digest[:4], "big") / 2**33


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch, worker: suites.Kept) -> None:
    """Searches of little work whose results nobody compares with the model."""
    # What is planted is in this process alone.
    monkeypatch.setattr(SearchProcesses, "start", lambda _: None)
    monkeypatch.setattr(Validator, "compare", believed)
    monkeypatch.setattr(pipeline, "account_for", lambda *_, **__: Account())
    policy = replace(POLICY, work_per_s=WORK_PER_S)
    monkeypatch.setattr(attempts, "POLICY", policy)


def optimized(guarded: Guarded, number: int, *, anything: bool) -> onnx.ModelProto | None:
    """The model as it is rewritten, by fewer operators or else by a whim; None where it stays."""
    found = None
    if number % 2:
        found = rewritten(guarded, "nodes", anything=anything)
    if found is None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Salted, "salt", number)
            patch.setattr(attempts, "EstimatedCost", Salted)
            found = rewritten(guarded, "latency", anything=anything)
    return found


def rewritten(guarded: Guarded, objective: Objective, *, anything: bool) -> onnx.ModelProto | None:
    """The model as one search rewrites it; None where it stays as it is."""
    result = xflow.optimize(
        guarded.model,
        objective=objective,
        cost="estimated",
        budget=BUDGET_S,
        threads=1,
        check=1,
        assume="none" if anything else assumptions.DEFAULT.option,
    )
    dropped = [text for text in result.report.warnings if "dropped" in text]
    assert not dropped, dropped
    return ir.to_proto(result.model) if result.report.changed else None


# The judge ---------------------------------------------------------------------------------------

DRAWN = 8
"""How often a model is run with its values perturbed."""
ROUNDING, DIGITS, TIMES = 16.0, 512.0, 8.0
"""By how many roundings a value is perturbed, by how many of 1 where it is larger, since a rewrite
may lose eight bits, see `xflow.rewriting.cancellation`; and what multiple of what this does is
allowed."""
KERNEL = 8.0
"""By how many roundings of 1 the runtime's kernel of a sigmoid may be off."""
SUMS = {
    *("MatMul", "Gemm", "Conv", "AveragePool", "Softmax", "LayerNormalization", "ReduceSum"),
    *("ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
}
"""Operators behind which what is discrete may turn by rounding."""
CHOSEN = {"ArgMax", "TopK", "Floor", "Ceil", "Round", "Sign"}
"""Discrete operators that can be told by their names; others give integers or Booleans."""
MODERATE = {"float16": 2.0**10, "float32": 2.0**63, "float64": 2.0**63}
ARITHMETIC = {
    *("Add", "Sub", "Mul", "Div", "Cast", "ReduceProd", "ReduceMax", "ReduceMin"),
    *("BatchNormalization", "Softmax", *SUMS),
}
"""Operators whose results are taken to be moderate where what they read is."""
UNDEFINED = np.iinfo(np.int64).min
"""What becomes of a float that no integer has, most often."""


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session that runs a model operator by operator, as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class Stepwise:
    """A model of 16 bits, run so that each value is rounded to them.

    The runtime computes several operators in 32 bits, and rounds behind the last.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = onnx.shape_inference.infer_shapes(model).graph
        typed = {item.name: item for item in (*graph.input, *graph.value_info, *graph.output)}
        self._weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._outputs = list(graph.output)
        self._steps = []
        for node in graph.node:
            fed = dict.fromkeys(name for name in node.input if name in typed)
            own = dict.fromkeys(name for name in node.input if name in self._weights)
            weights = [t for t in graph.initializer if t.name in own]
            part = helper.make_graph(
                [node], "part", [typed[n] for n in fed], [typed[n] for n in node.output], weights
            )
            made = helper.make_model(part, opset_imports=model.opset_import, ir_version=9)
            self._steps.append((list(fed), list(node.output), session(made)))

    def get_outputs(self) -> Sequence[onnx.ValueInfoProto]:
        """The outputs, as a session tells them."""
        return self._outputs

    def run(self, _: None, feed: Feed) -> list[Array]:
        """The outputs for a set of inputs."""
        known = {**self._weights, **feed}
        for fed, made, step in self._steps:
            known.update(zip(made, step.run(None, {n: known[n] for n in fed}), strict=True))
        return [known[item.name] for item in self._outputs]


@dataclass
class Judge:
    """Tells whether another model gives what a model does, for sets of inputs."""

    guarded: Guarded
    number: int
    anything: bool
    strict: bool = False
    """Whether what comes of an infinity has to stay, though it is another number in float64."""
    overflowed: int = 0
    """Sets on which sums and products of the largest floats overflow that did not before.

    That is no promise: what is known of ranges is that they may.
    """

    def objection(self, after: onnx.ModelProto) -> str:
        """What the first set of inputs tells on which a right element becomes a wrong one."""
        before, written = self._runnable(self.guarded.model), self._runnable(after)
        names = [item.name for item in before.get_outputs()]
        assert names == [item.name for item in written.get_outputs()]
        sets = feeds(self.guarded, self.number, anything=self.anything)
        for place, feed in enumerate(sets):
            results = zip(names, before.run(None, feed), written.run(None, feed), strict=True)
            for name, old, new in results:
                assert (old.dtype, old.shape) == (new.dtype, new.shape), name
                wrong = self._wrong(name, old, new, feed)
                if wrong.any():
                    wrong &= ~self._turned_by_zeros(name, old, feed)
                if wrong.any() and self._is_of_range(name, old, wrong, after, feed):
                    self.overflowed += 1
                elif wrong.any():
                    where = tuple(np.argwhere(wrong)[0].tolist())
                    return f"set {place}, {name}{list(where)}: {old[where]} became {new[where]}"
        return ""

    def _runnable(self, model: onnx.ModelProto) -> Runnable:
        """What runs a model with each value rounded to its type."""
        return Stepwise(model) if self.guarded.dtype.itemsize == 2 else session(model)

    def _wrong(self, name: str, old: Array, new: Array, feed: Feed) -> Array:
        """Which elements of an output are wrong."""
        if old.dtype.kind != "f":
            wrong = (old != new) & ~((old == UNDEFINED) if old.dtype.kind == "i" else False)
        else:
            with np.errstate(all="ignore"):
                wrong = (
                    np.isfinite(old)
                    & (old != UNDEFINED)
                    & ~(_distance(old, new) <= self._unit * np.abs(old))
                )
        if not wrong.any() or not (self.anything or self._is_moderate(feed)):
            return np.zeros_like(wrong)
        allowed = self._allowed(name, old, feed)
        if old.dtype.kind != "f":
            return np.asarray(wrong & ~allowed.astype(bool))
        exact = self._exactly(name, feed)
        lost = wrong & ~np.isfinite(new)
        far = wrong & ~lost & ~(_distance(old, new) <= allowed)
        strict = self.strict and not self.anything and not self._is_finite(feed)
        if exact is not None and exact.shape == old.shape and not strict:
            # Far from the exact value, it was not right. Near a threshold it may be far and right.
            right = (_distance(exact, old) <= allowed) | (name in self._strictly_decided)
            lost &= right | ~np.isfinite(allowed)
            far &= right & ~(_distance(exact, new) <= allowed)
        return np.asarray(lost | far)

    @property
    def _unit(self) -> float:
        return 32 * float(np.finfo(self.guarded.dtype).eps)

    # Rounding -----------------------------------------------------------------------------------

    def _allowed(self, name: str, old: Array, feed: Feed) -> Array:
        """By how much elements may differ, judging by perturbations; of others, whether at all."""
        noisy, shapes = self._perturbed
        names = [item.name for item in noisy.get_outputs()]
        kind = np.finfo(self.guarded.dtype)
        eps = float(kind.eps)
        sizes = min(ROUNDING * eps, 1 / 64), min(DIGITS * eps, 1 / 16)
        rng = np.random.default_rng(self.number)
        spread = np.zeros(old.shape)
        for _ in range(DRAWN):
            noise = {
                key: np.asarray(
                    rng.uniform(-1, 1, shape) * sizes[key.startswith("digits")], kind.dtype
                )
                for key, shape in shapes.items()
            }
            drawn = noisy.run(None, {**feed, **noise})[names.index(name)]
            if old.dtype.kind != "f":
                spread = np.maximum(spread, drawn != old)
            else:
                with np.errstate(all="ignore"):
                    spread = np.fmax(
                        spread, np.where(np.isfinite(drawn), _distance(drawn, old), np.inf)
                    )
        if old.dtype.kind != "f":
            return spread
        with np.errstate(all="ignore"):
            return (
                TIMES * spread + self._unit * np.abs(old.astype(np.float64)) + 16 * float(kind.tiny)
            )

    @cached_property
    def _perturbed(self) -> tuple[Runnable, dict[str, tuple[int, ...]]]:
        """The model with noise on its values of floats, and the shapes of the inputs of that.

        Something discrete is made of values without noise, as far as it is so element by element:
        that is promised to stay the same to the bit. Other readers of these read them with noise.
        """
        graph = self.guarded.model.graph
        floats = self._shapes
        noise: dict[str, tuple[int, ...]] = {}
        renamed: dict[str, str] = {}
        nodes: list[onnx.NodeProto] = []
        limits = [numpy_helper.from_array(np.asarray(v, self.guarded.dtype), n) for v, n in
                  ((-1.0, "least/noise"), (1.0, "most/noise"), (1.0, "one/noise"),
                   (KERNEL / DIGITS, "kernel/noise"))]  # fmt: skip

        def perturb(name: str, unit: str = "", source: str = "") -> None:
            if name not in floats:
                return
            for part in ("rounding", "digits"):
                noise[f"{part}/{name}"] = floats[name]
            source = source or name
            made = [f"{name}/{k}" for k in ("factor", "product", "cut", "rest", "noisy")]
            nodes.extend([
                helper.make_node("Add", [f"rounding/{name}", "one/noise"], [made[0]]),
                helper.make_node("Mul", [source, made[0]], [made[1]]),
                helper.make_node("Clip", [unit or source, "least/noise", "most/noise"], [made[2]]),
                helper.make_node("Mul", [made[2], f"digits/{name}"], [made[3]]),
                helper.make_node("Add", [made[1], made[3]], [made[4]]),
            ])  # fmt: skip
            renamed[name] = made[4]

        for item in graph.input:
            perturb(item.name)

        def read(node: onnx.NodeProto, *, plainly: bool) -> onnx.NodeProto:
            plain = self._strict if plainly and node.op_type not in SUMS else frozenset()
            new = onnx.NodeProto()
            new.CopyFrom(node)
            new.input[:] = [n if n in plain else renamed.get(n, n) for n in node.input]
            return new

        for node in graph.node:
            discrete = self._is_discrete(node)
            strict = not self._strict.isdisjoint(node.output)
            nodes.append(read(node, plainly=strict or discrete))
            twice = strict and not discrete  # for readers of both kinds
            if twice:
                again = read(node, plainly=False)
                again.output[:] = [f"{name}/again" for name in node.output]
                nodes.append(again)
            unit = "kernel/noise" if self._is_kernel(node) else ""
            for name in node.output:
                perturb(name, unit, f"{name}/again" if twice else name)
        element = helper.np_dtype_to_tensor_dtype(self.guarded.dtype)
        added = [helper.make_tensor_value_info(n, element, s) for n, s in noise.items()]
        outputs = []
        for item in graph.output:
            new_item = onnx.ValueInfoProto()
            new_item.CopyFrom(item)
            outputs.append(new_item)
            if item.name in renamed:  # the noise of the output itself counts
                back = f"{item.name}/plain"
                for node in nodes:
                    for names in (node.input, node.output):
                        for place, name in enumerate(names):
                            if name == item.name:
                                names[place] = back
                nodes.append(helper.make_node("Identity", [renamed[item.name]], [item.name]))
        made = helper.make_graph(
            nodes, "noisy", [*graph.input, *added], outputs, [*graph.initializer, *limits]
        )
        model = helper.make_model(made, opset_imports=self.guarded.model.opset_import, ir_version=9)
        return self._runnable(model), noise

    def _is_kernel(self, node: onnx.NodeProto) -> bool:
        """Whether a quotient by a sum of exponentials may become a Sigmoid, or the like.

        The runtime's kernels of these are exact beside 1 only.
        """
        made = {name: each for each in self.guarded.model.graph.node for name in each.output}
        found = [node] if node.op_type in ("Div", "Reciprocal") else []
        for _ in range(3):
            found = [made[name] for each in found for name in each.input if name in made]
            if any(each.op_type == "Exp" for each in found):
                return True
        return False

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all values of floats, constants aside."""
        inferred = onnx.shape_inference.infer_shapes(self.guarded.model).graph
        element = helper.np_dtype_to_tensor_dtype(self.guarded.dtype)
        return {
            item.name: tuple(d.dim_value for d in item.type.tensor_type.shape.dim)
            for item in (*inferred.input, *inferred.value_info, *inferred.output)
            if item.type.tensor_type.elem_type == element
        }

    def _is_discrete(self, node: onnx.NodeProto) -> bool:
        """Whether an operator compares, or makes integers."""
        return node.op_type in CHOSEN or any(name not in self._shapes for name in node.output)

    @cached_property
    def _strict(self) -> frozenset[str]:
        """Values of floats of which something discrete is made, with no sum between."""
        found: set[str] = set()
        for node in reversed(self.guarded.model.graph.node):
            if self._is_discrete(node) or (
                node.op_type not in SUMS and not found.isdisjoint(node.output)
            ):
                found.update(name for name in node.input if name in self._shapes)
        return frozenset(found)

    @cached_property
    def _strictly_decided(self) -> frozenset[str]:
        """Values that are made of something discrete."""
        found: set[str] = set()
        for node in self.guarded.model.graph.node:
            if self._is_discrete(node) or not found.isdisjoint(node.input):
                found.update(node.output)
        return frozenset(found)

    def _turned_by_zeros(self, name: str, old: Array, feed: Feed) -> Array:
        """Which elements of an output are others where zeros have another sign.

        That of a zero is no promise, and the runtime itself does not keep it: of a chosen -0.0, its
        Where makes 0.0.
        """
        names = [item.name for item in self.guarded.model.graph.output]
        found = np.zeros(old.shape, bool)
        for signed in self._signed:
            new = signed.run(None, feed)[names.index(name)]
            if old.dtype.kind == "f":
                with np.errstate(all="ignore"):
                    found |= ~(_distance(old, new) <= self._unit * np.abs(old))
            else:
                found |= old != new
        return found

    @cached_property
    def _signed(self) -> Sequence[Runnable]:
        """The model with each zero positive, and with each one negative."""
        return [self._runnable(self._with_zeros(negative=each)) for each in (False, True)]

    def _with_zeros(self, *, negative: bool) -> onnx.ModelProto:
        """The model, all zeros among its values of one sign."""
        model = onnx.ModelProto()
        model.CopyFrom(self.guarded.model)
        zero = numpy_helper.from_array(np.asarray(0.0, self.guarded.dtype), "zero/signed")
        model.graph.initializer.append(zero)
        turn = ["Neg"] if negative else []
        nodes: list[onnx.NodeProto] = []
        renamed: dict[str, str] = {}

        def sign(name: str) -> None:
            source = name
            for place, op_type in enumerate((*turn, "Add", *turn)):
                made = f"{name}/signed{place}"
                more = ["zero/signed"] if op_type == "Add" else []
                nodes.append(helper.make_node(op_type, [source, *more], [made]))
                source = made
            renamed[name] = source

        for item in model.graph.input:
            if item.name in self._shapes:
                sign(item.name)
        for node in model.graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            nodes.append(node)
            for name in node.output:
                if name in self._shapes:
                    sign(name)
        made = helper.make_graph(
            nodes, "signed", model.graph.input, model.graph.output, model.graph.initializer
        )
        return helper.make_model(made, opset_imports=model.opset_import, ir_version=9)

    # What is right ------------------------------------------------------------------------------

    def _exactly(self, name: str, feed: Feed) -> Array | None:
        """An output in float64, if the model has such a form."""
        return None if self._double is None else wide_output(self._double, name, feed)

    def _is_of_range(
        self, name: str, old: Array, wrong: Array, after: onnx.ModelProto, feed: Feed
    ) -> bool:
        """Whether what is wrong is so since numbers are near the largest ones, and not wider."""
        kind = np.finfo(self.guarded.dtype)
        floats = [each for each in feed.values() if each.dtype.kind == "f"]
        with np.errstate(all="ignore"):
            largest = any(np.any(np.isfinite(x) & (np.abs(x) > np.sqrt(kind.max))) for x in floats)
        if not self.anything or not largest or old.dtype.kind != "f":
            return False
        double = self._widened(after)
        if double is None:
            return False
        exact = wide_output(double, name, feed)
        near = _distance(exact, old) <= self._allowed(name, old, feed)
        return bool(np.all(near | ~wrong))

    @cached_property
    def _double(self) -> onnxruntime.InferenceSession | None:
        return self._widened(self.guarded.model)

    def _widened(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
        """A model in float64, if it has such a form."""

        def probe(model: onnx.ModelProto) -> Sequence[str] | None:
            try:
                return [item.type for item in session(model).get_outputs()]
            except Exception:  # the runtime throws what its C++ side throws
                return None

        whole = onnx.ModelProto()
        whole.CopyFrom(model)
        shapes = {item.name: item.shape for item in self.guarded.inputs}
        try:
            return session(in_double(whole, shapes, probe).model)
        except NoExactForm:
            return None

    def _is_moderate(self, feed: Feed) -> bool:
        """Whether arithmetic with moderate numbers gave such, as is taken for granted."""
        most = MODERATE[self.guarded.dtype.name]
        names, everything = self._everything
        known = dict(zip(names, everything.run(None, feed), strict=True)) | feed
        with np.errstate(all="ignore"):
            for node in self.guarded.model.graph.node:
                if node.op_type not in ARITHMETIC or node.output[0] not in self._shapes:
                    continue
                read = [known.get(name, self._weights.get(name)) for name in node.input]
                floats = [r for r in read if r is not None and r.dtype.kind == "f"]
                made = known[node.output[0]]
                ordinary = all(np.all(np.abs(r) <= most) for r in floats)
                large = ~(np.abs(made) <= most)
                if node.op_type == "Div":
                    large &= np.broadcast_to(np.asarray(read[1]), made.shape) != 0
                if (ordinary and large.any()) or np.any(np.isfinite(made) & large):
                    return False
        return True

    def _is_finite(self, feed: Feed) -> bool:
        """Whether all values are numbers."""
        return all(np.isfinite(each).all() for each in self._everything[1].run(None, feed))

    @cached_property
    def _weights(self) -> dict[str, Array]:
        graph = self.guarded.model.graph
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    @cached_property
    def _everything(self) -> tuple[list[str], onnxruntime.InferenceSession]:
        """The model with all values of floats as outputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self.guarded.model)
        fed = {item.name for item in model.graph.input}
        names = [name for name in self._shapes if name not in fed]
        element = helper.np_dtype_to_tensor_dtype(self.guarded.dtype)
        del model.graph.output[:]
        model.graph.output.extend(
            helper.make_tensor_value_info(n, element, self._shapes[n]) for n in names
        )
        return names, session(model)


def wide_output(double: onnxruntime.InferenceSession, name: str, feed: Feed) -> Array:
    """An output of a model in float64, from inputs of a narrower type."""
    names = [item.name for item in double.get_outputs()]
    results = double.run(None, {k: widened(v) for k, v in feed.items()})
    return np.asarray(results[names.index(name)])


def _distance(one: Array, other: Array) -> Array:
    """How far elements are from one another; NaN where one is none."""
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(one.astype(np.float64) - other.astype(np.float64)))


# The models --------------------------------------------------------------------------------------


def examine(number: int, *, strict: bool = False) -> tuple[str, str]:
    """What became of the model of that number, and what is wrong with it then."""
    guarded = guarded_model(number)
    anything = number % 3 == 0 and guarded.dtype.itemsize > 2
    after = optimized(guarded, number, anything=anything)
    if after is None:
        return "as they are", ""
    try:
        return "rewritten", Judge(guarded, number, anything, strict).objection(after)
    except NotImplemented_:  # some operators have no kernel in 64 bits: the check would tell
        return "not run by the runtime", ""


def examine_all(numbers: range) -> None:
    """Rewrite and judge models; at least half of them have to be rewritten."""
    found = {number: examine(number) for number in numbers}
    wrong = {number: reason for number, (_, reason) in found.items() if reason}
    counts = Counter(what for what, _ in found.values())
    told = ", ".join(f"{count} {what}" for what, count in counts.most_common())
    print(f"\n{len(found)} models: {told}; {len(wrong)} wrong")
    assert not wrong, "\n".join(f"model {number}: {reason}" for number, reason in wrong.items())
    assert counts["rewritten"] >= len(found) / 2
    assert counts["not run by the runtime"] <= len(found) / 50


def test_guarded_models_stay_right() -> None:
    examine_all(range(IN_CI))


@pytest.mark.parametrize("number", [2214, 6628, 12979])
def test_models_that_were_wrong_once_stay_right(number: int) -> None:
    """2214, 6628: powers of moderate numbers that overflow; 12979: a quotient of small numbers."""
    assert not examine(number)[1]


@pytest.mark.many
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(IN_CI, IN_CI + MANY, PART))
def test_thousands_of_guarded_models_stay_right(start: int) -> None:
    examine_all(range(start, start + PART))


# Bugs that have to be found ----------------------------------------------------------------------

Patch: TypeAlias = pytest.MonkeyPatch


def ignoring(relation: str) -> Callable[[Patch], None]:
    """Take a need of rules for granted wherever it is asked for."""

    def plant(patch: Patch) -> None:
        holds = Places.holds

        def careless(self: Places, fact: Fact, value: Value) -> bool:
            return fact.relation == relation or holds(self, fact, value)

        patch.setattr(Places, "holds", careless)

    return plant


def claiming_bits(patch: Patch) -> None:
    """Believe that the sides of all rules agree to the bit."""
    forbidden = Places.forbidden

    def careless(self: Places, instance: Instance, *rest: Any) -> Observed | str:
        return forbidden(self, replace(instance, exact=BITS), *rest)

    patch.setattr(Places, "forbidden", careless)


def losing_nothing(patch: Patch) -> None:
    """Believe that no operator makes a number of what is none."""
    patch.setattr(observers, "loses", lambda *_: False)


def deciding_nothing(patch: Patch) -> None:
    """Believe that nothing is discrete."""
    patch.setattr(observers, "decides", lambda *_: False)


def bounded(function: str) -> Callable[[Patch], None]:
    """Believe that a function gives moderate numbers only."""

    def plant(patch: Patch) -> None:
        right = intervals.FUNCTIONS[function]

        def narrow(*given: Any) -> Range:
            found = right(*given)
            low, high = max(found.low, -1e6), min(found.high, 1e6)
            return Range(low, high, nonzero=low > 0) if low <= high else found

        patch.setitem(intervals.FUNCTIONS, function, narrow)
        confirming_all(patch)

    return plant


def taking_roots_of_anything(patch: Patch) -> None:
    """Believe that roots and logarithms of negative numbers are numbers."""
    for function in ("log", "sqrt"):
        right = intervals.FUNCTIONS[function]

        def careless(x: Range, *given: Any, right: Callable[..., Range] = right) -> Range:
            return replace(right(x, *given), nan=x.nan)

        patch.setitem(intervals.FUNCTIONS, function, careless)


def admitting_all(patch: Patch) -> None:
    """Ask nothing of a whole rewrite from end to end."""
    patch.setattr(driver, "objection", lambda *_: "")


def taking_all_for_numbers(patch: Patch) -> None:
    """Take inputs for numbers that the model tests, and masks."""
    patch.setattr(importer, "special_inputs", lambda *_: {})


def confirming_all(patch: Patch) -> None:
    """Confirm every fact: the second analysis covers mistakes of the first."""
    for module in (basis, replay):
        patch.setattr(module, "fault", lambda *_: "")


def assuming_in_facts(patch: Patch) -> None:
    """Let facts about tests and masks take moderate inputs for granted, and check none of them."""
    patch.setattr(nan_tests, "Ranges", lambda constants, _: Ranges(constants))
    confirming_all(patch)


def losing_nothing_anywhere(patch: Patch) -> None:
    """Believe that no operator makes a number of what is none, and ask nothing from end to end."""
    losing_nothing(patch)
    admitting_all(patch)


BUGS: dict[str, tuple[Callable[[Patch], None], int]] = {
    "finite": (ignoring(FINITE), 20),
    "discrete": (deciding_nothing, 100),
    "bits": (claiming_bits, 20),
    "exponential": (bounded("exp"), 30),
    "quotient": (bounded("reciprocal"), 20),
    "special-inputs": (taking_all_for_numbers, 20),
    "facts": (assuming_in_facts, 40),
    "lost-and-end-to-end": (losing_nothing_anywhere, 30),
}
"""Bugs, and in how many models they are found."""
RARE: dict[str, tuple[Callable[[Patch], None], int]] = {
    "lost": (losing_nothing, 350),
    "roots": (taking_roots_of_anything, 300),
}
"""The same for those that take longer: the check from end to end covers most of the first."""


def is_found(plant: Callable[[Patch], None], models: int, *, strict: bool = False) -> bool:
    """Whether one of so many models is wrong with a bug; it has to be right without."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        number = next((n for n in range(models) if examine(n, strict=strict)[1]), None)
    print(f"\nfound in {number}")
    return number is not None and not examine(number, strict=strict)[1]


@pytest.mark.parametrize("bug", some(BUGS, 2))
def test_a_bug_is_found(bug: str) -> None:
    assert is_found(*BUGS[bug], strict=bug.startswith("lost"))


@pytest.mark.many
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bug", RARE)
def test_a_rare_bug_is_found(bug: str) -> None:
    assert is_found(*RARE[bug], strict=bug.startswith("lost"))
