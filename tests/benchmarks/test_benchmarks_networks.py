"""The networks that the benchmark builds after papers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import judge
from architectures import BUILT, NAS_STEPS
from hydrate import hydrate
from xflow.feeds.inputs import random_inputs


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("vgg19", 143_667_240),
        ("bert_large", 335_141_888),
        ("nasrnn", NAS_STEPS * 16 * 512**2 + 512),
    ],
)
def test_a_network_has_as_many_weights_as_is_published(name: str, published: int) -> None:
    weights = [tensor for tensor in BUILT[name]().graph.initializer if tensor.doc_string]
    assert sum(math.prod(tensor.dims) for tensor in weights) == published


def test_nasrnn_computes_the_cell(tmp_path: Path) -> None:
    network = hydrate(BUILT["nasrnn"]())
    weights = {t.name: numpy_helper.to_array(t).astype(float) for t in network.graph.initializer}
    feeds = random_inputs(network, 0)

    def relu(v: Any) -> Any:
        return np.maximum(v, 0)

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    h = weights["state"]
    for step in range(NAS_STEPS):
        x = feeds[f"x{step}"]
        t = [
            x @ weights[f"step{step}.input.{n}"] + h @ weights[f"step{step}.state.{n}"]
            for n in range(8)
        ]
        left = np.tanh(relu(t[0]) + sigmoid(t[3])) * np.tanh(sigmoid(t[6]) * relu(t[7]))
        right = sigmoid(sigmoid(t[1]) + np.tanh(t[2])) + np.tanh(sigmoid(t[4]) * np.tanh(t[5]))
        h = np.tanh(np.tanh(left) * np.tanh(right))
    onnx.save(network, tmp_path / "nasrnn.onnx")
    (result,) = judge.load(tmp_path / "nasrnn.onnx", 1, "cpu").run(None, feeds)
    assert result == pytest.approx(h, abs=1e-5)
