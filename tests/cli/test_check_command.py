"""`xflow check A B`: one exit code for each answer, and one sentence for a bad one."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper
from products import RULES, two_products
from small_models import small_model

import xflow
from xflow.cli import entry
from xflow.cli.commands import check
from xflow.core.errors import ExitCode
from xflow.cost.comparison import Comparison, Timing
from xflow.cost.measure import PASSES, Measurer


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A model, one that is wrong, one with another output, and one that is no model."""
    onnx.save(small_model(), tmp_path / "a.onnx")
    same = small_model()
    same.producer_name = "somebody else"
    onnx.save(same, tmp_path / "same.onnx")
    wrong = small_model()
    wrong.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones(1, np.float32) * 2, "c"))
    onnx.save(wrong, tmp_path / "wrong.onnx")
    renamed = small_model()
    renamed.graph.output[0].name = renamed.graph.node[-1].output[0] = "z"
    onnx.save(renamed, tmp_path / "renamed.onnx")
    (tmp_path / "text.onnx").write_text("This is not a model.")
    return tmp_path


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        ("same", ExitCode.OK, ""),
        ("wrong", ExitCode.DIFFERENT, "output 'y' differs"),
        ("renamed", ExitCode.DIFFERENT, "the outputs were 'y' and are now 'z'"),
        ("text", ExitCode.ERROR, "not an ONNX model"),
        ("absent", ExitCode.ERROR, "no such file"),
    ],
)
def test_each_answer_has_its_exit_code(
    after: str, code: ExitCode, said: str, models: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["check", str(models / "a.onnx"), str(models / f"{after}.onnx")]) == code
    out, err = capfd.readouterr()
    assert said in err
    assert err.count("\n") == (code != ExitCode.OK)
    assert ("equal on 4 sets" in out) == (code == ExitCode.OK)


def test_what_optimize_gives_out_is_the_same(tmp_path: Path) -> None:
    """Also where it has made constants of weights that were inputs."""
    model = two_products()
    for tensor in model.graph.initializer:
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    onnx.save(model, tmp_path / "a.onnx")
    result = xflow.optimize(tmp_path / "a.onnx", rules=RULES, cost="estimated", budget=3)
    onnx_ir.save(result.model, tmp_path / "b.onnx")
    assert len(result.model.graph.inputs) < len(model.graph.input)
    assert entry.main(["check", "-q", str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")]) == 0


@pytest.mark.parametrize(
    ("ratio", "allowed", "code"),
    [(1.2, "0", ExitCode.OK), (0.8, "5", ExitCode.SLOWER), (0.8, "30", ExitCode.OK)],
)
def test_a_model_is_slower_only_beyond_doubt(
    ratio: float, allowed: str, code: ExitCode, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = Timing((1e-3, 1e-3))
    compared = Comparison(ratio, ratio - 0.02, ratio + 0.02, timing, timing)
    monkeypatch.setattr(Measurer, "compare", lambda *_, **__: compared)
    a, b = str(models / "a.onnx"), str(models / "same.onnx")
    assert entry.main(["check", a, b, "--max-regress", allowed]) == code
    assert not check.is_slower(Comparison(0.9, 0.7, 1.01, timing, timing), 0)


def test_a_model_that_seems_slower_is_timed_again(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with other work two sessions of one model may differ by much."""
    asked: list[int] = []

    def measured(*arguments: object, **_: object) -> list[tuple[Timing, Timing]]:
        asked.append(0)
        bad_luck = 2.0 if len(asked) <= PASSES else 1.0
        return [(Timing((1e-3,) * 5), Timing((1e-3 * bad_luck,) * 5))]

    monkeypatch.setattr(Measurer, "_pass", measured)
    a, b = str(models / "a.onnx"), str(models / "same.onnx")
    assert entry.main(["check", a, b, "--max-regress", "5"]) == ExitCode.OK
    assert len(asked) == 3 * PASSES
