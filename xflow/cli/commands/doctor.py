"""`xflow doctor`: prints the installed versions, the machine, and what does not work."""

from __future__ import annotations

import argparse
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from xflow.cli.arguments import add_threads
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode, ProviderError, XflowError
from xflow.core.wording import counted

if TYPE_CHECKING:
    from xflow.cost.worker import Worker

PACKAGES = ("onnx", "onnx-ir", "numpy", "z3-solver")
"""Packages whose versions belong into a request for help."""

OPTIONAL = {
    "cvc5": "to recheck certificates: pip install '.[recheck]'",
    "ray": "to generate on a cluster: pip install '.[ray]'",
}
"""Packages that some commands need, and how to install them."""

CUT_OFF = "sums of two products by weights with a sign may be cut off at 16 bits"
"""As the runtime's kernels do on x86 processors without VNNI."""


def add(commands: Commands[Parser]) -> None:
    """Add `doctor`."""
    summary = "say what there is to work with: versions, processor, database"
    parser = add_command(commands, "doctor", summary)
    add_threads(parser.add_argument)
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Print what was found; fail with the first thing that does not work."""
    from rich.console import Console

    from xflow.cost.calibration.calibrate import stored
    from xflow.cost.machine import processor_name, usable_cores
    from xflow.cost.store import Platform, Store, default_path
    from xflow.cost.worker import Worker
    from xflow.report.formats import format_amount
    from xflow.rewriting.store import count_stanzas, default_directory, load_rules

    console = Console(highlight=False, soft_wrap=True)

    def tell(what: str, value: object) -> None:
        console.print(f"{what:13}{value}", markup=False)

    tell("xflow", f"{version('xflow-onnx')}, Python {platform.python_version()}")
    tell("system", f"{platform.system()} {platform.machine()}, {sys.executable}")
    tell("processor", f"{processor_name()}, {usable_cores()} physical cores to use")
    for name in PACKAGES:
        tell(name, version(name))
    for name, how in OPTIONAL.items():
        try:
            tell(name, version(name))
        except PackageNotFoundError:
            tell(name, f"not installed; {how}")
    rules = load_rules(default_directory())
    searched = sum(rule.is_searched for rule in rules)
    stanzas = counted(count_stanzas(default_directory()), "stanza")
    where = f"in {default_directory()}"
    tell("rules", f"{len(rules)} in {stanzas}, {searched} of them searched, {where}")
    threads = options.threads or usable_cores()
    with Worker() as worker:
        runtime = worker.runtime_version
        tell("ONNX Runtime", f"{runtime}, in a process of its own")
        tell("providers", ", ".join(_providers(threads, worker)))
    path = default_path()
    size = path.stat().st_size if path.is_file() else 0
    with Store() as store:
        place = Platform.of("cpu", threads, runtime)
        known = stored(place, store)
        tell("measured on", f"cpu, {counted(threads, 'thread')}")
        tell("calibrated", "yes" if known else "no; the first run does it, or xflow calibrate")
        if known is not None:
            tell("int8", CUT_OFF if known.cuts_off else "products by weights with a sign are exact")
        tell("database", f"{path}, {format_amount(float(size), 'size')}")
        for warning in store.warnings:
            raise XflowError(warning)
    return ExitCode.OK


def _providers(threads: int, worker: Worker) -> list[str]:
    """The values of --provider, each with whether it works: its libraries may be missing."""
    from xflow.cost.measure import PROVIDERS, Target, check_provider

    said = []
    for name in PROVIDERS:
        try:
            check_provider(Target(name, threads), worker)
            said.append(f"{name} works")
        except ProviderError:
            said.append(f"{name} does not work here")
    return said
