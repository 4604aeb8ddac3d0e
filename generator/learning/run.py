"""Learns rules from models, and writes them beside the rules that are known."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xflow.core.deadline import NEVER, Deadline
from xflow.core.errors import UsageError
from xflow.cost.machine import usable_cores
from xflow.feeds.inputs import Shapes, default_shapes
from xflow.generator.database.naming import name_rules, single
from xflow.generator.database.publish import Page, prepare, publish
from xflow.generator.derive import Derivation, Kept, add_costs, measure
from xflow.generator.learning.job import NAME, LearnJob
from xflow.generator.learning.lessons import Lessons, on_the_way
from xflow.generator.report import unknown_text
from xflow.generator.run import start_engine
from xflow.generator.runner.codec import digest
from xflow.generator.runner.desk import Desk, complete
from xflow.generator.runner.journal import Journal, journal_folder
from xflow.onnx.files import load_model
from xflow.onnx.imported import Imported
from xflow.onnx.importer import import_model
from xflow.onnx.types import interface
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import default_directory, load_rules, stanza_names
from xflow.rewriting.text import parse_rules

SEARCH_S = 20.0
"""Seconds of work of a search by estimate, whose steps are learned from."""
PASSES = 3
"""How often what was learned is applied, and learned from again."""

Tell = Callable[[str, Mapping[str, object]], None]
"""Called at every step with what is done, and with numbers by their names."""


@dataclass(frozen=True)
class Summary:
    """What was learned, and what became of all proposals."""

    derivation: Derivation
    kept: Sequence[Kept]
    """The rules, by name."""
    regions: int
    left: int
    """Regions for which there was no time."""
    failures: Sequence[str]
    """Why chunks of work failed, in words: what they would have taught is missing."""
    seconds: float


@dataclass(frozen=True)
class _Model:
    name: str
    imported: Imported
    sizes: Mapping[str, int]


def learn(
    models: Sequence[Path],
    out: Path,
    *,
    base: Path | None = None,
    shapes: Shapes | None = None,
    seed: int = 0,
    minutes: float | None = None,
    jobs: int | None = None,
    max_memory: int | None = None,
    tell: Tell = lambda phase, details: None,
) -> Summary:
    """Write the rules that the models teach to the database `out`, into ``learned.rules``.

    The database is begun as a copy of `base`, or of xflow's own rules if that is None, unless there
    are rules in it already. What its rules imply, or those that were learned before, is not stated
    again. `shapes` are those of dynamic inputs. After that many `minutes` no further region is
    begun (None: all are learned from). A run that was killed is taken up by the next one with the
    same models.

    Raises ModelError, OutputError, RuleFileError, UsageError for a `base` beside rules in `out` and
    for too little memory, and WorkerError where no process can be started or stays alive.
    """
    start = time.monotonic()
    deadline = NEVER if minutes is None else Deadline.after(60 * minutes)
    prepare(out)
    is_new = not out.exists() or not any(out.glob("*.rules"))
    if base is not None and not is_new:
        what = "there are rules in this folder already, which are the known ones"
        raise UsageError(what, str(out), "leave out --rules, or choose another folder")
    base = base or default_directory()
    known = load_rules(base if is_new else out)
    read = [_read(path, shapes) for path in models]
    processes = jobs or usable_cores()
    contents = digest(*(_digest(path) for path in models))
    stated = digest(*(rule.statement for rule in known))
    journal = Journal(journal_folder(seed, 0, (NAME, contents, stated)))
    try:
        engine = start_engine("local", None, processes, max_memory, journal)
        try:
            desk = Desk(engine, seed, 0, journal)
            job = LearnJob(known, desk, deadline)
            desk.finished = lambda family, chunk: tell("learn", job.standing)
            regions = _in_passes(job, read, known, processes, tell)
            complete(desk, {NAME: measure(job.result, desk)}, lambda name, made: None)
        finally:
            engine.close()
        add_costs([job.result], desk)
        named = name_rules([job.result], known, _stanzas_in(base if is_new else out))[NAME]
        before = [] if is_new else _learned_before(out, known)
        names = ", ".join(path.name for path in models)
        page = Page(
            f"what models taught, the last ones: {names}",
            sorted([*map(single, before), *named], key=lambda stanza: stanza.name),
            unknown_text(job.result),
            "xflow rules learn",
        )
        publish(out, {NAME: page}, base if is_new else None)
    except BaseException:
        journal.close()
        raise
    journal.delete()
    spent = time.monotonic() - start
    kept = [item for stanza in named for item in stanza.kept]
    return Summary(job.result, kept, regions, job.left, job.failures, spent)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stanzas_in(folder: Path) -> list[str]:
    return [name for path in sorted(folder.glob("*.rules")) for name in stanza_names(path)]


def _learned_before(out: Path, known: Sequence[Rule]) -> list[Kept]:
    """The rules of an earlier run, with their certificates."""
    path = out / f"{NAME}.rules"
    if not path.exists():
        return []
    own = {rule.name for rule in parse_rules(path.read_text(encoding="utf-8"), str(path))}
    certificates = out / "certificates"
    return [
        Kept(rule, json.loads((certificates / f"{rule.name}.json").read_text(encoding="utf-8")))
        for rule in known
        if rule.name in own
    ]


def _read(path: Path, shapes: Shapes | None) -> _Model:
    model = load_model(path)
    imported = import_model(model)
    full = default_shapes(interface(model), shapes)
    return _Model(path.name, imported, imported.sizes(full))


def _in_passes(
    job: LearnJob,
    models: Sequence[_Model],
    known: Sequence[Rule],
    processes: int,
    tell: Tell,
) -> int:
    """Learn from the models, and from what the rules make of them; how many regions there were."""
    lessons = Lessons(job.desk.seed)
    for model in models:
        tell("read", {"model": model.name})
        lessons.add(model.imported.graph, model.sizes, model.imported.constants)
    for number in range(PASSES):
        before = len(job.result.kept)
        complete(job.desk, {NAME: job.steps(lessons.ordered())}, lambda name, made: None)
        learned = job.named()
        if job.deadline.passed or (number and len(job.result.kept) == before):
            break
        for model in models:
            tell("search", {"model": model.name})
            rules = [rule for rule in (*known, *learned) if rule.is_searched]
            way = on_the_way(model.imported, model.sizes, rules, SEARCH_S, processes)
            for graph, constants in way:
                lessons.add(graph, model.sizes, constants)
    return len(lessons)
