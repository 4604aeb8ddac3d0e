"""The report of a generation: counts and costs by family, as rows of a table and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from xflow.generator.database.difference import Difference
from xflow.generator.derive import Derivation
from xflow.generator.runner.desk import Tally
from xflow.generator.settle import cause_of

COLUMNS = ("graphs", "classes", "proposed", "derived", "proved", "refuted", "unknown", "kept")
SHOWN = ("graphs", "proposed", "proved", "refuted", "unknown", "kept")


@dataclass
class Summary:
    """Counts, times and memory of a generation, in total and for each family."""

    families: list[Derivation] = field(default_factory=list)
    seconds: float = 0.0
    """From start to end of this run, of which there may have been several."""
    seed: int = 0
    max_ops: int = 0
    engine: str = "local"
    workers: int = 1
    memory_limit: int = 0
    peak_memory: int = 0
    """Bytes that all processes of this machine held together, at the worst moment sampled."""
    lost_workers: int = 0
    conducting: float = 0.0
    """Processor seconds of the process that conducts the job, decisions included."""
    moved: int = 0
    """Bytes that went to workers and came back."""
    busy: dict[str, float] = field(default_factory=dict)
    """Seconds that each worker process of this run computed."""
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """By family and kind of chunk."""
    stanzas: int = 0
    """In which the rules are written."""
    difference: Difference | None = None

    @property
    def counts(self) -> Counter[str]:
        """The families' counts together."""
        total: Counter[str] = Counter()
        for derivation in self.families:
            total.update(derivation.counts)
        return total

    @property
    def false_rate(self) -> float:
        """The part of the rules tried that were refuted: false positives of fingerprints."""
        counts = self.counts
        tried = counts["proved"] + counts["refuted"] + counts["unknown"]
        return counts["refuted"] / tried if tried else 0.0

    @property
    def idle(self) -> float:
        """Worker seconds of this run in which nothing was computed."""
        return max(0.0, self.workers * self.seconds - sum(self.busy.values()))

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Labels and values for a table."""
        total = self.counts
        labels = {"graphs": "graphs enumerated"}
        rows = [(labels.get(name, name), f"{total[name]:,}") for name in COLUMNS]
        shortcuts, gaps = total["shortcuts"], total["gaps"]
        rows.append(("in the base", f"{total['kept'] - shortcuts:,}"))
        rows.append(("in the working set", f"{total['kept'] - gaps:,}"))
        rows.append(("stanzas", f"{self.stanzas:,}"))
        rows.append(("false rate of fingerprints", f"{100 * self.false_rate:.2f} %"))
        rows.append(("seconds", f"{self.seconds:.0f}"))
        rows.append(("memory", f"{self.peak_memory / 10**9:.2f} GB"))
        for derivation in self.families:
            counts = derivation.counts
            text = ", ".join(f"{counts[name]:,} {name}" for name in SHOWN)
            rows.append((derivation.family, f"{text}, {derivation.seconds:.0f} s"))
        return rows

    @property
    def chain(self) -> float:
        """Seconds that no number of workers would save.

        The base family, then the slowest of the others; of each the longest chunks, one after the
        other, and the decisions. As if every proposal were proved ahead of its turn.
        """
        links = [self._link(derivation) for derivation in self.families]
        return links[0] + max(links[1:], default=0.0) if links else 0.0

    def _link(self, derivation: Derivation) -> float:
        kinds = {
            kind: tally for (name, kind), tally in self.tallies.items() if name == derivation.family
        }
        return derivation.deciding + sum(tally.longest for tally in kinds.values())

    def to_json(self) -> str:
        """The report as JSON: times in seconds, memory and sizes in bytes."""
        return json.dumps(self._document(), indent=1) + "\n"

    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "seed": self.seed,
            "max_ops": self.max_ops,
            "engine": self.engine,
            "workers": self.workers,
            "seconds": round(self.seconds, 3),
            "busy_seconds": round(sum(self.busy.values()), 3),
            "idle_seconds": round(self.idle, 3),
            "deciding_seconds": round(sum(d.deciding for d in self.families), 3),
            "conducting_seconds": round(self.conducting, 3),
            "chain_seconds": round(self.chain, 3),
            "memory_limit": self.memory_limit,
            "peak_memory": self.peak_memory,
            "bytes_moved": self.moved,
            "lost_workers": self.lost_workers,
            "worker_processes": len(self.busy),
            "false_rate": self.false_rate,
            "stanzas": self.stanzas,
            "chunks": _chunks(self.tallies.items()),
            "families": [self._family(derivation) for derivation in self.families],
            "unknown": unknown_pairs(self.families),
            "dropped": [
                {"family": d.family, "rule": str(dropped.item.rule), "reason": dropped.reason}
                for d in self.families
                for dropped in d.dropped
            ],
        }
        if self.difference is not None:
            document["difference"] = {
                "gained": [str(rule) for rule in self.difference.gained],
                "lost": [str(rule) for rule in self.difference.lost],
                "changed": [
                    {"before": str(c.before), "after": str(c.after), "lines": list(c.lines)}
                    for c in self.difference.changed
                ],
            }
        return document

    def _family(self, derivation: Derivation) -> dict[str, Any]:
        own = {kind: t for (name, kind), t in self.tallies.items() if name == derivation.family}
        return {
            "family": derivation.family,
            **{
                name: derivation.counts[name]
                for name in (*COLUMNS, "accidental", "idle", "implausible", "shortcuts", "gaps")
            },
            "seconds": round(derivation.seconds, 3),
            "deciding_seconds": round(derivation.deciding, 3),
            "peak_memory": max((tally.memory for tally in own.values()), default=0),
            "chunks": _chunks(((derivation.family, kind), tally) for kind, tally in own.items()),
        }


def _chunks(tallies: Iterable[tuple[tuple[str, str], Tally]]) -> dict[str, dict[str, float]]:
    """The costs of each kind of chunk, over families."""
    total: dict[str, dict[str, float]] = {}
    for (_, kind), tally in tallies:
        row = total.setdefault(
            kind, {"chunks": 0, "recalled": 0, "seconds": 0.0, "longest_seconds": 0.0}
        )
        row["chunks"] += tally.chunks
        row["recalled"] += tally.recalled
        row["seconds"] = round(row["seconds"] + tally.seconds, 3)
        row["longest_seconds"] = round(max(row["longest_seconds"], tally.longest), 3)
    return total


def unknown_pairs(families: Iterable[Derivation]) -> list[dict[str, str]]:
    """How many rules were neither proved nor refuted, by family and cause."""
    pairs = [
        {"family": d.family, "cause": cause_of(reason), "reason": reason, "rule": text}
        for d in families
        for text, reason in d.unknown
    ]
    return sorted(pairs, key=lambda pair: (pair["family"], pair["cause"]))


def unknown_text(derivation: Derivation) -> str:
    """The page of a family's unknown rules; empty where there are none."""
    pairs = unknown_pairs([derivation])
    if not pairs:
        return ""
    stanzas = [
        f"# cause: {pair['cause']}\n# {' '.join(pair['reason'].split())}\n{pair['rule']}"
        for pair in pairs
    ]
    head = "# Plausible rules that were neither proved nor refuted; nothing uses them.\n"
    return f"{head}# Written by `xflow rules generate`; not by hand.\n\n" + "\n".join(stanzas)
