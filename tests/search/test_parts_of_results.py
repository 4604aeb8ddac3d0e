"""A result that is taken apart may be computed in parts, which stay in the runtime's layout."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from graphs import assert_same
from recognition import computed, searched
from spellings import rules_over

from xflow.onnx.importer import import_model
from xflow.search.constants import Constants
from xflow.search.cutting import cut

CONCERNED = ("Conv", "Sigmoid", "Mul", "Split", "Slice", "Relu", "Identity")
WEIGHTS = {"w": (64, 64, 1, 1), "b": (64,), "u": (32, 32, 3, 3), "v": (32, 32, 3, 3)}
ACTIVATIONS = {"none": "Identity (c)", "of one": "Relu (c)", "of two": "Mul (c, g)"}


def model(activation: str) -> ir.Model:
    """A convolution whose channels go two ways, through a convolution each."""
    proto = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[1, 64, 40, 40] x) => (float[1, 32, 40, 40] y, float[1, 32, 40, 40] z)
        <int64[2] halves = {{32, 32}}> {{
            c = Conv (x, w, b)
            g = Sigmoid (c)
            a = {activation}
            p, q = Split <axis = 1> (a, halves)
            y = Conv <pads = [1, 1, 1, 1]> (p, u)
            z = Conv <pads = [1, 1, 1, 1]> (q, v)
        }}"""
    )
    random = np.random.default_rng(0)
    for name, size in WEIGHTS.items():
        data = random.standard_normal(size, np.float32) / 24
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    made: ir.Model = ir.from_proto(proto)
    return made


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_channels_that_go_two_ways_are_convolved_by_two_kernels(activation: str) -> None:
    """Past each operator the parts are moved in vain: only behind the last one that gains."""
    source = import_model(model(ACTIVATIONS[activation]))
    found = searched(source, rules_over(*CONCERNED)).graph
    operators = computed(found)
    assert operators["Conv"] == 4, operators
    assert not operators["Split"]
    assert not operators["Slice"]
    assert_same(source.graph, found)


def test_what_is_taken_apart_is_in_one_region_with_what_computes_it() -> None:
    source = import_model(model(ACTIVATIONS["of two"]))
    for shifted in (False, True):
        regions = cut(source.graph, Constants(source.constants), shifted)
        (whole,) = (each.graph for each in regions if "Split" in computed(each.graph))
        assert {"Conv", "Sigmoid", "Mul"} <= computed(whole).keys()
