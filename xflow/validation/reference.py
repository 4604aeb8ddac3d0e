"""Reference results: a model's outputs on a series of inputs, also with hardly any rounding.

Rewritten models are compared with them: the inputs are made, and the input model is run on them,
only once.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto

from xflow.analysis.opaque import QUANTIZERS
from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError, UnfeedableInput
from xflow.cost.measure import Target
from xflow.cost.worker import (
    OUT_OF_TIME,
    Failed,
    Lost,
    ModelSource,
    Worker,
    from_wire,
    model_to_wire,
    to_wire,
)
from xflow.feeds.edge_cases import (
    CONVERSIONS,
    EdgeCases,
    InputSet,
    other_sizes,
    sizes_of_sums,
)
from xflow.feeds.input_roles import indexed_dimensions
from xflow.feeds.inputs import (
    DEFAULT,
    LADDER,
    Feeder,
    Shapes,
    Sizes,
    default_shapes,
    free_dimensions,
    is_fixed,
    load_proto,
)
from xflow.feeds.told_apart import compared_sizes, differing_indices
from xflow.onnx.files import data_files
from xflow.onnx.outline import outline
from xflow.onnx.proto_compat import all_nodes
from xflow.validation.crossings import compares, crossings
from xflow.validation.difference import is_another
from xflow.validation.exact import NoExactForm, in_double, is_random, widened

LARGE = 2**30
"""Bytes of weights from which a check holds them in memory once."""
EXACT_BYTES = 2**28
"""Bytes of weights up to which a model is computed in float64."""
CHEAP_BYTES = 2**25
"""Bytes of weights up to which that is always done, to report how exact the model is."""
EXTRA = 0.05
"""The part of the time of each model that edge cases may take."""
EXTRA_S = 10.0
"""Seconds that they may take at most."""
EXTRA_BYTES = 2**26
"""Bytes of inputs and outputs that may be kept besides the ordinary ones."""
NEEDED_PART = 0.4
"""The part of the time after which a slow input model is run on no more random inputs: what it is
compared with has to run on all of them, too."""
STEP = 0.6
"""The part of the time that one step, as loading a model, may take."""
CRASHES = 2
"""Edge cases that may end the measuring process before no more are tried."""
TRIED = 2**21
"""Most elements of inputs in trials of whether a model runs; default sizes may have more."""
EXACT_PART = 0.2
"""The part of the time left that this may take."""
MOVING = frozenset(
    {"Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that keep the elements of their first input as they are."""

OPERATOR_FAILED = re.compile(
    r"while running (?P<op>\S+) node\. Name:'(?P<name>[^']*)' Status Message: (?P<why>.*)"
)
"""The runtime's message that an operator failed."""

FLOAT64, UNOPTIMIZED = "float64", "the model without optimizations"
"""The names of the sources of more exact results."""

Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """The inputs on which a model is run.

    There are `samples` sets of random inputs, those that are `given`, and unless switched off as
    many `edge_cases` as there is time for: with NaN and infinities `planted`, and with `empty`
    dynamic dimensions, or not.
    """

    samples: int = 3
    seed: int = 0
    given: Sequence[InputSet] = ()
    edge_cases: bool = True
    planted: bool = True
    empty: bool = True
    other: ModelSource = b""
    """The model that is compared first, which tells where a difference may be found; or none."""


@dataclass(frozen=True)
class Weights:
    """The bytes that a model takes with its weights, and the files of weights beside it.

    To know them, a model of many layers is parsed, which takes a tenth of a second: they are looked
    up once for a file, as long as that does not change.
    """

    size: int
    files: tuple[Path, ...] = ()

    @staticmethod
    def of(model: ModelSource) -> Weights:
        """Look up those of a model."""
        if isinstance(model, bytes):
            return Weights(len(model))
        size, files = model.stat().st_size, tuple(data_files(model))
        with contextlib.suppress(OSError):
            size += sum(file.stat().st_size for file in files)
        return Weights(size, files)


@dataclass
class Reference:
    """The results of one model at one setting of the shapes of its inputs.

    `sets` are the inputs on which it ran, `outputs` its results, `left_out` the number of further
    sets on which it failed, and `late` of those for which there was no time.  `shapes` are the
    sizes that were chosen.
    """

    model: ModelSource
    plan: Plan = field(default_factory=Plan)
    target: Target = field(default_factory=Target)
    worker: Worker = field(default_factory=Worker)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    sets: list[InputSet] = field(default_factory=list)
    outputs: list[Outputs] = field(default_factory=list)
    left_out: int = 0
    late: int = 0
    needed: int = 0
    """How many of the sets come before the edge cases."""
    extra_s: float = 0.0
    """Seconds that those may take."""
    no_exact: str = ""
    """Why there are no more exact results."""
    no_double: bool = False
    """Whether the float64 version turned out to differ, as where a model relies on rounding."""
    yardstick: str = ""
    """The source of more exact results: `FLOAT64` or `UNOPTIMIZED`."""
    precise: bool = False
    """Whether it is float64 throughout."""
    may_be_random: bool = True
    """Whether the model may give other results for the same inputs, if that is known."""
    _exact: dict[int, Outputs] = field(default_factory=dict)
    _exact_models: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    _own_unfused: dict[int, Outputs] = field(default_factory=dict)
    _own_served: dict[int, Outputs] = field(default_factory=dict)

    @cached_property
    def weights(self) -> Weights:
        """What the model takes, which nobody changes meanwhile."""
        return Weights.of(self.model)

    @property
    def size(self) -> int:
        """The bytes of the model and of its weights."""
        return self.weights.size

    def run(self, given: Shapes | None, deadline: Deadline) -> Failed | None:
        """Make the inputs and run the model on them; or say why it cannot be run.

        `given` decides the shapes of inputs that it names, and else the first real inputs do.
        Raises `UsageError` for wrong shapes, and `ModelError` for a model that cannot be fed.
        """
        model = _with_elements_at_hand(self.model)
        self.may_be_random = _may_be_random(model)
        self.extra_s = edge_case_seconds(deadline.left)
        real = self.plan.given
        base: Sizes | None = DEFAULT
        try:
            sizes = real[0].shapes if real and not given else given
            self.shapes = default_shapes(model, sizes)
        except UnfeedableInput:
            if not real:
                raise
            base = None  # there are the real ones alone
        failed = self._attempt(model, given, base, deadline)
        if failed is not None and not real and not deadline.passed:
            runner = self.runner(self.model)
            found = runnable(runner, model, given, seed=self.plan.seed, deadline=deadline)
            if found is not None:
                base, self.shapes = found
                failed = self._attempt(model, given, base, deadline)
        return failed

    def _attempt(
        self, model: ModelProto, given: Shapes | None, base: Sizes | None, deadline: Deadline
    ) -> Failed | None:
        """Run the model on real inputs, and on others at the sizes `base` unless that is None."""
        sets = [*self.plan.given]
        extras: list[InputSet] = []
        if base is not None:
            makers = _Sets(model, self, given or {}, base)
            sets += makers.ordinary()
            # How long a run takes is not known yet: no more are made than could be needed.
            if self.plan.edge_cases:
                extras = _some(makers.extras(), EXTRA_BYTES, self.extra_s)
                extras = [*self._crossings(makers, deadline), *extras]
        needed = len(sets)
        sets += extras
        answers = self.runner(self.model).each(
            sets,
            needed,
            self.extra_s,
            deadline,
            given=len(self.plan.given),
            needed_s=NEEDED_PART * deadline.left,
        )
        if isinstance(answers, Failed):
            return answers
        self.late = sum(number not in answers for number in range(needed))
        failed = {number: each for number, each in answers.items() if isinstance(each, Failed)}
        shapes = _declared_shapes(model)
        for number, each in answers.items():
            if not isinstance(each, Failed) and sets[number].resized and _is_empty(sets[number]):
                wrong = [name for name, dims in shapes.items() if not _has(each[name], dims)]
                if wrong:
                    failed[number] = Failed(f"the runtime gives {wrong[0]!r} another shape")
        for number, each in failed.items():
            if number < len(self.plan.given):
                return Failed(f"on {sets[number].what}, {each.reason}")
        ran = sorted(set(answers) - set(failed))
        if not any(number < needed and not sets[number].resized for number in ran):
            return failed[0]
        self.sets = [sets[number] for number in ran]
        self.outputs = [each for n in ran if not isinstance(each := answers[n], Failed)]
        self.left_out = len(failed)
        self.needed = sum(number < needed for number in ran)
        return None

    def _crossings(self, makers: _Sets, deadline: Deadline) -> list[InputSet]:
        """Inputs at which values of a small model cross its constants, see `crossings`."""
        found: list[InputSet] = []
        for source in (self.model, self.plan.other):
            if not source or self.weights_of(source).size > CHEAP_BYTES:
                continue

            def run(
                model: ModelProto, sets: Sequence[InputSet], source: ModelSource = source
            ) -> Sequence[Mapping[str, Any] | None]:
                runner = replace(self.runner(source), model=model.SerializeToString())
                answers = runner.each(sets, 0, self.extra_s, deadline)
                if isinstance(answers, Failed):
                    return []
                got = (answers.get(number) for number in range(len(sets)))
                return [None if isinstance(each, Failed) else each for each in got]

            with contextlib.suppress(Exception):  # weights may be missing, or anything be odd
                model = _whole(source)
                if compares(model):
                    base, reals = makers.ordinary()[0], sorted(makers.reals())
                    found += crossings(model, base, reals, run)
        return found

    def weights_of(self, model: ModelSource) -> Weights:
        """What a model takes, which may be this one."""
        return self.weights if model is self.model else Weights.of(model)

    def runner(self, model: ModelSource) -> Runner:
        """A runner with the target's options; weights of a large model are held once."""
        weights = self.weights_of(model)
        runner = Runner.of(model, self.target, self.worker)
        return runner.holding_once(weights) if max(self.size, weights.size) > LARGE else runner

    def exact(self, numbers: Sequence[int], deadline: Deadline) -> Mapping[int, Outputs]:
        """More exact results for some of the sets, as far as there are any.

        In float64 where that can be had, and else by the runtime without its optimizations.
        """
        missing = [number for number in numbers if number not in self._exact]
        while missing and not self.no_exact:
            if deadline.passed:
                break
            shapes = self.sets[missing[0]].shapes
            some = [n for n in missing if self.sets[n].shapes == shapes]
            self._exact |= self._exactly(some, deadline.part(EXACT_PART))
            if any(number not in self._exact for number in some):  # there was no time for more
                break
            missing = [number for number in missing if number not in self._exact]
        return {number: self._exact[number] for number in numbers if number in self._exact}

    def _exactly(self, numbers: Sequence[int], deadline: Deadline) -> dict[int, Outputs]:
        """More exact results for sets of one shape, the first ones if there is little time."""
        shapes = self.sets[numbers[0]].shapes
        found: dict[int, Outputs] | None = None
        if self.yardstick in ("", FLOAT64):
            model = self._in_double(shapes, deadline)
            if model is not None:
                # An ordinary set shows whether it still is the same model.
                first = [
                    number
                    for number, each in enumerate(self.sets[: self.needed])
                    if each.shapes == shapes and number not in (*numbers, *self._exact)
                ]
                tried = [*first[:1], *numbers]
                runner = Runner(self.worker, _unoptimized(Target("cpu", self.target.threads)))
                found = self._run_exactly(replace(runner, model=model), tried, deadline, wide=True)
                known = [number for number in found or () if number < self.needed]
                if found and any(self._is_another(number, found[number]) for number in known):
                    found = None
                    self.no_double = True
                elif found:
                    self.yardstick = FLOAT64
        if found is None and not deadline.passed:
            self.precise = False
            if self.size > LARGE:
                self.no_exact = "its weights are too large"
                return {}
            found = self._run_with(_unoptimized(self.target), self.model, numbers, deadline)
            if found is not None:
                self.yardstick = UNOPTIMIZED
            elif not deadline.passed:
                self.no_exact = "it does not run without optimizations"
        return found or {}

    def unfused(
        self, model: ModelSource, numbers: Sequence[int], deadline: Deadline
    ) -> Mapping[int, Outputs]:
        """The results of a model on some of the sets, operator by operator, as it is written.

        As far as there is time. Those of the model itself are kept.
        """
        options = _unoptimized(self.target)
        return self._known_with(options, self._own_unfused, model, numbers, deadline)

    def served(
        self, model: ModelSource, numbers: Sequence[int], deadline: Deadline
    ) -> Mapping[int, Outputs]:
        """The results of a model on some of the sets, with the rounding of factors as it is served.

        As far as it runs, and there is time. Those of the model itself are kept.
        """
        options = self.target.session_options()
        return self._known_with(options, self._own_served, model, numbers, deadline)

    def _known_with(
        self,
        options: dict[str, Any],
        own: dict[int, Outputs],
        model: ModelSource,
        numbers: Sequence[int],
        deadline: Deadline,
    ) -> Mapping[int, Outputs]:
        """The results of a model with other options; those of the model itself stay in `own`."""
        known = own if model is self.model else {}
        missing = [number for number in numbers if number not in known]
        if missing:
            known.update(self._run_with(options, model, missing, deadline) or {})
        return {number: known[number] for number in numbers if number in known}

    def _run_with(
        self,
        options: dict[str, Any],
        model: ModelSource,
        numbers: Sequence[int],
        deadline: Deadline,
    ) -> dict[int, Outputs] | None:
        runner = replace(self.runner(model), options=options)
        return self._run_exactly(runner, numbers, deadline, wide=False)

    @cached_property
    def sigmoids(self) -> frozenset[str]:
        """The outputs in 32 bits that a Sigmoid on the processor makes, or movements of that."""
        if self.target.provider != "cpu":
            return frozenset()
        makers = {name: node for node in outline(self.model).graph.node for name in node.output}
        found = set()
        for name, value in (self.outputs[0] if self.outputs else {}).items():
            if getattr(value, "dtype", None) != np.float32:
                continue
            node = makers.get(name)
            while node is not None and node.op_type in MOVING and not node.domain:
                node = makers.get(node.input[0])
            if node is not None and node.op_type == "Sigmoid" and not node.domain:
                found.add(name)
        return frozenset(found)

    @cached_property
    def has_codes(self) -> bool:
        """Whether the model computes with codes of quantized numbers."""
        known = (*CONVERSIONS, *QUANTIZERS)
        return any(node.op_type in known for node in outline(self.model).graph.node)

    def _run_exactly(
        self, runner: Runner, numbers: Sequence[int], deadline: Deadline, *, wide: bool
    ) -> dict[int, Outputs] | None:
        """The results of a more exact form of the model, for as many sets as there is time."""
        sets = [self.sets[number] for number in numbers]
        if wide:
            sets = [
                replace(each, values={k: widened(v) for k, v in each.values.items()})
                for each in sets
            ]
        answers = runner.each(sets, 1, deadline.left / 2, deadline)
        if isinstance(answers, Failed):
            return None
        return {
            numbers[place]: each for place, each in answers.items() if not isinstance(each, Failed)
        }

    def _is_another(self, number: int, exact: Outputs) -> bool:
        """Whether a supposedly more exact form is another model, by an ordinary set of inputs."""
        return any(
            is_another(value, exact.get(name)) for name, value in self.outputs[number].items()
        )

    def _in_double(self, shapes: Shapes, deadline: Deadline) -> bytes | None:
        """The float64 version of the model at some shapes; None where there is none."""
        key = tuple(sorted((name, tuple(sizes)) for name, sizes in shapes.items()))
        if key in self._exact_models:
            return self._exact_models[key]
        if self.size > EXACT_BYTES or self.no_double:
            return None
        options = _unoptimized(Target("cpu", 1))

        def probe(model: ModelProto) -> Sequence[str] | None:
            if deadline.passed:
                raise NoExactForm("there was no time for it")
            request = {"kind": "types", "model": model.SerializeToString(), "options": options}
            answer = self.worker.ask(request, deadline)
            return None if isinstance(answer, Failed) else answer

        try:
            made = in_double(_whole(self.model), shapes, probe)
            data: bytes = made.model.SerializeToString()
        except Exception:  # any error in this is harmless: there is no float64 version then
            return None
        self.precise = made.precise
        self._exact_models = {key: data}  # of one only: it is twice as large as the model
        return data


class _Sets:
    """The inputs that are made for a `model` by the plan of a reference: at its shapes, and others.

    `given` are the shapes that are not to be changed, `base` the sizes that the others came from.
    """

    def __init__(self, model: ModelProto, reference: Reference, given: Shapes, base: Sizes) -> None:
        chosen, plan = reference.shapes, reference.plan
        self.model = model
        self.plan = plan
        self.source = reference.model
        self.other = model
        if plan.other and plan.edge_cases:
            with contextlib.suppress(ModelError):  # what is wrong with it is told when it is run
                self.other = _with_elements_at_hand(plan.other)
        self.feeder = Feeder.of(model, chosen)
        self.small = reference.size <= CHEAP_BYTES
        compared: dict[int, None] = {}
        if plan.edge_cases and free_dimensions(model, given):
            sizes = (*sizes_of_sums(model), *compared_sizes(model), *compared_sizes(self.other))
            compared = dict.fromkeys(sizes)
        self.sizes = other_sizes(
            model,
            given,
            chosen,
            base,
            empty=plan.empty,
            compared=list(compared)[: None if self.small else 1],
        )
        made = np.random.SeedSequence(plan.seed).generate_state(plan.samples + 2)
        self.seeds: list[int] = made.tolist()

    def ordinary(self) -> list[InputSet]:
        """The random inputs, and some at other sizes if these are free."""
        # Every other sample is positive, for models that take roots and logarithms.
        made = [
            InputSet(
                f"sample {number}",
                self.feeder.random(seed, positive=number % 2 == 0),
                self.feeder.shapes,
                ordinary=True,
            )
            for number, seed in enumerate(self.seeds[: self.plan.samples], 1)
        ]
        made += [
            replace(self._resized(what, shapes, self.seeds[-2]), ordinary=True)
            for what, shapes in self.sizes[:1]
        ]
        return made

    def extras(self) -> Iterator[InputSet]:
        """The edge cases, and ordinary inputs at further sizes among them."""
        seed, sizes = self.seeds[-1], self.sizes[1:]
        cases = EdgeCases(
            self.model, self.feeder, planted=self.plan.planted, aimed=self._aimed()
        ).draw(seed, through=self.small)
        for number, each in enumerate(cases):
            if number % 2 == 1 and sizes:
                yield self._resized(*sizes.pop(0), seed)
            yield each
        for what, shapes in sizes:
            yield self._resized(what, shapes, seed)

    def reals(self) -> set[str]:
        """The names of the inputs that may hold any real numbers."""
        return EdgeCases(self.model, self.feeder, planted=False).reals

    def _aimed(self) -> Mapping[str, np.ndarray]:
        """Indices of rows in which the two models differ."""
        names = [name for name, role in self.feeder.roles.items() if role.high is not None]
        if self.other is self.model or not names:
            return {}
        folders = _folder(self.source), _folder(self.plan.other)
        return differing_indices((self.model, self.other), folders, self.feeder.shapes, names)

    def _resized(self, what: str, shapes: dict[str, tuple[int, ...]], seed: int) -> InputSet:
        values = Feeder.of(self.model, shapes).random(seed)
        return InputSet(what, values, shapes, resized=True)


@dataclass(frozen=True)
class Runner:
    """Runs a model on sets of inputs."""

    worker: Worker
    options: dict[str, Any]
    """The description of a session, see `Target.session_options`."""
    model: ModelSource = b""
    mapped: tuple[str, ...] = ()
    """The files of a large model's weights, whose pages need not stay in memory."""

    @staticmethod
    def of(model: ModelSource, target: Target, worker: Worker) -> Runner:
        """A runner of a model on a target, without the rounding that a faster run may have."""
        return Runner(worker, target.session_options(precise=True), model)

    def holding_once(self, weights: Weights) -> Runner:
        """The same, of which no weight is held twice, as one that is rearranged for speed is."""
        entries = {**self.options["entries"], "session.disable_prepacking": "1"}
        mapped = tuple(str(file.resolve()) for file in weights.files)
        return replace(self, options={**self.options, "entries": entries}, mapped=mapped)

    def each(
        self,
        sets: Sequence[InputSet],
        needed: int,
        extra_s: float,
        deadline: Deadline,
        *,
        until_one: bool = False,
        given: int | None = None,
        needed_s: float | None = None,
    ) -> dict[int, Outputs | Failed] | Failed:
        """All outputs by name for each set, or why it failed; or why the model cannot be run.

        Of those behind the `needed` ones, there are as many as there was time for. Once `needed_s`
        seconds have passed, there are of these the first `given` ones, and one that does not fail.
        One that ends the process costs itself, if there are not too many such, and says of the
        model that it does not run where it is the first, or `given`; or needed, if that is None.
        """
        lost: dict[int, Outputs | Failed] = {}
        while True:
            left = deadline.left
            if not left:
                return Failed(OUT_OF_TIME)
            count = len(sets) if len(lost) <= CRASHES else needed
            chosen = [number for number in range(count) if number not in lost]
            request = {
                "kind": "each",
                "model": model_to_wire(self.model),
                "options": self.options,
                "mapped": list(self.mapped),
                "feeds": [
                    {name: to_wire(value) for name, value in sets[number].values.items()}
                    for number in chosen
                ],
                "needed": sum(number < needed for number in chosen),
                "given": sum(number < (given or 0) for number in chosen),
                "needed_s": needed_s,
                "extra_s": extra_s,
                "extra_bytes": EXTRA_BYTES,
                "until_one": until_one,
            }
            # One that hangs must leave time to run the others without it.
            patience = STEP * left if needed < len(chosen) else math.inf
            answer = self.worker.ask(request, deadline, patience)
            if isinstance(answer, Lost) and not deadline.passed:
                most = needed if given is None else max(given, 1)
                if not answer.model or chosen[answer.model - 1] < most:
                    return answer
                lost[chosen[answer.model - 1]] = answer
                continue  # the earlier sets are run once more, without that one
            if isinstance(answer, Failed):
                return answer
            return lost | {
                number: _answer(each)
                for number, each in zip(chosen, answer, strict=False)
                if "late" not in each
            }


def _declared_shapes(model: ModelProto) -> Mapping[str, Sequence[int | None]]:
    """The sizes that a model states of its outputs, None for those that vary, where it states some.

    They reveal wrong kernels of the runtime: those of reductions over negative axes give an output
    of the input's shape where there is no element.
    """
    return {
        item.name: [
            dim.dim_value if is_fixed(dim) else None for dim in item.type.tensor_type.shape.dim
        ]
        for item in model.graph.output
        if item.type.tensor_type.HasField("shape")
    }


def _has(value: Any, dims: Sequence[int | None]) -> bool:
    """Whether an output has the sizes that are stated of it."""
    shape = np.shape(value)
    return len(shape) == len(dims) and all(
        dim in (None, size) for dim, size in zip(dims, shape, strict=True)
    )


def _is_empty(used: InputSet) -> bool:
    return any(0 in shape for shape in used.shapes.values())


def _answer(message: Mapping[str, Any]) -> Outputs | Failed:
    if "failed" in message:
        return Failed(_plain(message["failed"]))
    return {name: from_wire(value) for name, value in message["outputs"].items()}


def _may_be_random(model: ModelProto) -> bool:
    """Whether a model may give other results for the same inputs, by its operators."""
    own = {function.domain for function in model.functions}
    return any(
        is_random(node) or node.domain not in {"", "ai.onnx", "ai.onnx.ml", *own}
        for node in all_nodes(model)
    )


def _plain(reason: str) -> str:
    """Which operator failed, and why, if the runtime's message says so; else the message."""
    found = OPERATOR_FAILED.search(reason)
    if found is None:
        return reason
    name = f" {found['name']!r}" if found["name"] else ""
    return f"{found['op']}{name} fails: {found['why']}"


def edge_case_seconds(left: float) -> float:
    """Seconds of a check that has so many left which the edge cases may take of each model."""
    return min(EXTRA_S, EXTRA * left)


def runnable(
    runner: Runner, model: ModelProto, given: Shapes | None, *, seed: int, deadline: Deadline
) -> tuple[Sizes, dict[str, tuple[int, ...]]] | None:
    """The first sizes of dynamic dimensions at which the model runs on random inputs.

    The default is tried first, then small to large sizes.  None where it runs at none.
    """
    found: list[tuple[Sizes, dict[str, tuple[int, ...]]]] = []
    sets: list[InputSet] = []
    tables = indexed_dimensions(model)
    for sizes in LADDER:
        with contextlib.suppress(ModelError):  # too large to be fed
            shapes = default_shapes(model, given, sizes=sizes, tables=tables)
            small = sum(map(math.prod, shapes.values())) <= TRIED or not found
            if small and all(shapes != each for _, each in found):
                found.append((sizes, shapes))
                sets.append(InputSet("sizes", Feeder.of(model, shapes).random(seed), shapes))
    # None of them is needed: one that ends the process costs itself alone.
    answers = runner.each(sets, 0, deadline.left, deadline, until_one=True)
    if isinstance(answers, Failed):
        return None
    works = [number for number, each in answers.items() if not isinstance(each, Failed)]
    return found[works[0]] if works else None


def runs_at(
    model: Path, target: Target, worker: Worker, deadline: Deadline
) -> Callable[[Shapes], bool]:
    """Whether a model runs at some sizes of what given shapes leave free."""
    runner = Runner.of(model, target, worker)
    return lambda given: (
        runnable(runner, outline(model), given, seed=0, deadline=deadline) is not None
    )


def _with_elements_at_hand(model: ModelSource) -> ModelProto:
    """A model of which each weight is in it, or in a file that it names.

    Files of external data may not be links, nor have names with dots that lead elsewhere.
    """
    if isinstance(model, Path) and ".." not in model.name and not model.is_symlink():
        with contextlib.suppress(OSError):
            if model.stat().st_nlink == 1:
                return outline(model)
    return load_proto(model)


def _whole(model: ModelSource) -> ModelProto:
    """A model with its weights."""
    return onnx.load(model) if isinstance(model, Path) else onnx.load_from_string(model)


def _folder(model: ModelSource) -> Path:
    """Where the files of a model's external data lie."""
    return model.parent if isinstance(model, Path) else Path()


def _unoptimized(target: Target) -> dict[str, Any]:
    return {**target.session_options(precise=True), "optimized": False}


def _some(sets: Iterator[InputSet], most_bytes: int, most_s: float) -> list[InputSet]:
    """As many of the sets as do not take too much time and memory to make."""
    found: list[InputSet] = []
    deadline, size = Deadline.after(most_s), 0
    for each in sets:
        found.append(each)
        size += sum(_bytes(value) for value in each.values.values())
        if size > most_bytes or deadline.passed:
            break
    return found


def _bytes(value: Any) -> int:
    return sum(map(_bytes, value)) if isinstance(value, list) else int(value.nbytes)
