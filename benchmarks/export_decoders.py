#!/usr/bin/env python3
"""Export decoders with caches of keys and values, weightless, into `decoders/`.

They have the heads, the head sizes and the widths of published models, and few layers and tokens of
a vocabulary, so that they are small; weights are random.  They come from `transformers` through
PyTorch's exporter, as `input_ids`, `attention_mask` and `past_key_values.N.key` and `.value` to
`logits` and `present.N.key` and `.value`; batch, new tokens and past are dynamic.  Needs the extra
`exports`.

    python export_decoders.py [MODEL ...]
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from export_dynamic import export_all

FOLDER = Path(__file__).resolve().parent / "decoders"
VOCABULARY = 4096
LAYERS = 4
BATCH, NEW, PAST = 2, 3, 5
"""Sizes of the examples, which differ so that the exporter tells them apart."""


@dataclass(frozen=True)
class Decoder:
    """A network by the names of its classes in `transformers`, and its settings."""

    config: str
    model: str
    settings: Mapping[str, object] = field(default_factory=dict)


def of(kind: str, model: str = "", **settings: object) -> Decoder:
    """A decoder of that kind, by its own names of settings."""
    return Decoder(f"{kind}Config", model or f"{kind}ForCausalLM", settings)


SIZES: dict[str, Any] = {"vocab_size": VOCABULARY, "num_hidden_layers": LAYERS}
DECODERS = {
    # SmolLM2-135M
    "llama": of(
        "Llama", **SIZES, hidden_size=576, intermediate_size=1536, num_attention_heads=9,
        num_key_value_heads=3,
    ),
    # Qwen2.5-0.5B
    "qwen2": of(
        "Qwen2", **SIZES, hidden_size=896, intermediate_size=4864, num_attention_heads=14,
        num_key_value_heads=2,
    ),
    # Qwen3-0.6B
    "qwen3": of(
        "Qwen3", **SIZES, hidden_size=1024, intermediate_size=3072, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128,
    ),
    # phi-1, of half its width
    "phi": of(
        "Phi", **SIZES, hidden_size=1024, intermediate_size=4096, num_attention_heads=16,
        partial_rotary_factor=0.5,
    ),
    # Gemma-2B, of a quarter of its width
    "gemma": of(
        "Gemma", **SIZES, hidden_size=512, intermediate_size=4096, num_attention_heads=8,
        num_key_value_heads=1, head_dim=256,
    ),
    "gpt2": of("GPT2", "GPT2LMHeadModel", vocab_size=VOCABULARY, n_layer=LAYERS),
    # OPT-125M
    "opt": of("OPT", **SIZES, ffn_dim=3072),
}  # fmt: skip


def export(decoder: Decoder, target: Path) -> None:
    """Write a decoder with its weights."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    class WithCaches(torch.nn.Module):  # type: ignore[misc]
        """The network with its caches as tensors, one after the other."""

        def __init__(self, network: Any) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> tuple[Any, ...]:
            cache = transformers.DynamicCache(config=self.network.config)
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            found = self.network(
                input_ids=input_ids,
                attention_mask=attention_mask,
                past_key_values=cache,
                use_cache=True,
            )
            layers = found.past_key_values.layers
            return (found.logits, *(each for one in layers for each in (one.keys, one.values)))

    torch.manual_seed(0)
    config = getattr(transformers, decoder.config)(**decoder.settings)
    network = getattr(transformers, decoder.model)(config).eval()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    count = 2 * config.num_hidden_layers
    past = [torch.randn(BATCH, heads, PAST, depth) for _ in range(count)]
    ids = torch.randint(0, VOCABULARY, (BATCH, NEW))
    mask = torch.ones(BATCH, PAST + NEW, dtype=torch.long)
    batch, new, before = (torch.export.Dim(name) for name in ("batch", "sequence", "past"))
    total = torch.export.Dim.DYNAMIC
    caches = tuple({0: batch, 2: before} for _ in past)
    parts = [f"{n}.{part}" for n in range(count // 2) for part in ("key", "value")]
    with torch.no_grad():
        torch.onnx.export(
            WithCaches(network).eval(),
            (ids, mask, *past),
            target,
            input_names=["input_ids", "attention_mask", *(f"past_key_values.{p}" for p in parts)],
            output_names=["logits", *(f"present.{p}" for p in parts)],
            dynamic_shapes=({0: batch, 1: new}, {0: batch, 1: total}, caches),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


if __name__ == "__main__":
    export_all(__doc__, DECODERS, export, FOLDER)
