"""What each command of the command line does, once its arguments are read."""

import argparse
import dataclasses
import difflib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from xflow.cli.progress import Progress
from xflow.core.errors import ExitCode, NotFaster, UsageError, VerificationError

if TYPE_CHECKING:
    from xflow.rewriting.rule import Rule

WIDTH = 80


def optimize(options: argparse.Namespace) -> ExitCode:
    """Optimize a model, or all of a folder."""
    from xflow.cli import streams  # noqa: PLC0415

    if streams.PIPE in (options.input, options.output):
        return streams.run(options, _optimize_file)
    if Path(options.input).is_dir():
        from xflow.cli import folder_command  # noqa: PLC0415

        settings = folder_command.restated(options.parser, options)
        return folder_command.run(options, settings, Progress(options.quiet, options.verbose))
    return _optimize_file(options)


def _optimize_file(options: argparse.Namespace) -> ExitCode:
    """Optimize one model, write it, and print the table."""
    from xflow.cost import machine  # noqa: PLC0415 - they take a while to load
    from xflow.onnx import files  # noqa: PLC0415 - they take a while to load
    from xflow.rewriting import store  # noqa: PLC0415 - they take a while to load

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
    rules = store.load_rules(_folder(options.rules))
    store.select_rules(rules, options.only_rules, options.skip_rules)

    from xflow.pipeline import api  # noqa: PLC0415 - and the runtime even longer

    with Progress(options.quiet, options.verbose) as progress:
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
            keep_initializer_inputs=options.keep_initializer_inputs,
            size_threshold=options.size_threshold,
            save_repro=options.save_repro,
            assume=options.assume,
            inputs=options.inputs or None,
            progress=progress,
        )

    start = time.monotonic()
    result.save(options.output)
    phases = {**result.report.phases, "write": time.monotonic() - start}
    shown = getattr(options, "shown", (options.input, options.output))
    report = dataclasses.replace(result.report, input=shown[0], output=shown[1], phases=phases)
    if options.report:
        files.write_text_atomically(report.to_json(), options.report)
    if options.html:
        from xflow.report.page import page  # noqa: PLC0415 - nobody else needs it

        files.write_text_atomically(page(json.loads(report.to_json())), options.html)
    if not options.quiet:
        Console(width=WIDTH).print(report.render())
    if options.fail_if_not_faster and not report.changed:
        raise NotFaster("nothing was gained, the output is the input's graph", options.input)
    return ExitCode.OK


def rules_list(options: argparse.Namespace) -> ExitCode:
    """Print the name of each rule and its two sides."""
    from xflow.rewriting import store  # noqa: PLC0415

    rules = store.load_rules(_folder(options.rules))
    if options.op is not None:
        rules = _speaking_of(options.op, rules)
    width = max((len(rule.name) for rule in rules), default=0)
    for rule in rules:
        sides = f"{rule.lhs} => {rule.rhs}"
        condition = f" where {', '.join(rule.where)}" if rule.where else ""
        refusals = rule.numerics.refusals if rule.numerics else ()
        refused = f" refused: {', '.join(map(str, refusals))}" if refusals else ""
        use = "" if rule.is_searched else " (not searched)"
        line = f"{rule.name:{width}}  {sides}{condition}{refused}{use}"
        print(rule.name if options.quiet else line)
    return ExitCode.OK


def rules_show(options: argparse.Namespace) -> ExitCode:
    """Print one rule with its proof record, and both of its sides drawn."""
    from xflow.rewriting import sketch, store  # noqa: PLC0415

    rules = store.load_rules(_folder(options.rules))
    (rule,) = store.select_rules(rules, only=[options.name])
    print(str(rule).rstrip())
    if not options.quiet:
        print()
        print(sketch.draw_sides(rule.lhs, rule.rhs))
    return ExitCode.OK


def _speaking_of(name: str, rules: "Sequence[Rule]") -> "list[Rule]":
    """The rules with an operator on either side. Raises UsageError, with names that are close."""
    from xflow.ops import operators  # noqa: PLC0415

    names = {op.name.lower(): op.name for op in operators()}
    if name.lower() not in names:
        close = difflib.get_close_matches(name.lower(), names, n=3)
        known = " or ".join(names[each] for each in close)
        raise UsageError(
            f"there is no operator {name}", do=f"did you mean {known}?" if known else ""
        )
    call = re.compile(rf"\b{names[name.lower()]}\(")
    return [rule for rule in rules if call.search(rule.lhs) or call.search(rule.rhs)]


def rules_generate(options: argparse.Namespace) -> ExitCode:
    """Build the database of rules from nothing."""
    from xflow.cli import generate_command  # noqa: PLC0415

    return generate_command.run(options)


def rules_verify(options: argparse.Namespace) -> ExitCode:
    """Prove each rule of a folder again; fail on the first that does not hold."""
    from xflow.cost import machine  # noqa: PLC0415
    from xflow.rewriting import store  # noqa: PLC0415
    from xflow.verifier import database  # noqa: PLC0415

    folder = _folder(options.directory)
    rules = store.load_rules(folder)

    def count(done: int, total: int) -> None:
        progress("prove", {"rule": done, "of": total})

    jobs = options.jobs or machine.usable_cores()
    with Progress(options.quiet, options.verbose) as progress:
        failures = database.verify_directory(folder, count, jobs)
    if failures:
        first = failures[0]
        raise VerificationError(f"does not hold: {first.verdict_text}", f"rule {first.rule_name}")
    if not options.quiet:
        print(f"{len(rules)} rule{'' if len(rules) == 1 else 's'} proved again")
    return ExitCode.OK


def rules_recheck(options: argparse.Namespace) -> ExitCode:
    """Check the certificate of each rule of a folder; fail unless all are confirmed."""
    from xflow.cost import machine  # noqa: PLC0415
    from xflow.verifier.recheck import database  # noqa: PLC0415
    from xflow.verifier.recheck.verdicts import Confirmed  # noqa: PLC0415

    def count(done: int, total: int) -> None:
        progress("recheck", {"rule": done, "of": total})

    jobs, limit = options.jobs or machine.usable_cores(), options.limit or database.LIMIT
    folder = _folder(options.directory)
    with Progress(options.quiet, options.verbose) as progress:
        results = database.recheck_directory(folder, options.rule, count, jobs, limit)
    verdicts = [result.verdict for result in results]
    confirmed = [verdict for verdict in verdicts if isinstance(verdict, Confirmed)]
    total = f"{len(results)} rule{'' if len(results) == 1 else 's'}"
    if not options.quiet:
        for result in results:
            if not isinstance(result.verdict, Confirmed):
                print(f"{result.rule_name}: {result.verdict}")
        questions = sum(verdict.questions for verdict in confirmed)
        points = sum(verdict.points for verdict in confirmed)
        print(
            f"{len(confirmed)} of {total} confirmed: {questions:,} questions to the second "
            f"solver, {points:,} elements compared"
        )
    if len(confirmed) < len(results):
        raise VerificationError(f"{len(results) - len(confirmed)} of {total} not confirmed")
    return ExitCode.OK


def calibrate(options: argparse.Namespace) -> ExitCode:
    """Measure this machine, so that the estimate is about it."""
    from xflow.cli import calibrate_command  # noqa: PLC0415

    return calibrate_command.run(options, Progress(options.quiet, options.verbose))


def check(options: argparse.Namespace) -> ExitCode:
    """Compare two models."""
    from xflow.cli import check_command  # noqa: PLC0415

    progress = Progress(options.quiet, options.verbose)
    return check_command.run(options, input_settings(options.input_shapes), progress)


def prove(options: argparse.Namespace) -> ExitCode:
    """Prove or refute a rule that somebody thought of."""
    from xflow.cli import prove_command  # noqa: PLC0415

    return prove_command.run(options)


def rules_derive(options: argparse.Namespace) -> ExitCode:
    """Show how an equation follows from the rules of a folder."""
    from xflow.cli import derive_command  # noqa: PLC0415

    return derive_command.run(options, _folder(options.rules))


def input_settings(
    given: Sequence[tuple[str, tuple[int, ...]]],
) -> list[dict[str, tuple[int, ...]]]:
    """The settings of the input shapes: the k-th shape of each input belongs to the k-th setting.

    An input that is given one shape has it in all settings.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in given:
        shapes.setdefault(name, []).append(shape)
    number = max(map(len, shapes.values()), default=1)
    for name, several in shapes.items():
        if len(several) not in (1, number):
            most = next(other for other, item in shapes.items() if len(item) == number)
            raise UsageError(
                f"--input-shapes gives {name!r} {len(several)} shapes and {most!r} {number}",
                do="give each input one shape, or one for every setting",
            )
    return [
        {name: several[k if len(several) > 1 else 0] for name, several in shapes.items()}
        for k in range(number)
    ]


def _folder(text: str | None) -> Path:
    """Return the folder of rules that was asked for, or the one that comes with the program."""
    from xflow.rewriting import store  # noqa: PLC0415

    return store.default_directory() if text is None else Path(text)
