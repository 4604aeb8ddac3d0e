#!/usr/bin/env python3
"""The networks of TASO's and Tensat's papers that are in no model library as ONNX.

They are written down here with the dimensions of their publications, weightless as the models in
`models/`; `hydrate.py` gives them weights.

    python architectures.py NAME OUT.onnx [--seed N]
"""

import argparse
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
from onnx import TensorProto

from hydrate import hydrate
from isolated.expression import Emptied, Tensor, Variable, model, node, tensor, variables

OPSET = 20


def weight(name: str, *shape: int, std: float, mean: float = 0.0) -> Tensor:
    """Weights of a network, by their name in it."""
    return Tensor(Emptied(name, shape, mean, std))


def bias(name: str, size: int) -> Tensor:
    """A bias, which starts as zeros; `hydrate.py` draws it as if it had been trained."""
    return weight(name, size, std=0.0)


# NasRNN

NAS_HIDDEN = 512
NAS_STEPS = 5
NAS_GATES = ("Relu", "Sigmoid", "Tanh", "Sigmoid", "Sigmoid", "Tanh", "Sigmoid", "Relu")
"""The functions of the eight sums of the cell's input and state."""


def nas_cell(x: Tensor, state: Tensor, step: str) -> Tensor:
    """The next state [1, hidden] of the recurrent cell that a search over cells found.

    Zoph and Le, "Neural Architecture Search with Reinforcement Learning" (2017), figure 8; in the
    reading of TASO's experiments, whose cell passes on one state and no memory beside it.
    """
    bound = 1 / math.sqrt(NAS_HIDDEN)
    gates = []
    for number, function in enumerate(NAS_GATES):
        of_input, of_state = (
            weight(f"{step}.{part}.{number}", NAS_HIDDEN, NAS_HIDDEN, std=bound)
            for part in ("input", "state")
        )
        gates.append(node(function, x @ of_input + state @ of_state))
    first = node("Tanh", gates[0] + gates[3])
    second = node("Sigmoid", gates[1] + gates[2])
    third = node("Tanh", gates[4] * gates[5])
    fourth = node("Tanh", gates[6] * gates[7])
    left, right = node("Tanh", first * fourth), node("Tanh", second + third)
    return node("Tanh", left * right)


def nasrnn() -> onnx.ModelProto:
    """Five steps of the cell, unrolled; each step has weights of its own, as TASO builds it."""
    state = weight("state", 1, NAS_HIDDEN, std=1.0)
    for step in range(NAS_STEPS):
        x = Tensor(Variable(f"x{step}", (1, NAS_HIDDEN)))
        state = nas_cell(x, state, f"step{step}")
    return model([state], variables([state]), OPSET, "nasrnn")


# VGG-19

VGG_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))
"""Channels and number of the 3x3 convolutions before each pooling."""
VGG_DENSE = (512 * 7 * 7, 4096, 4096, 1000)


def vgg19() -> onnx.ModelProto:
    """Configuration E of Simonyan and Zisserman (2015), without dropout."""
    image = Tensor(Variable("image", (1, 3, 224, 224)))
    x, channels, number = image, 3, 0
    for width, convolutions in VGG_STAGES:
        for _ in range(convolutions):
            kernel = weight(
                f"conv{number}.weight", width, channels, 3, 3, std=math.sqrt(2 / (9 * width))
            )
            shift = bias(f"conv{number}.bias", width)
            x = node("Relu", node("Conv", x, kernel, shift, pads=[1, 1, 1, 1]))
            channels, number = width, number + 1
        x = node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = node("Flatten", x)
    for layer, (before, after) in enumerate(pairwise(VGG_DENSE)):
        if layer:
            x = node("Relu", x)
        matrix = weight(f"dense{layer}.weight", after, before, std=0.01)
        x = node("Gemm", x, matrix, bias(f"dense{layer}.bias", after), transB=1)
    return model([x], variables([x]), OPSET, "vgg19")


# BERT-large

BERT_LAYERS, BERT_WIDTH, BERT_HEADS, BERT_INNER = 24, 1024, 16, 4096
BERT_WORDS, BERT_POSITIONS, BERT_TYPES = 30522, 512, 2
BERT_LENGTH = 128
BERT_STD = 0.02
BERT_EPSILON = 1e-12


def linear(x: Tensor, name: str, before: int, after: int) -> Tensor:
    """A linear layer in the operators that PyTorch exports it in."""
    return x @ weight(f"{name}.weight", before, after, std=BERT_STD) + bias(f"{name}.bias", after)


def layer_norm(x: Tensor, name: str) -> Tensor:
    """A normalization over the last axis."""
    scale = weight(f"{name}.weight", BERT_WIDTH, mean=1.0, std=0.0)
    shift = bias(f"{name}.bias", BERT_WIDTH)
    return node("LayerNormalization", x, scale, shift, axis=-1, epsilon=BERT_EPSILON)


def bert_attention(x: Tensor, mask: Tensor, name: str) -> Tensor:
    """Self-attention of x [1, length, width], in the operators of `models/bert_base.onnx`."""
    size = BERT_WIDTH // BERT_HEADS
    root = size**-0.25  # queries and keys are scaled apart, which keeps the products small

    def heads(part: str) -> Tensor:
        made = linear(x, f"{name}.{part}", BERT_WIDTH, BERT_WIDTH)
        return node("Reshape", made, [1, BERT_LENGTH, BERT_HEADS, size])

    query = node("Transpose", heads("query"), perm=[0, 2, 1, 3])
    key = node("Transpose", heads("key"), perm=[0, 2, 3, 1])
    value = node("Transpose", heads("value"), perm=[0, 2, 1, 3])
    weights = node("Softmax", (query * root) @ (key * root) + mask, axis=-1)
    # A row that is masked altogether is 0/0, and attends to nothing.
    weights = node("Where", node("IsNaN", weights), 0.0, weights)
    mixed = node("Transpose", weights @ value, perm=[0, 2, 1, 3])
    joined = node("Reshape", mixed, [1, BERT_LENGTH, BERT_WIDTH])
    return linear(joined, f"{name}.output", BERT_WIDTH, BERT_WIDTH)


def bert_large() -> onnx.ModelProto:
    """BERT-large, uncased, with its pooler (Devlin et al., 2019), at 128 tokens."""
    words = Tensor(Variable("input_ids", (1, BERT_LENGTH), TensorProto.INT64))
    attended = Tensor(Variable("attention_mask", (1, BERT_LENGTH), TensorProto.INT64))
    positions = np.arange(BERT_LENGTH, dtype=np.int64)[None]

    def embedded(name: str, size: int, indices: Tensor) -> Tensor:
        return node("Gather", weight(name, size, BERT_WIDTH, std=BERT_STD), indices)

    x = embedded("embeddings.words", BERT_WORDS, words)
    x = x + embedded("embeddings.types", BERT_TYPES, tensor(np.zeros_like(positions)))
    x = x + embedded("embeddings.positions", BERT_POSITIONS, tensor(positions))
    x = layer_norm(x, "embeddings.norm")
    is_seen = node("Unsqueeze", node("Cast", attended, to=TensorProto.BOOL), [1, 2])
    mask = node("Where", is_seen, 0.0, float("-inf"))
    for number in range(BERT_LAYERS):
        name = f"layer{number}"
        x = layer_norm(bert_attention(x, mask, f"{name}.attention") + x, f"{name}.attention.norm")
        inner = node("Gelu", linear(x, f"{name}.inner", BERT_WIDTH, BERT_INNER))
        x = layer_norm(linear(inner, f"{name}.outer", BERT_INNER, BERT_WIDTH) + x, f"{name}.norm")
    first = node("Gather", x, tensor(np.asarray(0, np.int64)), axis=1)
    pooler = weight("pooler.weight", BERT_WIDTH, BERT_WIDTH, std=BERT_STD)
    pooled = node("Tanh", node("Gemm", first, pooler, bias("pooler.bias", BERT_WIDTH), transB=1))
    return model([x, pooled], variables([x, pooled]), OPSET, "bert_large")


BUILT: dict[str, Callable[[], onnx.ModelProto]] = {
    build.__name__: build for build in (nasrnn, vgg19, bert_large)
}
"""The builder of each network, by its name."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=BUILT)
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    onnx.save(hydrate(BUILT[options.name](), options.seed), options.out)
