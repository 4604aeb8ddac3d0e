"""Whether two models are the same up to names is told whatever order a file lists things in."""

import onnx
import onnx_ir as ir
import pytest
from onnx import parser

from xflow.onnx.isomorphism import difference

CHOICE = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[N] x, bool c) => (float[N] y) {
    y = If (c) <
        then_branch = yes () => (float[N] a) { a = Relu(x) },
        else_branch = no () => (float[N] b) { b = Neg(x) }
    >
}
"""


def choice(names: tuple[str, str]) -> ir.Model:
    """A model that chooses, with its branches listed in this order."""
    model = parser.parse_model(CHOICE)
    branches = {each.name: each for each in model.graph.node[0].attribute}
    model.graph.node[0].ClearField("attribute")
    model.graph.node[0].attribute.extend([branches[name] for name in names])
    onnx.checker.check_model(model)
    made: ir.Model = ir.from_proto(model)
    return made


@pytest.mark.parametrize("names", [("then_branch", "else_branch"), ("else_branch", "then_branch")])
def test_branches_are_compared_by_name(names: tuple[str, str]) -> None:
    one = choice(("then_branch", "else_branch"))
    assert difference(one, choice(names), lambda tensor: True) is None


def test_exchanged_branches_differ() -> None:
    one, other = (choice(("then_branch", "else_branch")) for _ in range(2))
    attributes = other.graph.node(0).attributes
    then, otherwise = (attributes[name].as_graph() for name in ("then_branch", "else_branch"))
    attributes["then_branch"] = ir.AttrGraph("then_branch", otherwise)
    attributes["else_branch"] = ir.AttrGraph("else_branch", then)
    fault = difference(one, other, lambda tensor: True)
    assert fault is not None
    assert "Neg where a Relu follows" in fault
