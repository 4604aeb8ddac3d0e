"""The families: which vocabularies are explored together, and in which order.

Each vocabulary has few inputs and one theme. What it finds does not depend on any model.
"""

from __future__ import annotations

from xflow.generator.vocabularies.activations import ACTIVATIONS
from xflow.generator.vocabularies.algebra import ALGEBRA
from xflow.generator.vocabularies.attention import ATTENTION
from xflow.generator.vocabularies.batched_heads import BATCHED_HEADS
from xflow.generator.vocabularies.borders import BORDERS
from xflow.generator.vocabularies.channels import CHANNELS
from xflow.generator.vocabularies.contractions import CONTRACTIONS
from xflow.generator.vocabularies.convolutions import CONVOLUTION
from xflow.generator.vocabularies.decided import DECIDED
from xflow.generator.vocabularies.elementwise import ELEMENTWISE
from xflow.generator.vocabularies.filled_channels import FILLED_CHANNELS
from xflow.generator.vocabularies.heads import HEADS_FAMILY
from xflow.generator.vocabularies.joins import JOINS
from xflow.generator.vocabularies.last_channels import LAST_CHANNELS
from xflow.generator.vocabularies.layers import LAYERS
from xflow.generator.vocabularies.linear import LINEAR
from xflow.generator.vocabularies.logic import LOGIC
from xflow.generator.vocabularies.movement import MOVEMENT
from xflow.generator.vocabularies.multiples import MULTIPLES
from xflow.generator.vocabularies.normalization import NORMALIZATION
from xflow.generator.vocabularies.padded_channels import PADDED_CHANNELS
from xflow.generator.vocabularies.parts import INNER_PARTS, PARTS
from xflow.generator.vocabularies.pixels import PIXELS, TOKENS_FAMILY
from xflow.generator.vocabularies.polyphase import POLYPHASE
from xflow.generator.vocabularies.pools import POOLING
from xflow.generator.vocabularies.quantized import QUANTIZED
from xflow.generator.vocabularies.reductions import REDUCTIONS_FAMILY
from xflow.generator.vocabularies.resized import RESIZED
from xflow.generator.vocabularies.rotary import ROTARY
from xflow.generator.vocabularies.rows import GATHERED_ROWS, ROWS_FAMILY
from xflow.generator.vocabularies.sequences import SEQUENCES
from xflow.generator.vocabularies.shapes import SHAPES
from xflow.generator.vocabularies.sums import SUMS
from xflow.generator.vocabularies.trivial import TRIVIAL
from xflow.generator.vocabularies.views import VIEWS
from xflow.generator.vocabulary import Family

DEFINITIONS = Family(
    "definitions",
    states="the definitions of composite operators",
    about="composite operators and what they are made of",
)
FILTERING = Family(
    "filtering",
    states="algorithms of minimal filtering",
    about="convolutions with fewer products, by Winograd's minimal filtering",
)

FAMILIES = (
    ELEMENTWISE,
    ACTIVATIONS,
    LOGIC,
    DECIDED,
    ALGEBRA,
    LINEAR,
    LAYERS,
    PARTS,
    INNER_PARTS,
    ROWS_FAMILY,
    GATHERED_ROWS,
    SHAPES,
    VIEWS,
    REDUCTIONS_FAMILY,
    MOVEMENT,
    SUMS,
    NORMALIZATION,
    CONVOLUTION,
    CHANNELS,
    LAST_CHANNELS,
    PIXELS,
    TOKENS_FAMILY,
    BORDERS,
    POOLING,
    MULTIPLES,
    PADDED_CHANNELS,
    FILLED_CHANNELS,
    SEQUENCES,
    RESIZED,
    POLYPHASE,
    ATTENTION,
    HEADS_FAMILY,
    ROTARY,
    QUANTIZED,
    TRIVIAL,
    DEFINITIONS,
    CONTRACTIONS,
    BATCHED_HEADS,
    JOINS,
    FILTERING,
)
