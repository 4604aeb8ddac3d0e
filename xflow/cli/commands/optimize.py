"""`xflow optimize`, also called as `xflow IN OUT`: writes a faster form of a model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path

from xflow.cli.arguments import (
    add_comparison,
    add_inputs,
    add_names,
    add_rules,
    byte_size,
    count,
    input_settings,
    positive,
    rules_folder,
)
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.assumptions import DEFAULT, Assumption
from xflow.core.errors import ExitCode, NotFaster, UsageError
from xflow.core.limits import GROWTH
from xflow.cost import COSTS, OBJECTIVES

WIDTH = 80


def add(commands: Commands[Parser]) -> None:
    """Add `optimize`."""
    usage = "xflow [optimize] IN OUT [options]"
    parser = add_command(commands, "optimize", "make an ONNX model faster", usage)
    add_argument = parser.add_argument
    add_argument(
        "input", metavar="IN", help="the model, - for stdin, or a folder of models; never written"
    )
    add_argument(
        "output", metavar="OUT", help="where the faster model goes, - for stdout, or a folder"
    )
    add_argument(
        "--budget",
        type=positive,
        default=60.0,
        metavar="SECONDS",
        help="for all but the final timing (60)",
    )
    add_comparison(add_argument)
    add_inputs(add_argument, "check and time")
    add_argument(
        "--objective",
        choices=OBJECTIVES,
        default="latency",
        help="what is to become better: latency, peak memory, size of the file, or number of "
        "nodes that run (latency)",
    )
    add_rules(add_argument)
    add_names(add_argument, "--only-rules", "apply these rules only")
    add_names(add_argument, "--skip-rules", "do not apply these")
    add_argument(
        "--check", type=count, default=3, metavar="N", help="random inputs to compare on (3)"
    )
    add_argument(
        "--cost",
        choices=COSTS,
        default="measured",
        help="what decides: measurements here, the estimate alone, or the estimate as measurements "
        "of other models have corrected it (measured)",
    )
    opset = parser.add_mutually_exclusive_group()
    opset.add_argument(
        "--keep-opset", action="store_true", help="use no operators of a newer opset"
    )
    opset.add_argument(
        "--target-opset",
        type=count,
        metavar="N",
        help="raise to this one where newer operators gain (the oldest that has them)",
    )
    add_argument(
        "--domains",
        choices=("onnx", "ort"),
        default="onnx",
        help="bring in standard operators only, or those of ONNX Runtime's own domain, too (onnx)",
    )
    add_argument(
        "--vnni",
        action="store_true",
        help="on codes of 8 bits, use kernels that are exact on processors with VNNI alone",
    )
    add_argument(
        "--keep-initializer-inputs",
        action="store_true",
        help="weights that are inputs, too, stay inputs (they become constants)",
    )
    add_argument(
        "--size-threshold",
        type=byte_size,
        default=GROWTH,
        metavar="SIZE",
        help=f"by how much folded constants may enlarge the model ({GROWTH // 2**20}MiB)",
    )
    add_argument(
        "--assume",
        choices=[level.option for level in Assumption],
        default=DEFAULT.option,
        help="what may be taken for granted: nothing, that float inputs which enter sums hold "
        "numbers, or also that moderate numbers do not overflow, or that errors of rounding count "
        f"against the largest elements of a tensor, as in fast convolutions ({DEFAULT.option})",
    )
    add_argument(
        "--only-proved",
        action="store_true",
        help="apply proved rules only, and nothing that rests on data, ranges or floating point",
    )
    add_argument("--save-repro", metavar="DIR", help="where models go that show a wrong rewrite")
    add_argument("--report", metavar="FILE.json", help="write what was done as JSON")
    add_argument(
        "--jobs", type=count, default=1, metavar="N", help="models of a folder at a time (1)"
    )
    add_argument("--html", metavar="FILE", help="write what was done as a page for a browser")
    add_argument(
        "--fail-if-not-faster", action="store_true", help="exit with 4 if nothing was gained"
    )
    add_talk(parser)
    parser.set_defaults(run=run, parser=parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Optimize a model, or all of a folder."""
    from xflow.cli import folder, streams

    if streams.PIPE in (options.input, options.output):
        return streams.run(options, _optimize_file)
    if Path(options.input).is_dir():
        return folder.run(options, folder.restated(options.parser, options))
    return _optimize_file(options)


def _optimize_file(options: argparse.Namespace) -> ExitCode:
    """Optimize one model, write it, and print the table."""
    from xflow.cost import machine
    from xflow.onnx import files
    from xflow.rewriting import store

    shapes = input_settings(options.input_shapes)
    output = files.check_output(options.output, options.input)
    if options.report:
        report_file = files.check_output(options.report, options.input)
        if report_file == output:
            raise UsageError("the report and the model cannot go to the same file")
    if options.html:
        page_file = files.check_output(options.html, options.input)
        if page_file == output:
            raise UsageError("the page and the model cannot go to the same file")
        if options.report and page_file == report_file:
            raise UsageError("the page and the report cannot go to the same file")
    rules = store.load_rules(rules_folder(options.rules))
    store.select_rules(rules, options.only_rules, options.skip_rules)

    # Behind the checks of what was asked for: it loads for seconds.
    from xflow.cli.interruption import Interruption
    from xflow.cli.progress import ProgressDisplay
    from xflow.pipeline import api

    with (
        ProgressDisplay(options.quiet, options.verbose) as progress,
        Interruption(progress).handled() as interruption,
    ):
        result = api.optimize(
            options.input,
            budget=options.budget,
            threads=options.threads or machine.usable_cores(),
            provider=options.provider,
            input_shapes=shapes,
            rules=rules,
            only_rules=tuple(options.only_rules),
            skip_rules=tuple(options.skip_rules),
            check=options.check,
            rtol=options.rtol,
            atol=options.atol,
            objective=options.objective,
            cost=options.cost,
            seed=options.seed,
            keep_opset=options.keep_opset,
            target_opset=options.target_opset,
            domains=options.domains,
            vnni=options.vnni,
            keep_initializer_inputs=options.keep_initializer_inputs,
            size_threshold=options.size_threshold,
            save_repro=options.save_repro,
            assume=options.assume,
            only_proved=options.only_proved,
            inputs=options.inputs or None,
            progress=interruption.follow,
            stop=interruption,
        )

    start = time.monotonic()
    result.save(options.output)
    phases = {**result.report.phases, "write": time.monotonic() - start}
    shown = getattr(options, "shown", (options.input, options.output))
    report = dataclasses.replace(result.report, input=shown[0], output=shown[1], phases=phases)
    if options.report:
        files.write_text_atomically(report.to_json(), options.report)
    if options.html:
        from xflow.report.page import page

        files.write_text_atomically(page(json.loads(report.to_json())), options.html)
    if not options.quiet:
        from rich.console import Console

        from xflow.report.tables import render

        Console(width=WIDTH).print(render(report))
    if options.fail_if_not_faster and not report.changed:
        raise NotFaster("nothing was gained, the output is the input's graph", options.input)
    return ExitCode.OK
