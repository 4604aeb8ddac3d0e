"""Random models, optimized: none wrong, none refused, every interface kept.

Half of them are searched with a cost that is a whim, so that rewrites are made that no sensible
search would choose: what is written must be right whatever the search does. There are models that
are valid by construction, with all that models are made of, and models of operators on floats whose
sizes and attributes a solver finds. Some thousands take half an hour: `make many`.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
import suites
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_models import models
from solved_models import solved_models
from whims import Whim

import xflow
from xflow.core.errors import ValidationFailed
from xflow.onnx import files
from xflow.onnx.freeze import frozen
from xflow.onnx.interface import check_interface
from xflow.onnx.types import interface
from xflow.pipeline import attempts
from xflow.pipeline.certify import certify
from xflow.pipeline.log import read_report
from xflow.pipeline.pipeline import Result
from xflow.validation.equivalence import check_equivalent

IN_CI, SOLVED_IN_CI = 40, 20
MANY = 2000


def optimized(path: Path, whimsical: bool, budget: float) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        if whimsical:
            patch.setattr(attempts, "EstimatedCost", Whim)
        return xflow.optimize(path, cost="estimated", budget=budget, threads=1, check=1)


def examine(model: onnx.ModelProto, whimsical: bool, folder: Path, worker: suites.Kept) -> str:
    """Optimize a model, and assert what is promised of the result; say what became of it."""
    before, after = folder / "before.onnx", folder / "after.onnx"
    onnx.checker.check_model(model, full_check=True)
    before.write_bytes(model.SerializeToString())
    try:
        result = optimized(before, whimsical, budget=0.2)
    except ValidationFailed:  # the runtime has lost a value that is read in a graph further inside
        assert check_equivalent(before, before, worker=worker).culprit == "before"
        return "not run by the runtime"
    warnings = [text for text in result.report.warnings if "dropped" in text]
    for text in warnings:
        print(text[-200:])
    said = "with a rewrite dropped" if warnings else "as they are"
    if not result.report.changed:
        return said
    files.write_model_atomically(result.model, after, source=before)
    onnx.checker.check_model(str(after), full_check=True)
    expected = interface(frozen(files.load_model(before)))
    assert check_interface(expected, onnx.load(after)) is None
    leans = bool(result.report.assumed)  # on inputs that are numbers, and then nothing else is said
    check = check_equivalent(before, after, samples=2, seed=77, worker=worker, planted=not leans)
    if check.culprit == "after" and "no elements" in check.reason:
        # Some fusions of the runtime fail there, and nothing is promised of such inputs.
        check = check_equivalent(
            before, after, samples=2, worker=worker, planted=not leans, empty=False
        )
    assert check.ok, check.reason
    report = folder / "report.json"
    report.write_text(result.report.to_json())
    certify(before, after, read_report(report)[1], lambda rule: "")  # they are proved elsewhere
    return "rewritten, one dropped" if warnings else "rewritten"


def run(
    made: st.SearchStrategy[onnx.ModelProto], number: int, folder: Path, worker: suites.Kept
) -> Mapping[str, int]:
    counts: Counter[str] = Counter()

    @settings(
        max_examples=number,
        deadline=None,
        derandomize=number < MANY,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(made, st.booleans())
    def holds(model: onnx.ModelProto, whimsical: bool) -> None:
        counts[examine(model, whimsical, folder, worker)] += 1

    holds()
    print("\n" + ", ".join(f"{n} {said}" for said, n in counts.most_common()))
    return counts


def test_random_models_stay_right(tmp_path: Path, worker: suites.Kept) -> None:
    counts = run(models(), IN_CI, tmp_path, worker)
    assert counts["rewritten"] >= IN_CI / 10


def test_models_whose_sizes_a_solver_found_stay_right(tmp_path: Path, worker: suites.Kept) -> None:
    counts = run(solved_models(), SOLVED_IN_CI, tmp_path, worker)
    assert counts["rewritten"] >= SOLVED_IN_CI / 10


@pytest.mark.many
@pytest.mark.timeout(7200)
def test_thousands_of_random_models_stay_right(tmp_path: Path, worker: suites.Kept) -> None:
    counts = run(models(), MANY, tmp_path, worker)
    assert counts["rewritten"] >= MANY / 10


@pytest.mark.many
@pytest.mark.timeout(7200)
def test_thousands_whose_sizes_a_solver_found_stay_right(
    tmp_path: Path, worker: suites.Kept
) -> None:
    counts = run(solved_models(), MANY, tmp_path, worker)
    assert counts["rewritten"] >= MANY / 10
