#!/usr/bin/env python3
"""Fill the weightless ONNX models in `models/` with reproducible random weights.

A model there is a real architecture exported from a public model library (timm, torchvision,
transformers) whose large float initializers were emptied; each carries `normal mean=M std=S` in
its doc_string, the statistics of the weights that it had.  Integer tables and small constants are
kept as exported.

    python hydrate.py MODEL.onnx OUT.onnx [--seed N]
"""

import argparse
import re
import zlib

import numpy as np
import onnx
from onnx import numpy_helper

STATISTICS = re.compile(r"normal mean=(\S+) std=(\S+)")


def hydrate(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Give every emptied initializer of `model` normal random values, in place.

    The values depend on the initializer's name and `seed` alone, so the same model is hydrated
    to the same weights everywhere.
    """
    for tensor in model.graph.initializer:
        statistics = STATISTICS.fullmatch(tensor.doc_string)
        if not statistics:
            continue
        mean, std = map(float, statistics.groups())
        if mean == std == 0:  # zero-initialised; a trained model's would not be zero
            std = 0.02
        shape = tuple(tensor.dims)
        rng = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
        values = rng.standard_normal(shape, dtype=np.float32) * np.float32(std) + np.float32(mean)
        if "running_var" in tensor.name or tensor.name.endswith("_var"):
            values = np.abs(values) + np.float32(0.5)  # a variance is positive
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype), tensor.name))
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    onnx.save(hydrate(onnx.load(options.model), options.seed), options.out)
