"""Whether two models are the same up to names is told whatever order a file lists things in."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

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


def constant(data: np.ndarray) -> ir.Model:
    """A model that adds a constant."""
    kind = {"float16": "float16", "float32": "float", "float64": "double"}[str(data.dtype)]
    text = f"g ({kind}[N] x) => ({kind}[N] y) {{ y = Add(x, c) }}"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.initializer.append(numpy_helper.from_array(data, "c"))
    made: ir.Model = ir.from_proto(model)
    return made


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_computed_constants_may_differ_by_one_unit_among_numbers_alone(dtype: type) -> None:
    info = np.finfo(dtype)
    one = dtype(1)
    above = np.nextafter(one, dtype(2))
    tiny = info.smallest_subnormal
    same = [(one, one), (one, above), (-one, -above), (np.inf, np.inf), (np.nan, np.nan)]
    same += [(tiny, 2 * tiny), (info.max, np.nextafter(info.max, dtype(0))), (0.0, 0.0)]
    others = [(info.max, np.inf), (info.min, -np.inf), (np.inf, np.nan), (0.0, tiny), (tiny, 0.0)]
    others += [(tiny, -tiny), (0.0, -0.0), (one, np.nextafter(above, dtype(2))), (one, -one)]
    others += [(np.inf, info.max), (-np.inf, np.inf)]
    for pairs, says in ((same, None), (others, "1 of its 2 elements are others")):
        for pair in pairs:
            mine, theirs = (constant(np.array([3, each], dtype)) for each in pair)
            fault = difference(mine, theirs, lambda tensor: False)
            assert (fault is None) == (says is None), pair
            assert says is None or says in str(fault)
