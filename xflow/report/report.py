"""The report of one run: what was changed, what it gained, and how the time was spent."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from xflow.cost import Cost, Objective

FORMAT_VERSION = 3
"""Raised whenever a field of the JSON changes its meaning or goes away."""


@dataclass(frozen=True)
class ModelStats:
    """What a model consists of: its operators and how often each occurs, and its weights."""

    operators: Mapping[str, int]
    weight_bytes: int = 0

    @property
    def nodes(self) -> int:
        """The number of operators in all."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class Latency:
    """The time of one inference: median in seconds, and half the interquartile range around it."""

    median: float
    spread: float
    runs: int = 0
    samples: tuple[float, ...] = ()
    """The seconds of single runs, in order."""


@dataclass(frozen=True)
class Ratio:
    """The time before over the time after, with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Setting:
    """One of several settings of the input shapes, and what was measured at it."""

    shapes: Mapping[str, tuple[int, ...]]
    latency_before: Latency | None = None
    latency_after: Latency | None = None
    ratio: Ratio | None = None


GainSource = Literal["model", "region", "estimate"]


@dataclass(frozen=True)
class RuleUse:
    """One rule, how often it was applied, and what it gains.

    `gain` is in seconds per inference, or in what the objective counts. It is known from leaving
    the rewrites out of the whole `model`, from measuring the `region` alone, or by `estimate`.
    """

    name: str
    count: int
    gain: float = 0.0
    gain_from: GainSource = "region"


@dataclass(frozen=True)
class Based:
    """What so many rewrites rest on, see `xflow.analysis.value_rewrites.basis`."""

    basis: str
    sentence: str
    rewrites: int


@dataclass(frozen=True)
class Assumed:
    """What so many rewrites take for granted of the model's values, and by which rules they go.

    `option` is that of ``--assume``; `sentence` says it in words. Each rewrite counts for the least
    that it needs, and what needs nothing is not among them.
    """

    option: str
    sentence: str
    rewrites: int
    rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Missed:
    """What was left as it is in so many places, and why."""

    what: str
    count: int
    why: str


@dataclass(frozen=True)
class KernelTime:
    """The seconds of one run of the input model that the runtime spends in kernels of an operator.

    `opaque` is the part of it, 0 to 1, in nodes that no rule can speak of, if all take the same
    time.
    """

    operator: str
    seconds: float
    opaque: float = 0.0


FormSource = Literal["operator", "fusion", "none"]
NEIGHBOURS = "its neighbours"
"""By what a block is computed that became part of the weights or the operators around it."""


@dataclass(frozen=True)
class BlockForm:
    """How a block is computed: by an operator, by a kernel into which the runtime fuses it, or
    by several operators, and then `name` is empty."""

    by: FormSource
    name: str = ""


@dataclass(frozen=True)
class Block:
    """An attention, a rotary embedding, a normalization, a softmax or an activation of the input.

    `name` is the operator that it is or computes the same as, empty where none does; `nodes` are
    the names of its nodes in the input model. It is recognised if the output model computes it by
    an operator or by a kernel of the runtime; else `reason` says why it is not, if that is known.
    """

    kind: str
    name: str
    nodes: tuple[str, ...]
    before: BlockForm
    after: BlockForm
    recognised: bool
    reason: str = ""


@dataclass(frozen=True)
class Deployment:
    """What the model was optimized for."""

    provider: str
    threads: int
    processor: str = ""
    runtime: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that a run tells about itself; `xflow.report.tables` shows it on a terminal.

    `latency_*` and `ratio` are None where nothing was measured, `largest_error` (relative, over
    all outputs and random inputs) where nothing was compared.  `phases` holds seconds by name.
    `amount_*` are what the objective counts, None for latency: the bytes of the memory's peak or
    of the written model, or operators that run.  `opset_*` are the versions of ONNX's own
    operators, None for a model without any.  Where there are several settings of the input
    shapes, `settings` has all of them, and `shapes`, `latency_*`, `ratio` and `amount_*` are those
    of the worst; what rules gained is told for the best. The file `report.schema.json` beside this
    module describes the JSON.
    """

    changed: bool
    before: ModelStats
    after: ModelStats
    target: Deployment
    input: str = ""
    output: str = ""
    opset_before: int | None = None
    opset_after: int | None = None
    objective: Objective = "latency"
    cost: Cost = "measured"
    """What decided, where the objective is latency."""
    amount_before: float | None = None
    amount_after: float | None = None
    latency_before: Latency | None = None
    latency_after: Latency | None = None
    ratio: Ratio | None = None
    timed_threads: int | None = None
    """With how many threads models were timed, where there was no room for all of the target's."""
    largest_error: float | None = None
    rules: tuple[RuleUse, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    settings: tuple[Setting, ...] = ()
    seed: int = 0
    warnings: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    version: int = FORMAT_VERSION
    drawing: Mapping[str, Any] | None = None
    """Both models as a page draws them, see `xflow.report.drawing`."""
    missed: tuple[Missed, ...] = ()
    blocks: tuple[Block, ...] = ()
    """What stands in the input model, in its order, see `xflow.blocks`."""
    bases: tuple[Based, ...] = ()
    """What the rewrites rest on, and how many on each."""
    assumed: tuple[Assumed, ...] = ()
    """What the rewrites take for granted."""
    profile: tuple[KernelTime, ...] = ()
    """Where the input model's time goes by the runtime's own profile, the most first: where nothing
    was gained, or it was asked for."""
    log: Mapping[str, Any] | None = None
    """All that is needed to do the same again, see `xflow.pipeline.log`."""

    def to_json(self) -> str:
        """Return the report as JSON text that ends in a newline.

        A number that JSON has no form for (an infinite error) becomes a string.
        """
        plain = _finite(dataclasses.asdict(self))
        return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: object) -> object:
    """Return `value` with every float that JSON cannot hold replaced by its name."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return str(value)
    return value
