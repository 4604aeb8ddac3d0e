"""Generates the database of rules: derives every family on all workers and writes the folder."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from xflow.core.errors import UsageError
from xflow.cost.machine import usable_cores
from xflow.generator.database.difference import compare, load_families
from xflow.generator.database.naming import name_rules, rules_of
from xflow.generator.database.publish import Page, prepare, publish
from xflow.generator.database.sets import fill_gaps, sort_out
from xflow.generator.derive import Derivation, FamilyJob, add_costs, measure
from xflow.generator.families import FAMILIES
from xflow.generator.report import Summary, unknown_text
from xflow.generator.runner.chunks import Chunk
from xflow.generator.runner.desk import Desk, Steps, complete
from xflow.generator.runner.engine import Engine, Urgency
from xflow.generator.runner.journal import Journal, journal_folder
from xflow.generator.runner.local import LocalEngine
from xflow.generator.runner.memory import default_limit, workers_within
from xflow.generator.runner.ray_engine import RayEngine
from xflow.generator.standing import Observer, Watch
from xflow.generator.vocabulary import Family
from xflow.rewriting.rule import Rule
from xflow.rewriting.store import stanza_names

BASE = "elementwise"
"""The family whose rules all other families assume."""


def generate(
    out: Path,
    *,
    seed: int = 0,
    families: Sequence[str] | None = None,
    max_ops: int = 3,
    jobs: int | None = None,
    max_memory: int | None = None,
    engine: str = "local",
    address: str | None = None,
    against: Path | None = None,
    progress: Watch | None = None,
    among: Sequence[Family] | None = None,
) -> Summary:
    """Write the rules of `families` (all if None) to `out`, with their certificates.

    What is written depends on `seed` and `max_ops` alone; it appears all at once at the end, and
    files of other families stay as they are. A run that was killed is taken up by the next one
    with the same arguments. `against` is a database to compare with.

    It runs in up to `jobs` workers (None: one a core), which hold at most `max_memory` bytes
    together (None: three quarters of what there is): processes, or tasks of the Ray cluster at
    `address` (None: one that is started here) where `engine` is ``ray``.

    `among` are the families that there are (None: all of xflow's), one of them called `BASE`.

    Raises UsageError for a family that does not exist and for too little memory, RuleFileError
    for a database that cannot be read, OutputError, and WorkerError for work that cannot be done.
    """
    start, used = time.monotonic(), time.process_time()
    every = FAMILIES if among is None else tuple(among)
    chosen = _choose(families, every)
    names = [family.name for family in chosen]
    before = None if against is None else load_families(against, names)
    prepare(out)
    others = _other_rules(out, names)
    journal = Journal(journal_folder(seed, max_ops, tuple(names)))
    try:
        runner = start_engine(engine, address, jobs, max_memory, journal)
        try:
            desk = Desk(runner, seed, max_ops, journal)
            results = _derive_all(chosen, every, others, desk, progress)
        finally:
            runner.close()
        others_rules = [rule for rules in others.values() for rule in rules]
        named = name_rules(results, others_rules, _stanzas_in(out, others))
        about = {family.name: family.about for family in every}
        publish(
            out,
            {
                result.family: Page(
                    about[result.family], named[result.family], unknown_text(result)
                )
                for result in results
            },
        )
    except BaseException:
        journal.close()
        raise
    journal.delete()
    summary = _summarize(results, desk, time.monotonic() - start)
    summary.conducting = time.process_time() - used
    summary.stanzas = len(_stanzas_in(out, names))
    if before is not None:
        summary.difference = compare(before, rules_of(chain.from_iterable(named.values())))
    return summary


def _choose(names: Sequence[str] | None, every: Sequence[Family]) -> list[Family]:
    known = {family.name: family for family in every}
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise UsageError(
            f"there is no family {unknown[0]}", do=f"choose among {', '.join(sorted(known))}"
        )
    return [family for family in every if not names or family.name in names]


def _other_rules(out: Path, chosen: Sequence[str]) -> dict[str, list[Rule]]:
    """The rules in `out` that are not of the `chosen` families, and so stay as they are."""
    families = {path.stem for path in out.glob("*.rules")} if out.exists() else set()
    return {name: load_families(out, [name]) for name in sorted(families - set(chosen))}


def _stanzas_in(out: Path, families: Iterable[str]) -> list[str]:
    """The names of the stanzas of these families in `out`."""
    return [name for family in families for name in stanza_names(out / f"{family}.rules")]


def start_engine(
    engine: str, address: str | None, jobs: int | None, max_memory: int | None, journal: Journal
) -> Engine:
    """The engine of this name; for the arguments see `generate`."""
    if engine == "ray":
        return RayEngine(address, jobs, max_memory)
    limit = max_memory or default_limit()
    return LocalEngine(workers_within(limit, jobs or usable_cores()), limit, journal.folder)


def _derive_all(
    chosen: Sequence[Family],
    every: Sequence[Family],
    others: Mapping[str, Sequence[Rule]],
    desk: Desk,
    progress: Watch | None,
) -> list[Derivation]:
    """Derive each family. The base goes first; what does not depend on it is done meanwhile."""
    base = next(family for family in every if family.name == BASE)
    all_families = [base, *(family for family in chosen if family.name != BASE)]
    jobs = {family.name: FamilyJob(family, desk) for family in all_families}
    observer = Observer(progress, desk, list(jobs.values()))
    desk.finished = lambda family, chunk: observer.tell(_describe(family, chunk))
    for name, job in jobs.items():
        job.prefetch(Urgency.NOW if name == BASE else Urgency.EXPLORE)
    made: dict[str, Derivation] = {}
    # A family of definitions alone compares nothing, so it need not wait for the base.
    tasks: dict[str, Steps[Derivation]] = {
        name: job.steps()
        for name, job in jobs.items()
        if name == BASE or not job.family.vocabularies
    }

    def done(name: str, derivation: Derivation) -> None:
        made[name] = derivation
        if name == BASE:
            known = [kept.rule for kept in derivation.kept]
            waiting = [other for other in jobs if other not in (*made, *tasks)]
            tasks.update({other: jobs[other].steps(known) for other in waiting})

    complete(desk, tasks, done)
    results = [made[family.name] for family in chosen]
    own = {result.family: result for result in results}
    order = [family.name for family in every]
    complete(desk, {"sets": sort_out(own, others, order, desk)}, _nothing)
    rules = [item.rule for result in results for item in result.kept if item.rule.explains]
    rules += [rule for family in others.values() for rule in family if rule.explains]
    if BASE not in own and BASE not in others:
        rules += [item.rule for item in made[BASE].kept]
    mine = {name: jobs[name] for name in own}
    complete(desk, {"gaps": fill_gaps(mine, others, order, rules, desk)}, _nothing)
    complete(desk, {result.family: measure(result, desk) for result in results}, _nothing)
    observer.tell("writing the rules", at_once=True)
    add_costs(results, desk)
    return results


def _nothing(name: str, made: object) -> None:
    """Nothing follows."""


def _describe(family: str, chunk: Chunk[Any]) -> str:
    return f"{family}: {chunk.kind}"


def _summarize(results: list[Derivation], desk: Desk, seconds: float) -> Summary:
    usage = desk.engine.usage
    return Summary(
        families=results,
        seconds=seconds,
        seed=desk.seed,
        max_ops=desk.max_ops,
        engine=desk.engine.name,
        workers=usage.workers,
        memory_limit=usage.limit,
        peak_memory=usage.peak_memory,
        lost_workers=usage.lost,
        moved=usage.moved,
        busy={worker: micro / 1e6 for worker, micro in desk.workers.items()},
        tallies=dict(desk.tallies),
    )
