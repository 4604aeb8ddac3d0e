"""Where a rule applies to a model, and why it does not elsewhere."""

from pathlib import Path

import onnx
import pytest

from xflow.cli import entry
from xflow.core.errors import ExitCode, UnknownRuleError
from xflow.pipeline.rule_places import rule_places
from xflow.rewriting.text import parse_rules

RULES = parse_rules(
    """
rule relu-relu-to-relu
  in       x[...]
  from     Relu(Relu(x))
  to       Relu(x)

rule transposed-twice
  in       x[n, m]
  from     Transpose(Transpose(x, perm=[1, 0]), perm=[1, 0])
  to       Identity(x)

rule narrow-product
  in       x[n, k] w[k, m]
  from     Relu(MatMul(x, w))
  to       MatMul(x, w)
  where    m <= 3

rule divided-by-itself
  in       x[...] w[...]
  from     Div(Mul(x, w), w)
  to       Identity(x)
  where    w != 0
"""
)
MODEL = onnx.parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 20]>
    g (float[4, 4] x, float[4, 4] v) => (float[4, 4] a, float[4, 4] b, float[4, 4] c, float[4, 4] d)
    <float[4, 4] w = {1, 2, 3, 4, -5, 6, 7, 8, 9, 1, -2, 3, 4, 5, 6, 7}> {
        r = Relu(x) a = Relu(r)
        t = Transpose<perm = [0, 1]>(v) b = Transpose<perm = [1, 0]>(t)
        m = MatMul(x, w) c = Relu(m)
        p = Mul(x, v) d = Div(p, v)
    }"""
)


def told(name: str) -> str:
    forward = rule_places(MODEL, name, rules=RULES)[0]
    return "\n".join(forward.lines())


def test_a_place_where_a_rule_applies_is_named() -> None:
    assert "applies at 1 node: a" in told("relu-relu-to-relu")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("relu-relu-to-relu", "1 of 2 operators at c:\n    at m, the rule has Relu here"),
        ("transposed-twice", "perm of Transpose is (0, 1) and not (1, 0)"),
        ("narrow-product", "it is not known whether"),
        ("divided-by-itself", "it is not shown that w != 0"),
    ],
)
def test_where_a_rule_nearly_matches_the_condition_that_fails_is_told(rule: str, said: str) -> None:
    assert said in told(rule)


def test_a_rule_of_operators_that_the_model_does_not_have_is_told_so() -> None:
    rules = parse_rules("rule t\n  in x[...]\n  from Tanh(Abs(x))\n  to Tanh(x)\n")
    (direction,) = rule_places(MODEL, "t", rules=rules)
    assert "no node has the operator at its root, Tanh" in "\n".join(direction.lines())


def test_an_unknown_rule_is_one_sentence() -> None:
    with pytest.raises(UnknownRuleError):
        rule_places(MODEL, "no-such-rule", rules=RULES)


def test_the_command_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(MODEL, tmp_path / "model.onnx")
    line = ["explain", str(tmp_path / "model.onnx"), "--rule", "relu-relu-to-relu"]
    assert entry.main(line) == ExitCode.OK
    assert "applies at 1 node: a" in capsys.readouterr().out
