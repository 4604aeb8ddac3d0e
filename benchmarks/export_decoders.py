#!/usr/bin/env python3
"""Export decoders with caches of keys and values, weightless, into `decoders/`.

They have the heads, the head sizes and the widths of published models, and few layers and tokens of
a vocabulary, so that they are small; weights are random.  They come from `transformers` through
PyTorch's exporter, as `input_ids`, `attention_mask` and `past_key_values.N.key` and `.value` to
`logits` and `present.N.key` and `.value`; batch, new tokens and past are dynamic.  Those that read
what an encoder made have `decoder_input_ids`, `encoder_hidden_states` and, but for Whisper,
`encoder_attention_mask` instead of the first two, and compute its keys and values anew each time.
Needs the extra `exports`.

    python export_decoders.py [MODEL ...]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from export_dynamic import export_all

FOLDER = Path(__file__).resolve().parent / "decoders"
VOCABULARY = 4096
LAYERS = 4
BATCH, NEW, PAST, ENCODED = 2, 3, 5, 7
"""Sizes of the examples, which differ so that the exporter tells them apart."""
WINDOW = 256
"""Tokens that a layer with a sliding window sees: fewer than the benchmark has."""


@dataclass(frozen=True)
class Decoder:
    """A network by the names of its classes in `transformers`, and its settings."""

    config: str
    model: str
    settings: Mapping[str, object] = field(default_factory=dict)
    encoded: int | None = None
    """The length of what an encoder made: 0 for any, None where there is no encoder."""


def of(kind: str, model: str = "", **settings: object) -> Decoder:
    """A decoder of that kind, by its own names of settings."""
    return Decoder(f"{kind}Config", model or f"{kind}ForCausalLM", settings)


def behind(kind: str, encoded: int = 0, **settings: object) -> Decoder:
    """A decoder that reads what an encoder made."""
    return Decoder(f"{kind}Config", f"{kind}ForConditionalGeneration", settings, encoded)


def of_both(layers: int, heads: int, inner: int) -> dict[str, Any]:
    """Sizes of an encoder and a decoder that are alike."""
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": inner}
    return {f"{part}_{n}": size for part in ("encoder", "decoder") for n, size in sizes.items()}


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
    # Falcon-7B, of an eighth of its width: one head of keys and values for all
    "falcon": of("Falcon", **SIZES, hidden_size=576, num_attention_heads=9),
    # StarCoder2-3B, of a quarter of its width
    "starcoder2": of(
        "Starcoder2", **SIZES, hidden_size=768, intermediate_size=3072, num_attention_heads=6,
        num_key_value_heads=2,
    ),
    # Mistral-7B, of an eighth of its width
    "mistral": of(
        "Mistral", **SIZES, hidden_size=512, intermediate_size=1792, num_attention_heads=8,
        num_key_value_heads=2, head_dim=64, sliding_window=WINDOW,
    ),
    # Gemma 2 2B, of an eighth of its width: scores with a softcap, a window in every other layer
    "gemma2": of(
        "Gemma2", **SIZES, hidden_size=288, intermediate_size=1152, num_attention_heads=8,
        num_key_value_heads=4, head_dim=64, query_pre_attn_scalar=64, sliding_window=WINDOW,
    ),
    # Gemma 3 1B, of a quarter of its width: angles of two bases
    "gemma3": Decoder("Gemma3TextConfig", "Gemma3ForCausalLM", {
        **SIZES, "hidden_size": 288, "intermediate_size": 1728, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 128, "query_pre_attn_scalar": 128,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention"] * (LAYERS - 1) + ["full_attention"],
    }),
    # Phi-3 mini, of a sixth of its width
    "phi3": of(
        "Phi3", **SIZES, hidden_size=512, intermediate_size=1365, num_attention_heads=8,
        pad_token_id=0,
    ),
    # Pythia-160M, of two thirds of its width: a quarter of each head is rotated
    "gptneox": of(
        "GPTNeoX", **SIZES, hidden_size=512, intermediate_size=2048, num_attention_heads=8,
    ),
    # StableLM 2 1.6B, of a quarter of its width
    "stablelm": of(
        "StableLm", **SIZES, hidden_size=512, intermediate_size=1408, num_attention_heads=8,
        num_key_value_heads=8,
    ),
    # OLMo 2 1B, of a quarter of its width: normalized behind attention, all heads as one
    "olmo2": of(
        "Olmo2", **SIZES, hidden_size=512, intermediate_size=2048, num_attention_heads=8,
        num_key_value_heads=8,
    ),
    # SmolLM3-3B, of a quarter of its width: no rotation in every fourth layer
    "smollm3": of(
        "SmolLM3", **SIZES, hidden_size=512, intermediate_size=2752, num_attention_heads=8,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=0, eos_token_id=0,
    ),
    # Command R, of a sixteenth of its width: neighbours are rotated
    "cohere": of(
        "Cohere", **SIZES, hidden_size=512, intermediate_size=1408, num_attention_heads=8,
        num_key_value_heads=2,
    ),
    # BART-base
    "bart": behind("Bart", vocab_size=VOCABULARY, d_model=768, **of_both(LAYERS, 12, 3072)),
    # T5-small
    "t5": behind("T5", vocab_size=VOCABULARY, num_layers=LAYERS),
    # Whisper-tiny, of thirty seconds; with more positions than 448, for the past that others have
    "whisper": behind(
        "Whisper", 1500, vocab_size=VOCABULARY, d_model=384, **of_both(LAYERS, 6, 1536),
        max_target_positions=1024,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
    ),
}  # fmt: skip


def export(decoder: Decoder, target: Path) -> None:
    """Write a decoder with its weights."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    torch.manual_seed(0)
    config = getattr(transformers, decoder.config)(**decoder.settings)
    network = getattr(transformers, decoder.model)(config).eval()
    reads = decoder.encoded is not None
    masked = config.model_type != "whisper"

    def filled(past: Sequence[Any]) -> Any:
        # By the configuration, layers with a window drop what is outside of it, and the export
        # would hold for a past within the window alone. A whole past needs no other mask.
        windowed = getattr(config, "sliding_window", None) is not None
        cache = transformers.DynamicCache(config=None if reads or windowed else config)
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        return cache

    def results(found: Any, cache: Any) -> tuple[Any, ...]:
        return (found.logits, *(part for one in cache.layers for part in (one.keys, one.values)))

    class WithCaches(torch.nn.Module):  # type: ignore[misc]
        """The network with its caches as tensors, one after the other."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: Any, attention_mask: Any, *past: Any) -> tuple[Any, ...]:
            mask = {"attention_mask": attention_mask}
            found = self.network(input_ids, past_key_values=filled(past), use_cache=True, **mask)
            return results(found, found.past_key_values)

    class WithEncoded(WithCaches):
        """The same of a network that reads what an encoder made."""

        def forward(self, input_ids: Any, encoded: Any, *others: Any) -> tuple[Any, ...]:
            mask, past = ({"attention_mask": others[0]}, others[1:]) if masked else ({}, others)
            found = self.network(
                decoder_input_ids=input_ids,
                encoder_outputs=transformers.modeling_outputs.BaseModelOutput(encoded),
                past_key_values=transformers.EncoderDecoderCache(
                    filled(past), transformers.DynamicCache()
                ),
                use_cache=True,
                **mask,
            )
            return results(found, found.past_key_values.self_attention_cache)

    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if getattr(config, "multi_query", False):
        heads = 1
    depth = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
    depth = depth or config.hidden_size // config.num_attention_heads
    past = [torch.randn(BATCH, heads, PAST, depth) for _ in range(2 * LAYERS)]
    parts = [f"{n}.{part}" for n in range(LAYERS) for part in ("key", "value")]
    batch, new, before = (torch.export.Dim(name) for name in ("batch", "sequence", "past"))
    ids = torch.randint(0, VOCABULARY, (BATCH, NEW))
    others: dict[str, tuple[Any, Any]]
    if reads:
        length = {} if decoder.encoded else {1: torch.export.Dim("encoded")}
        size = decoder.encoded or ENCODED
        encoded = torch.randn(BATCH, size, config.d_model)
        others = {"encoder_hidden_states": (encoded, {0: batch, **length})}
        if masked:
            mask = torch.ones(BATCH, size, dtype=torch.long)
            others["encoder_attention_mask"] = (mask, {0: batch, **length})
    else:
        mask = torch.ones(BATCH, PAST + NEW, dtype=torch.long)
        others = {"attention_mask": (mask, {0: batch, 1: torch.export.Dim.DYNAMIC})}
    inputs = {
        "decoder_input_ids" if reads else "input_ids": (ids, {0: batch, 1: new}),
        **others,
        **{
            f"past_key_values.{part}": (each, {0: batch, 2: before})
            for part, each in zip(parts, past, strict=True)
        },
    }
    values, sizes = zip(*inputs.values(), strict=True)
    named = 2  # the others are one tuple of arguments
    with torch.no_grad():
        torch.onnx.export(
            (WithEncoded if reads else WithCaches)().eval(),
            values,
            target,
            input_names=list(inputs),
            output_names=["logits", *(f"present.{part}" for part in parts)],
            dynamic_shapes=(*sizes[:named], sizes[named:]),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


if __name__ == "__main__":
    export_all(__doc__, DECODERS, export, FOLDER)
