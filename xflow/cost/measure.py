"""Times models against each other in ONNX Runtime, with the options with which they are served.

Models that are to be compared are loaded in one process and run interleaved, because the speed of
a machine drifts by more than many rewrites gain.  Their threads spin while a model runs, as they do
by default where it is served, and sleep between the runs, because the sessions would otherwise
disturb each other.  A model that fails is a value, `Failed`, and costs the others nothing.

Several threads wait for each other, so that a process that keeps one core busy makes runs up to
three times as long, at random. One thread has no other to wait for: in the processor time that it
takes, models differ by as much as on an idle machine. So what is to be `undisturbed` is measured
with as many threads as other processes leave room for.
"""

import copy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import onnx

from xflow.core.deadline import NEVER, Deadline
from xflow.core.errors import ModelError, ProviderError, UsageError
from xflow.cost.child import NO_TIME
from xflow.cost.comparison import CONFIDENCE, Comparison, Timing
from xflow.cost.machine import LISTENING_S, Crowd
from xflow.cost.worker import (
    Failed,
    Lost,
    ModelSource,
    Worker,
    from_wire,
    model_to_wire,
    to_wire,
)
from xflow.feeds.inputs import random_inputs
from xflow.onnx.interface import required_inputs
from xflow.onnx.outline import outline

T = TypeVar("T")
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
MIN_ROUNDS = 6
FEW_ROUNDS, LONG_S = 4, 2.0
"""Rounds of a pass that suffice, where those take as many seconds. Sessions differ by more than
runs of one session do, so that the time is better spent on one more pass."""
LIMIT_S = 120.0
"""Seconds for what has no deadline."""
PASSES = 4
"""Of a comparison of two models: each loads them anew."""
EARLY_PASSES = 2
"""Passes after which what each of them shows by itself may settle a comparison."""
EARLY = 0.005
"""The part of the probability to err that this takes, out of that of the interval."""
ALONE = 0.99
"""Confidence of the interval of one pass by itself. Its lower end is the least of `FEW_ROUNDS`, so
that it lies above the true ratio of two sessions with a probability of at most 1/16; with more
rounds, of less. Two passes have no session and no run in common: both of them err in less than
`EARLY` of cases, even where each of them happens to have sessions that differ by the whole margin
that a single pass needs."""

CROWDED = "other processes came in the way, and there was no time left to time them once more"
"""Why two models were not compared."""

MOST_THREADS = 1024
"""More than any machine has: the runtime would start all of them."""


@dataclass(frozen=True)
class Target:
    """The target of a measurement: the execution provider ("cpu", "cuda") and its CPU threads."""

    provider: str = "cpu"
    threads: int = 2

    def __post_init__(self) -> None:
        if self.provider not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise UsageError(f"unknown provider {self.provider!r}", do=f"choose one of {known}")
        if not 1 <= self.threads <= MOST_THREADS:
            what = f"the number of threads must be from 1 to {MOST_THREADS}, not {self.threads}"
            raise UsageError(what)

    @property
    def takes_processor_time(self) -> bool:
        """Whether a run is measured by the processor time that it takes: with one thread.

        The clock of Windows for that is too coarse.
        """
        return self.provider == "cpu" and self.threads == 1 and sys.platform != "win32"

    @property
    def rounds_factors(self) -> bool:
        """Whether the runtime rounds the factors of products of 32-bit floats there (TF32)."""
        return self.provider == "cuda"

    def session_options(self, *, precise: bool = False) -> dict[str, Any]:
        """Return the description of a session that the measuring process understands.

        A `precise` one does not round factors: by that, models that are the same differ by parts in
        a thousand.

        All graph optimizations on, one run at a time, silent but for fatal errors. Threads spin
        during a run only. If they slept there, each operator would have to wake them. On virtual
        machines that takes longer than many operators do, or hardly any time, and changes from one
        minute to the next; where it takes long, two threads were seen to be slower than one, and
        rewrites that make a model faster elsewhere to gain nothing.
        """
        name = PROVIDERS[self.provider]
        fallback = [] if self.provider == "cpu" else [PROVIDERS["cpu"]]
        return {
            "threads": self.threads,
            "providers": [name, *fallback],
            "provider_options": [
                {"use_tf32": "0"} if precise and self.rounds_factors else {},
                *({} for _ in fallback),
            ],
            "device": self.provider,
            "entries": {
                "session.intra_op.allow_spinning": "1",
                "session.force_spinning_stop": "1",
            },
        }


@dataclass(frozen=True)
class Setting:
    """What models run on: `inputs`, or random ones of these shapes, the same for all that fit."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    inputs: Mapping[str, Any] | None = None

    def fed_to(
        self, source: ModelSource, seed: int, known: dict[tuple[bytes, ...], dict[str, Any]]
    ) -> dict[str, Any]:
        """A model's inputs for the process; models that take the same get the `known` ones.

        Raises `ModelError` where there are none for it.
        """
        if self.inputs is not None:
            return {name: to_wire(value) for name, value in self.inputs.items()}
        model = outline(source)
        key = tuple(item.SerializeToString() for item in required_inputs(model))
        if key not in known:
            values = random_inputs(model, seed, self.shapes)
            known[key] = {name: to_wire(value) for name, value in values.items()}
        return known[key]


class Measurer:
    """Times models on one target, in a process of its own.

    `worker` may be shared with other users; one that the measurer made itself ends with it.
    Nothing runs beyond `deadline`, whatever that of a single call is.
    Raises `ProviderError` at the first use if the target's provider does not work here.
    """

    def __init__(
        self,
        target: Target | None = None,
        worker: Worker | None = None,
        *,
        deadline: Deadline = NEVER,
    ) -> None:
        self.target = target or Target()
        self.deadline = deadline
        self._owned = worker is None
        self.worker = worker or Worker()

    @property
    def runtime_version(self) -> str:
        """The version of ONNX Runtime that measures."""
        return self.worker.runtime_version

    def free_threads(self) -> int:
        """How many of the target's threads other processes leave room for now, at least 1."""
        threads = self.target.threads
        return self.worker.watch.free(threads) if self.target.provider == "cpu" else threads

    def undisturbed(
        self, measure: Callable[["Measurer"], T], deadline: Deadline = NEVER
    ) -> tuple[T | None, int]:
        """Return what `measure` finds by a measurer with the threads that there is room for.

        Besides, how many these are. If there was less room than it seemed before, it is asked
        again with fewer; None if the deadline has passed by then.
        """
        threads = self.free_threads()
        while True:
            measurer = self.with_threads(threads)
            if threads == 1 or self.target.provider != "cpu":  # nobody can come in its way
                return measure(measurer), threads
            crowd = Crowd()
            found = measure(measurer)
            free = crowd.free(threads) if crowd.age > LISTENING_S else threads
            if free == threads:
                return found, threads
            if deadline.passed:
                return None, threads
            threads = free

    def with_threads(self, threads: int) -> Self:
        """A measurer with so many threads, in the same process."""
        other = copy.copy(self)
        other.target, other._owned = replace(self.target, threads=threads), False
        return other

    def time_together(
        self,
        models: Sequence[ModelSource],
        seconds: float,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> list[Timing | Failed]:
        """Time all models on one setting, see `time_at_each`, which the other arguments are for."""
        timed = self.time_at_each(models, seconds, [Setting(shapes or {}, inputs)], **how)
        return [each if isinstance(each, Failed) else each[0] for each in timed]

    def time_at_each(
        self,
        models: Sequence[ModelSource],
        seconds: float,
        settings: Sequence[Setting],
        *,
        min_rounds: int = MIN_ROUNDS,
        few_rounds: int | None = None,
        seed: int = 0,
        deadline: Deadline | None = None,
    ) -> list[tuple[Timing, ...] | Failed]:
        """Time all models interleaved at each setting, for about `seconds` and `min_rounds` rounds.

        Of long runs, `few_rounds` are enough that take `LONG_S`. Each model is loaded once, as
        where it is served at all of them, and has a timing for each. All timings have one sample
        per round, so `samples[k]` of two models belong together. With one thread they are of
        processor time, which others on the machine cannot make longer. The deadline is for
        everything, loading included; models for which no time remains are `Failed`, and those with
        which the process was lost are `Lost`.
        """
        if not models:
            return []
        deadline = min(self.deadline, deadline or Deadline.after(LIMIT_S))
        check_provider(self.target, self.worker)
        results: list[tuple[Timing, ...] | Failed | None] = [None] * len(models)
        feeds: list[list[dict[str, Any]]] = []
        known: list[dict[tuple[bytes, ...], dict[str, Any]]] = [{} for _ in settings]
        for index, model in enumerate(models):
            try:
                pairs = zip(settings, known, strict=True)
                feeds.append([setting.fed_to(model, seed, made) for setting, made in pairs])
            except ModelError as error:
                feeds.append([])
                results[index] = Failed(str(error))
        retries = 1
        while waiting := [i for i, result in enumerate(results) if result is None]:
            left = deadline.left
            if not left:
                for index in waiting:
                    results[index] = Failed(NO_TIME)
                break
            request = {
                "kind": "time",
                "models": [(model_to_wire(models[i]), feeds[i]) for i in waiting],
                "options": self.target.session_options(),
                "processor_time": self.target.takes_processor_time,
                "seconds": seconds,
                "min_rounds": min_rounds,
                "few_rounds": min_rounds if few_rounds is None else few_rounds,
                "long_s": LONG_S,
                "seed": seed,
                "limit_s": 0.95 * left,
            }
            # A model that hangs may use up its own share of the time and no more.
            answer = self.worker.ask(request, deadline, left / len(waiting))
            if isinstance(answer, Lost) and answer.model:
                results[waiting[answer.model - 1]] = answer
            elif isinstance(answer, Lost) and retries:
                retries -= 1  # no model was at work: the process itself had an accident
                self.worker.accidents.append(answer.reason)
            elif isinstance(answer, Failed):
                for index in waiting:
                    results[index] = Failed(answer.reason)
            else:
                for index, item in zip(waiting, answer, strict=True):
                    failed = item.get("failed")
                    results[index] = (
                        Failed(failed)
                        if failed
                        else tuple(Timing(tuple(samples)) for samples in item["samples"])
                    )
        return [result for result in results if result is not None]

    def outputs(
        self, model: bytes, inputs: Sequence[Any], deadline: Deadline | None = None
    ) -> list[Any] | Failed:
        """What a model gives for its inputs, in their order, as it is served."""
        names = [value.name for value in required_inputs(outline(model))]
        feeds = dict(zip(names, map(to_wire, inputs), strict=True))
        request = {
            "kind": "run",
            "model": model,
            "options": self.target.session_options(),
            "feeds": [feeds],
        }
        deadline = min(self.deadline, deadline or Deadline.after(LIMIT_S))
        answer = self.worker.ask(request, deadline)
        if isinstance(answer, Failed):
            return answer
        return [from_wire(value) for value in answer[0].values()]

    def compare(
        self,
        before: ModelSource,
        after: ModelSource,
        seconds: float,
        *,
        shapes: Mapping[str, Sequence[int]] | None = None,
        inputs: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Comparison | Failed:
        """Compare two models at one setting, see `compare_at_each`."""
        found = self.compare_at_each(before, after, seconds, [Setting(shapes or {}, inputs)], **how)
        return found if isinstance(found, Failed) else found[0]

    def compare_at_each(
        self,
        before: ModelSource,
        after: ModelSource,
        seconds: float,
        settings: Sequence[Setting],
        *,
        deadline: Deadline | None = None,
        **how: Any,
    ) -> tuple[Comparison, ...] | Failed:
        """Time two models in the order A B B A and say which is faster, and how surely.

        For each setting, of which each takes these seconds, with as many threads as there is room
        for; if there was less than it seemed before, again with fewer. For `how` see `_compared`.
        """
        until = deadline or Deadline.after(LIMIT_S)
        found, threads = self.undisturbed(
            lambda alike: alike._compared(before, after, seconds, settings, deadline=until, **how),
            until,
        )
        if found is None:
            return Failed(CROWDED)
        if isinstance(found, Failed) or threads == self.target.threads:
            return found
        return tuple(replace(each, threads=threads) for each in found)

    def _compared(
        self,
        before: ModelSource,
        after: ModelSource,
        seconds: float,
        settings: Sequence[Setting],
        *,
        deadline: Deadline,
        passes: int = PASSES,
        settled: Callable[[Sequence[Comparison]], bool] | None = None,
        undecided: Callable[[Comparison], bool] | None = None,
        hopeless: Callable[[Comparison, float], bool] | None = None,
        extra_s: float = 0.0,
        seed: int = 0,
    ) -> tuple[Comparison, ...] | Failed:
        """Compare two models with the threads of the target.

        Two sessions of one and the same model may differ by some percent for as long as they live,
        so there are several passes, each with new sessions that are loaded in the other order. One
        that would end behind the deadline is left out. A setting is not timed further where it is
        `settled` by what each of the first `EARLY_PASSES` shows by itself. Where what all of them
        tell is `undecided`, there are up to twice as many again, for which there are `extra_s`
        besides; unless it is `hopeless` that so many times as many passes show anything, which is
        asked after each of them: to give up makes no error. All these looks together err in at
        most 5 % of cases.
        """
        looks = 1 if undecided is None else 2
        early = settled if passes > EARLY_PASSES else None
        confidence = CONFIDENCE if early is None else CONFIDENCE + EARLY
        found: list[list[tuple[Timing, Timing]]] = [[] for _ in settings]
        totals: dict[int, Comparison] = {}
        open_ones = list(range(len(settings)))

        def total(which: int) -> Comparison:
            return Comparison.over(found[which], seed, looks=looks, confidence=confidence)

        def may_show(which: int) -> bool:
            more = 3 * passes / len(found[which])
            return hopeless is None or not hopeless(total(which), more)

        took = 0.0
        for count in (*([] if early is None else [EARLY_PASSES]), *(passes, 3 * passes)[:looks]):
            for number in range(len(found[open_ones[0]]), count):
                if number and deadline.sooner(took).passed:
                    break
                start = time.monotonic()
                pairs = self._pass(
                    before,
                    after,
                    number,
                    seconds / passes,
                    [settings[which] for which in open_ones],
                    few_rounds=FEW_ROUNDS,
                    seed=seed,
                    deadline=deadline,
                )
                if isinstance(pairs, Failed):
                    if number and deadline.passed:
                        break  # there was no time for one more
                    return pairs
                for which, pair in zip(open_ones, pairs, strict=True):
                    found[which].append(pair)
                took = time.monotonic() - start
                if number >= passes and not any(map(may_show, open_ones)):
                    break
            if early is not None and count == EARLY_PASSES:
                left = [w for w in open_ones if not early(_alone(found[w], seed))]
                totals |= {w: total(w) for w in open_ones if w not in left}
                took *= len(left) / len(open_ones)  # about
            else:
                totals |= {w: total(w) for w in open_ones}
                left = [w for w in open_ones if undecided and undecided(totals[w])]
                if count == passes:
                    left = list(filter(may_show, left))
                deadline, took = deadline.extended(extra_s), 0.0
            if not left:
                break
            open_ones = left
        return tuple(totals[which] for which in range(len(settings)))

    def _pass(
        self,
        before: ModelSource,
        after: ModelSource,
        number: int,
        seconds: float,
        settings: Sequence[Setting],
        **how: Any,
    ) -> list[tuple[Timing, Timing]] | Failed:
        """One pass: by turns either model is loaded first; a pair of timings for each setting."""
        order = (before, after) if number % 2 == 0 else (after, before)
        how["seed"] += number
        timings = self.time_at_each(order, seconds, settings, **how)
        first, second = timings if number % 2 == 0 else reversed(timings)
        if isinstance(first, Failed):
            return replace(first, reason=f"the model before: {first.reason}")
        if isinstance(second, Failed):
            return replace(second, reason=f"the model after: {second.reason}")
        return list(zip(first, second, strict=True))

    def close(self) -> None:
        """End the process if the measurer started it."""
        if self._owned:
            self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _alone(pairs: Sequence[tuple[Timing, Timing]], seed: int) -> list[Comparison]:
    """What each of some passes shows by itself."""
    return [Comparison.over([pair], seed, confidence=ALONE) for pair in pairs]


def check_provider(target: Target, worker: Worker) -> None:
    """Raise `ProviderError` unless the target's provider works on this machine.

    The runtime names the providers that it was built with, whether or not their libraries and
    devices are there; only a session shows whether they work.
    """
    name = PROVIDERS[target.provider]
    if name not in worker.providers:
        have = ", ".join(key for key, value in PROVIDERS.items() if value in worker.providers)
        raise ProviderError(
            f"the installed onnxruntime has no {name}", do=f"use one that it has: {have}"
        )
    if target.provider == "cpu" or name in worker.working:
        return
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"])],
        "probe",
        [value("x", onnx.TensorProto.FLOAT, [1])],
        [value("y", onnx.TensorProto.FLOAT, [1])],
    )
    opsets = [onnx.helper.make_opsetid("", 13)]
    probe = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    request = {
        "kind": "run",
        "model": probe.SerializeToString(),
        "options": target.session_options(),
        "feeds": [{"x": np.zeros(1, np.float32)}],
    }
    answer = worker.ask(request, Deadline.after(60.0))
    if isinstance(answer, Failed):
        raise ProviderError(
            f"{name} does not work on this machine ({answer.reason})", do="use another provider"
        )
    worker.working.add(name)
