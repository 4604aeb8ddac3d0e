#!/usr/bin/env python3
"""Export the transformers of `models/` anew with dynamic sizes, weightless, into `dynamic/`.

The batch is dynamic, and the length of texts.  They come from their libraries as they are by
default, through PyTorch's exporter; needs the extra `exports`.

    python export_dynamic.py [MODEL ...]
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from isolated.expression import Emptied

Made = TypeVar("Made")
FOLDER = Path(__file__).resolve().parent / "dynamic"

SMALL = 64
"""Elements of a constant that is kept."""
FEW = 8
"""Most distinct numbers of a constant that is kept whatever its size: a mask, say."""
LEAST_STD = 0.02
"""Deviation of weights that are all equal initially, as those of a trained model differ."""

LLAMA = {
    "vocab_size": 1000,
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
"""The sizes of `models/llama_small.onnx`."""


@dataclass(frozen=True)
class Export:
    """A network by its library's own names, and shapes [batch, ...] of examples of its inputs."""

    build: Callable[[], Any]
    examples: Mapping[str, tuple[int, ...]]


def of_transformers(kind: str, *inputs: str, **settings: object) -> Export:
    """A text model with random weights, for any number of tokens."""

    def build() -> Any:
        import transformers  # noqa: PLC0415

        config = getattr(transformers, f"{kind.removesuffix('Encoder')}Config")(**settings)
        return getattr(transformers, f"{kind}Model")(config)

    return Export(build, dict.fromkeys(inputs, (2, 128)))


def of_timm(name: str) -> Export:
    """A classifier of images with random weights."""

    def build() -> Any:
        import timm  # noqa: PLC0415

        return timm.create_model(name, pretrained=False)

    return Export(build, {"x": (2, 3, 224, 224)})


EXPORTS = {
    "bert_base": of_transformers("Bert", "input_ids", "attention_mask"),
    "convnext_tiny": of_timm("convnext_tiny"),
    "gpt2": of_transformers("GPT2", "input_ids", use_cache=False),
    "llama_small": of_transformers("Llama", "input_ids", use_cache=False, **LLAMA),
    "swin_tiny_patch4_window7_224": of_timm("swin_tiny_patch4_window7_224"),
    "t5_enc": of_transformers("T5Encoder", "input_ids"),
    "vit_small_patch16_224": of_timm("vit_small_patch16_224"),
}


def export(made: Export, target: Path) -> None:
    """Write a network with its weights."""
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    examples, sizes = {}, {}
    for name, shape in made.examples.items():
        is_text = len(shape) == 2
        examples[name] = torch.ones(shape, dtype=torch.long) if is_text else torch.randn(shape)
        sizes[name] = {0: batch, 1: length} if is_text else {0: batch}
    with torch.no_grad():
        network = made.build().eval()
        options = {"dynamic_shapes": sizes, "external_data": False, "verbose": False}
        torch.onnx.export(network, (), target, kwargs=examples, dynamo=True, **options)


def empty(tensor: TensorProto) -> None:
    """Leave nothing of weights but their statistics, as `hydrate.py` reads them."""
    if tensor.data_type != TensorProto.FLOAT:
        return
    values = numpy_helper.to_array(tensor)
    if values.size <= SMALL or 1 < len(np.unique(values)) <= FEW:
        return
    mean, std = float(values.mean()), max(LEAST_STD, float(values.std()))
    tensor.CopyFrom(Emptied(tensor.name, tuple(tensor.dims), mean, std).proto())


def export_all(
    description: str | None,
    known: Mapping[str, Made],
    export: Callable[[Made, Path], None],
    folder: Path,
) -> None:
    """Export those that the command line names, or all, weightless into a folder."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(known)}")
    options = parser.parse_args()
    if unknown := set(options.models) - set(known):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    folder.mkdir(exist_ok=True)
    for name in options.models or known:
        with tempfile.TemporaryDirectory() as made:
            whole = Path(made) / "whole.onnx"
            export(known[name], whole)
            model = onnx.load(whole)
        for tensor in model.graph.initializer:
            empty(tensor)
        # The place of a node in source code; as large as all the rest.
        for node in model.graph.node:
            del node.metadata_props[:]
        onnx.save(model, folder / f"{name}.onnx")
        print(f"{name}: {len(model.graph.node)} operators", flush=True)


if __name__ == "__main__":
    export_all(__doc__, EXPORTS, export, FOLDER)
