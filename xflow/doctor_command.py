"""`xflow doctor`: what there is to work with, and what would be measured where."""

import argparse
import importlib.util
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console

from xflow.cost.calibrate import stored
from xflow.cost.store import Place, Store, default_path
from xflow.cost.worker import Worker
from xflow.errors import ExitCode, XflowError
from xflow.machine import processor_name, usable_cores
from xflow.report import format_amount
from xflow.rule_files import default_directory, load_rules

PACKAGES = ("onnx", "onnx-ir", "numpy", "z3-solver", "cvc5", "ray")
"""Packages of which the version matters to somebody who asks for help."""


def run(options: argparse.Namespace) -> ExitCode:
    """Print what was found; fail with the first thing that does not work."""
    console = Console(highlight=False, soft_wrap=True)

    def tell(what: str, value: object) -> None:
        console.print(f"{what:13}{value}", markup=False)

    tell("xflow", f"{version('xflow-onnx')}, Python {platform.python_version()}")
    tell("system", f"{platform.system()} {platform.machine()}, {sys.executable}")
    tell("processor", f"{processor_name()}, {usable_cores()} physical cores to use")
    for name in PACKAGES:
        try:
            tell(name, version(name))
        except PackageNotFoundError:
            tell(name, "not installed; only some commands need it")
    rules = load_rules(default_directory())
    tell("rules", f"{len(rules)}, {sum(rule.is_searched for rule in rules)} of them searched")
    threads = options.threads or usable_cores()
    with Worker() as worker:
        runtime = worker.runtime_version
        tell("ONNX Runtime", f"{runtime}, in a process of its own")
        tell("built for", ", ".join(_providers()))
    path = default_path()
    size = path.stat().st_size if path.is_file() else 0
    with Store() as store:
        place = Place.of("cpu", threads, runtime)
        known = stored(place, store) is not None
        tell("measured on", f"cpu, {threads} thread{'' if threads == 1 else 's'}")
        tell("calibrated", "yes" if known else "no: the first run, or xflow calibrate, does it")
        tell("database", f"{path}, {format_amount(float(size), 'size')}")
        for warning in store.warnings:
            raise XflowError(warning, str(path))
    return ExitCode.OK


def _providers() -> list[str]:
    if importlib.util.find_spec("onnxruntime") is None:
        return ["none"]
    import onnxruntime  # noqa: PLC0415 - loads slowly

    return list(onnxruntime.get_available_providers())
