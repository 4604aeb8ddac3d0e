"""ONNX's own backend test models, optimized: valid, right by the suite's data, the same interface.

All of them take half an hour: `make suites`.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
import suites
from suites import Counts, Kept, Suite

MODULES = ("if_", "loop", "scan", "softmax", "layernormalization", "sequence_map", "hardsigmoid")
SAMPLE = frozenset(
    (
        *("test_if", "test_if_seq", "test_loop11", "test_loop13_seq", "test_scan9_sum"),
        *("test_softmax_axis_0_expanded_ver18", "test_softmax_default_axis_expanded"),
        *("test_hardsigmoid_default_expanded_ver18", "test_layer_normalization_2d_axis1_expanded"),
        *("test_sequence_map_add_2_sequences", "test_sequence_map_identity_1_sequence_expanded"),
        *("test_single_relu_model", "test_sequence_model1", "test_expand_shape_model1"),
        *("test_strnorm_model_monday_empty_output", "test_shrink", "test_Conv2d_depthwise"),
        *("test_Linear_no_bias", "test_Softmin", "test_operator_addmm", "test_operator_basic"),
        *("test_BatchNorm2d_eval", "test_Conv1d_groups", "test_LogSoftmax"),
    )
)
UNFED = frozenset(
    f"test_affine_grid_{axes}{corners}_expanded"
    for axes in ("2d", "3d")
    for corners in ("", "_align_corners")
)
"""Their sizes are the values of an input, and those that are drawn for it do not fit the other."""


def counted(models: Iterable[Suite], folder: Path, worker: Kept, budget: float) -> Counts:
    counts = Counts()
    for model in models:
        suites.examine(model, folder, worker, counts, budget)
    print(f"\n{counts}")
    for sentence, number in counts.refused.most_common():
        print(f"{number:5} {sentence}")
    return counts


def test_a_sample_of_the_backend_tests_stays_right(tmp_path: Path, worker: Kept) -> None:
    models = [*suites.node_models(MODULES), *suites.stored_models()]
    sample = [model for model in models if model.name in SAMPLE]
    assert {model.name for model in sample} == SAMPLE
    counts = counted(sample, tmp_path, worker, budget=0.5)
    assert not counts.wrong
    assert counts.run >= 20
    assert counts.changed, "nothing is shown by models that are left as they are"


@pytest.mark.suites
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["node", "stored", "light"])
def test_all_backend_tests_stay_right(kind: str, tmp_path: Path, worker: Kept) -> None:
    models = {
        "node": suites.node_models,
        "stored": suites.stored_models,
        "light": suites.light_models,
    }[kind]()
    counts = counted(models, tmp_path, worker, budget=30 if kind == "light" else 3)
    assert not counts.wrong
    assert set(counts.unfed) <= UNFED
    assert counts.changed
