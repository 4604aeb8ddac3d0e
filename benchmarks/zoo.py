#!/usr/bin/env python3
"""Networks of public libraries, by the names that they have there, exported to ONNX.

They are those whose parts are timed for the learned cost, see `forms.py`: with random weights and
fixed sizes, of one sample.  Text models have few layers, since all are alike.  The `family` of one
says which others it shares parts with, so that none of these is learned from when it is held out.
Needs the extra `exports`.

    python zoo.py NAME OUT.onnx
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import export_dynamic

LENGTH = 128
"""Tokens of a text."""
PIXELS = 224


@dataclass(frozen=True)
class Network:
    """A network: how it is built, and examples of its inputs by shapes; texts have two axes."""

    family: str
    build: Callable[[], Any]
    examples: Mapping[str, tuple[int, ...]]


def of_timm(family: str, name: str, pixels: int = PIXELS) -> Network:
    """A classifier of images of timm."""
    return Network(family, export_dynamic.of_timm(name).build, {"x": (1, 3, pixels, pixels)})


def of_torchvision(family: str, name: str, folder: str = "", pixels: int = PIXELS) -> Network:
    """A network for images of torchvision."""

    def build() -> Any:
        import torchvision  # noqa: PLC0415

        module = torchvision.models
        made = getattr(getattr(module, folder) if folder else module, name)
        settings: dict[str, Any] = {"weights_backbone": None} if folder else {}
        if name in ("googlenet", "inception_v3"):
            settings = {"aux_logits": False, "init_weights": False}
        return made(weights=None, **settings)

    name_of_input = "input" if folder else "x"
    return Network(family, build, {name_of_input: (1, 3, pixels, pixels)})


def of_transformers(
    family: str, kind: str, inputs: Mapping[str, tuple[int, ...]] | None = None, **settings: object
) -> Network:
    """A network of transformers, by the name of its class without `Model`."""
    build = export_dynamic.of_transformers(kind, **settings).build
    return Network(family, build, inputs or {"input_ids": (1, LENGTH)})


_HIDDEN: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6}
_GATED: dict[str, Any] = {
    **_HIDDEN,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "use_cache": False,
}
_TIMM = {
    "resnet": ("resnet18", "resnet26t", "seresnet50", "res2net50_26w_4s", "skresnet18"),
    "regnet": ("regnetx_004", "regnety_008"),
    "mobile": (
        *("mnasnet_100", "mobilenetv2_100", "fbnetc_100", "hardcorenas_a", "tinynet_c"),
        *("lcnet_050", "rexnet_100"),
    ),
    "ghostnet": ("ghostnet_100", "repghostnet_050"),
    "mixnet": ("mixnet_s",),
    "efficientnet": ("tf_efficientnet_lite0", "tf_efficientnetv2_b0"),
    "mobilenetv4": ("mobilenetv4_conv_small", "mobilenetv4_hybrid_medium"),
    "vgg": ("vgg11_bn",),
    "dla": ("dla34",),
    "dpn": ("dpn48b",),
    "darknet": ("cspdarknet53", "darknet17"),
    "hrnet": ("hrnet_w18_small",),
    "xception": ("xception41",),
    "inception": ("inception_v4", "inception_resnet_v2"),
    "selecsls": ("selecsls42",),
    "vovnet": ("ese_vovnet19b_dw",),
    "hgnet": ("hgnetv2_b0",),
    "mobileone": ("mobileone_s0", "fastvit_t8", "repvit_m0_9"),
    "convmixer": ("convmixer_768_32",),
    "convnext": ("convnextv2_atto", "inception_next_atto"),
    "starnet": ("starnet_s1",),
    "deit": ("deit_tiny_patch16_224", "cait_xxs24_224", "beit_base_patch16_224"),
    "levit": ("levit_128",),
    "poolformer": ("poolformer_s12", "caformer_s18"),
    "mobilevit": ("mobilevit_xs", "mobilevitv2_050", "edgenext_xx_small"),
    "efficientformer": ("efficientformer_l1", "efficientvit_b0"),
    "pvt": ("pvt_v2_b0", "twins_svt_small"),
    "xcit": ("xcit_nano_12_p16_224",),
    "coat": ("coat_lite_tiny", "crossvit_tiny_240"),
    "mlp": ("mixer_s32_224", "gmlp_s16_224", "resmlp_12_224"),
    "visformer": ("visformer_tiny",),
    "swin": ("swinv2_tiny_window8_256", "nest_tiny"),
    "maxvit": ("maxvit_tiny_rw_224",),
    "tiny_vit": ("tiny_vit_5m_224",),
    "nfnet": ("nf_resnet50",),
}
"""Names of timm by family."""
_SIDES = {"swinv2_tiny_window8_256": 256, "crossvit_tiny_240": 240}
"""Pixels along a side where there are not 224."""

ZOO: dict[str, Network] = {
    **{
        name: of_timm(family, name, _SIDES.get(name, PIXELS))
        for family, names in _TIMM.items()
        for name in names
    },
    "alexnet": of_torchvision("vgg", "alexnet"),
    "googlenet": of_torchvision("googlenet", "googlenet"),
    "shufflenet_v2_x1_0": of_torchvision("shufflenet", "shufflenet_v2_x1_0"),
    "lraspp_mobilenet_v3_large": of_torchvision(
        "mobile", "lraspp_mobilenet_v3_large", "segmentation", 320
    ),
    "deeplabv3_resnet50": of_torchvision("deeplab", "deeplabv3_resnet50", "segmentation", 256),
    "distilbert": of_transformers("bert", "DistilBert", dim=384, n_layers=2, n_heads=6),
    "roberta": of_transformers("bert", "Roberta", **_HIDDEN),
    "albert": of_transformers("albert", "Albert", **_HIDDEN, embedding_size=128),
    "electra": of_transformers("bert", "Electra", **_HIDDEN),
    "mobilebert": of_transformers("mobilebert", "MobileBert", num_hidden_layers=2),
    "squeezebert": of_transformers("squeezebert", "SqueezeBert", num_hidden_layers=2),
    "mpnet": of_transformers("mpnet", "MPNet", **_HIDDEN),
    "deberta": of_transformers("deberta", "DebertaV2", **_HIDDEN, relative_attention=True),
    "fnet": of_transformers("fnet", "FNet", hidden_size=384, num_hidden_layers=2),
    "opt": of_transformers(
        "opt",
        "OPT",
        hidden_size=384,
        num_hidden_layers=2,
        ffn_dim=1536,
        num_attention_heads=6,
        word_embed_proj_dim=384,
        use_cache=False,
    ),
    "gpt_neo": of_transformers(
        "gpt",
        "GPTNeo",
        hidden_size=384,
        num_layers=2,
        num_heads=6,
        attention_types=[[["global", "local"], 1]],
        use_cache=False,
    ),
    "gpt_neox": of_transformers("gpt_neox", "GPTNeoX", **_GATED),
    "bloom": of_transformers(
        "bloom", "Bloom", hidden_size=384, n_layer=2, n_head=6, vocab_size=1000, use_cache=False
    ),
    "mistral": of_transformers("llama", "Mistral", **_GATED, num_key_value_heads=2),
    "qwen2": of_transformers("llama", "Qwen2", **_GATED, num_key_value_heads=2),
    "gemma": of_transformers("gemma", "Gemma", **_GATED, num_key_value_heads=1, head_dim=64),
    "phi": of_transformers("phi", "Phi", **_GATED),
    "whisper_encoder": of_transformers(
        "whisper",
        "WhisperEncoder",
        {"input_features": (1, 80, 3000)},
        d_model=256,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=1024,
    ),
    "wav2vec2": of_transformers(
        "wav2vec2", "Wav2Vec2", {"input_values": (1, 16000)}, **_HIDDEN, intermediate_size=1024
    ),
    "clip_vision": of_transformers(
        "clip", "CLIPVision", {"pixel_values": (1, 3, 224, 224)}, **_HIDDEN, patch_size=32
    ),
    "segformer": of_transformers("segformer", "Segformer", {"pixel_values": (1, 3, 256, 256)}),
    "dinov2": of_transformers("dino", "Dinov2", {"pixel_values": (1, 3, 224, 224)}, **_HIDDEN),
}
"""Networks by name."""


def export(network: Network, target: Path) -> None:
    """Write a network with its weights."""
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    examples = {
        name: torch.ones(shape, dtype=torch.long) if name == "input_ids" else torch.randn(shape)
        for name, shape in network.examples.items()
    }
    with torch.no_grad():
        made = network.build().eval()
        options = {"external_data": False, "verbose": False, "dynamo": True}
        if len(examples) == 1 and "input_ids" not in examples:
            torch.onnx.export(made, tuple(examples.values()), target, **options)
        else:
            torch.onnx.export(made, (), target, kwargs=examples, **options)


def main() -> int:
    """Export one network; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=ZOO)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    export(ZOO[options.name], options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
