"""Runs the backend test models of the installed onnx package through the optimizer."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner, _normalize_tensor

import xflow
from xflow.core.deadline import Deadline
from xflow.core.errors import XflowError
from xflow.cost.measure import Target
from xflow.cost.worker import Failed, Worker, from_wire, to_wire
from xflow.onnx import files
from xflow.onnx.freeze import overridable
from xflow.validation.equivalence import check_equivalent

ON_DISK = ("simple", "pytorch-converted", "pytorch-operator")
LIMIT_S = 60.0
Data = tuple[Sequence[Any], Sequence[Any]]


@dataclass(frozen=True)
class Suite:
    """One model of a suite, with inputs and the outputs that are expected of it."""

    name: str
    model: onnx.ModelProto
    data: Sequence[Data]
    rtol: float
    atol: float


@dataclass
class Counts:
    """Counts of outcomes; `wrong` are models whose result breaks a promise, and how."""

    models: int = 0
    run: int = 0
    """Models that the runtime can run."""
    deviating: int = 0
    """Those of them whose results are not those of the suite in the runtime itself."""
    changed: int = 0
    unfed: list[str] = field(default_factory=list)
    """Those that are refused since they run with no inputs but those of the suite."""
    refused: Counter[str] = field(default_factory=Counter)
    """Sentences with which models are refused, and how often."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        refused = sum(self.refused.values())
        return (
            f"{self.models} models: {self.run} run in ONNX Runtime ({self.deviating} of them not "
            f"with the results of the suite); {self.changed} rewritten, {refused} refused, "
            f"{len(self.unfed)} of them as no random inputs suit them, {len(self.wrong)} wrong"
        )


class Kept(Worker):
    """A process that serves many runs: it is not closed at the end of each."""

    def __exit__(self, *_: object) -> None:
        """Leave it running; `close` ends it."""


def node_models(modules: Iterable[str] = ()) -> Iterator[Suite]:
    """The models of single operators; those of some modules only, if these are given."""
    from onnx.backend.test.case import node  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in modules:
            importlib.import_module(f"onnx.backend.test.case.node.{module}")
        cases = node._NodeTestCases if modules else load_model_tests(kind="node")
    for case in cases:
        data = [
            ([_normalize_tensor(x) for x in inputs], [_normalize_tensor(x) for x in outputs])
            for inputs, outputs in case.data_sets
        ]
        yield Suite(case.name, case.model, data, case.rtol, case.atol)


def stored_models(kinds: Iterable[str] = ON_DISK) -> Iterator[Suite]:
    """The models that lie in the package as files."""
    for kind in kinds:
        for case in load_model_tests(kind=kind):
            model = onnx.load(Path(case.model_dir) / "model.onnx")
            yield Suite(case.name, model, list(_stored_data(case, model)), case.rtol, case.atol)


def _stored_data(case: TestCase, model: onnx.ModelProto) -> Iterator[Data]:
    for folder in sorted(Path(case.model_dir).glob("test_data_set*")):
        yield tuple(  # type: ignore[misc]
            [
                _read(folder / f"{kind}_{number}.pb", info.type.WhichOneof("value"))
                for number, info in enumerate(infos)
                if (folder / f"{kind}_{number}.pb").exists()
            ]
            for kind, infos in (("input", model.graph.input), ("output", model.graph.output))
        )


def _read(path: Path, kind: str) -> Any:
    data = path.read_bytes()
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def light_models() -> Iterator[Suite]:
    """Whole networks whose weights are computed by ConstantOfShape."""
    for path in sorted(Path(DATA_DIR, "light").glob("*.onnx")):
        model = onnx.load(path)
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [
            None if item.name in weights else Runner.generate_dummy_data(item)
            for item in model.graph.input
        ]
        stored = path.with_name(f"{path.stem}_output_0.pb")
        yield Suite(path.stem, model, [(inputs, [_read(stored, "tensor_type")])], 1e-3, 1e-5)


def examine(suite: Suite, folder: Path, worker: Worker, counts: Counts, budget: float) -> None:
    """Optimize a model, write it, and compare the written one's results with the suite's."""
    counts.models += 1
    before, after = folder / "before.onnx", folder / "after.onnx"
    after.unlink(missing_ok=True)
    before.write_bytes(suite.model.SerializeToString())
    names = [value.name for value in suite.model.graph.output]
    inputs = [value.name for value in suite.model.graph.input]
    data = [
        ({k: v for k, v in zip(inputs, given, strict=False) if v is not None}, wanted)
        for given, wanted in suite.data
    ]
    reference = _run(before, data, worker)
    if reference is not None:
        counts.run += 1
        try:
            _compare(suite, [wanted for _, wanted in data], reference, names)
        except AssertionError:
            counts.deviating += 1
        else:
            reference = [dict(zip(names, wanted, strict=True)) for _, wanted in data]
    try:
        result = xflow.optimize(before, cost="estimated", budget=budget, threads=1, check=1)
    except XflowError as error:
        counts.refused[str(error)[:60]] += 1
        if reference is not None:
            if check_equivalent(before, before, worker=worker).culprit == "before":
                counts.unfed.append(suite.name)  # it does not run with the inputs that are drawn
            else:
                counts.wrong.append(f"{suite.name}: {error}")
        return
    if not result.report.changed:
        return
    counts.changed += 1
    files.write_model_atomically(result.model, after, source=before)
    try:
        onnx.checker.check_model(str(after), full_check=True)
        _same_interface(suite.model, onnx.load(after), overridable(files.load_model(before)))
        results = _run(after, data, worker)
        if reference is not None:
            assert results is not None, "it does not run"
            wanted = [[each[name] for name in names] for each in reference]
            _compare(suite, wanted, results, names)
    except Exception as error:
        counts.wrong.append(f"{suite.name}: {' '.join(str(error).split())[:300]}")


def _same_interface(before: onnx.ModelProto, after: onnx.ModelProto, frozen: Sequence[str]) -> None:
    kept = [value for value in before.graph.input if value.name not in frozen]
    assert list(after.graph.input) == kept, "it has other inputs"
    assert list(after.graph.output) == list(before.graph.output), "it has other outputs"


def _run(
    path: Path, data: Sequence[tuple[Mapping[str, Any], Sequence[Any]]], worker: Worker
) -> list[dict[str, Any]] | None:
    """The outputs for each set of inputs; None where the model does not run."""
    answer = worker.ask(
        {
            "kind": "run",
            "model": str(path),
            "options": Target("cpu", 1).session_options(),
            "feeds": [{name: _wire(value) for name, value in feeds.items()} for feeds, _ in data],
        },
        Deadline.after(LIMIT_S),
    )
    if isinstance(answer, Failed):
        return None
    return [{name: from_wire(value) for name, value in each.items()} for each in answer]


def _wire(value: Any) -> Any:
    return (
        [_wire(each) for each in value] if isinstance(value, list) else to_wire(np.asarray(value))
    )


def _compare(
    suite: Suite,
    wanted: Sequence[Sequence[Any]],
    results: Sequence[Mapping[str, Any]],
    names: Sequence[str],
) -> None:
    """Raise AssertionError unless results are as wanted, within the tolerance of the suite."""
    for expected, result in zip(wanted, results, strict=True):
        _alike(suite, list(expected), [result[name] for name in names])


def _alike(suite: Suite, expected: Any, given: Any) -> None:
    """The same for a value; of a sequence, which the runner takes no scalars in, for each."""
    if isinstance(expected, list) and isinstance(given, list):
        assert len(expected) == len(given), "it has another length"
        for one, other in zip(expected, given, strict=True):
            _alike(suite, one, other)
        return
    try:
        Runner.assert_similar_outputs([expected], [given], suite.rtol, suite.atol)
    except (TypeError, AttributeError) as error:  # an optional value that is not there
        raise AssertionError(str(error)) from error
