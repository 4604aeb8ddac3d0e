"""The command line: what it accepts, and how failures become one sentence and an exit code."""

import argparse
import contextlib
import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from xflow.analysis.assumptions import DEFAULT, Assumption
from xflow.cli import report_arguments, rule_arguments
from xflow.cli.arguments import (
    Add,
    add_input_shapes,
    add_inputs,
    add_provider,
    add_seed,
    add_threads,
    add_tolerances,
    byte_size,
    count,
    positive,
    tolerance,
)
from xflow.cli.foreign_flags import translate
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.atomic import unwinding_on_sigterm
from xflow.core.errors import ExitCode, UsageError, XflowError, printable
from xflow.core.limits import GROWTH
from xflow.cost import OBJECTIVES

COMMANDS = (
    *("optimize", "check", "explain", "report", "replay", "certify"),
    *("calibrate", "doctor", "completion", "prove", "rules"),
)
FLAGS = ("-q", "--quiet", "-v", "--verbose")

HELP = """\
usage: xflow [optimize] IN OUT [options]    make the ONNX model IN faster
       xflow check A B [--max-regress 5]    is B the same model, and not slower?
       xflow explain IN                     what would be done to it
       xflow report REPORT.json             a page of what was done
       xflow replay REPORT.json IN OUT      the same again, without search
       xflow certify IN OUT REPORT.json     confirm each step
       xflow calibrate | doctor             measure this machine; what is there?
       xflow completion bash|fish|zsh       let the shell complete all this
       xflow prove --in INPUTS LEFT RIGHT   prove or refute a rule of your own
       xflow rules list | show NAME         look at the rewrite rules
       xflow rules generate | verify | recheck | derive    find and prove them

IN is never written.  OUT appears whole or not at all, computes the same as IN,
and is IN's own graph unless it was measured to be faster.

often used: --budget SECONDS, --threads N     of the run (60); of the runtime
            --input-shapes NAME:1,3,224,224   sizes for dynamic dimensions
            --inputs FILE.npz                 real inputs to check and time on
            --report FILE.json, --html FILE   write what was done
            -q, -v                            say nothing, or say more
all:        xflow optimize --help, xflow prove --help, ...; xflow --version
exit codes: 0 done, 1 error, 2 usage, 3 result not validated, 4 not faster,
            5 rules changed, 6 not the same, 7 slower, 10 refuted,
            11 neither proved nor refuted, 12 not derived, 13 not certified
"""


class _TopParser(Parser):
    """The outermost parser, whose help is a screen of its own."""

    def format_help(self) -> str:
        return HELP


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _TopParser(prog="xflow", allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=Parser
    )
    _add_optimize(commands)
    _add_check(commands)
    _add_calibrate(commands)
    rule_arguments.add_prove(commands)
    rule_arguments.add_rules(commands)

    def command(name: str, summary: str, usage: str | None = None) -> Parser:
        made = add_command(commands, name, summary, usage)
        add_talk(made)
        return made

    report_arguments.add_reports(command)
    report_arguments.add_help(command)
    return parser


class _Version(argparse.Action):
    """Prints the version; looked up only when asked for, since that takes a while."""

    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415

        print(f"xflow {version('xflow-onnx')}")
        raise SystemExit(0)


def _add_optimize(commands: "Commands[Parser]") -> None:
    usage = "xflow [optimize] IN OUT [options]"
    parser = add_command(commands, "optimize", "make an ONNX model faster", usage)
    add = parser.add_argument
    add("input", metavar="IN", help="the model, - for stdin, or a folder of models; never written")
    add("output", metavar="OUT", help="where the faster model goes, - for stdout, or a folder")
    add(
        "--budget",
        type=positive,
        default=60.0,
        metavar="SECONDS",
        help="for all but the final timing (60)",
    )
    _add_comparison(add)
    add_inputs(add, "check and time")
    add(
        "--objective",
        choices=OBJECTIVES,
        default="latency",
        help="what is to become better: latency, peak memory, size of the file, or number of "
        "nodes that run (latency)",
    )
    add("--rules", metavar="DIR", help="folder of rules (those that come with xflow)")
    names = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME"}
    add("--only-rules", help="apply these rules only", **names)  # type: ignore[arg-type]
    add("--skip-rules", help="do not apply these", **names)  # type: ignore[arg-type]
    add("--check", type=count, default=3, metavar="N", help="random inputs to compare on (3)")
    add("--cost", choices=("measured", "estimated"), default="measured", help="(measured)")
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
    add(
        "--domains",
        choices=("onnx", "ort"),
        default="onnx",
        help="bring in standard operators only, or those of ONNX Runtime's own domain, too (onnx)",
    )
    add(
        "--keep-initializer-inputs",
        action="store_true",
        help="weights that are inputs, too, stay inputs (they become constants)",
    )
    add(
        "--size-threshold",
        type=byte_size,
        default=GROWTH,
        metavar="SIZE",
        help=f"by how much folded constants may enlarge the model ({GROWTH // 2**20}MiB)",
    )
    add(
        "--assume",
        choices=[level.option for level in Assumption],
        default=DEFAULT.option,
        help="what may be taken for granted: nothing, that float inputs which enter sums hold "
        f"numbers, or also that moderate numbers do not overflow ({DEFAULT.option})",
    )
    add("--save-repro", metavar="DIR", help="where models go that show a wrong rewrite")
    add("--report", metavar="FILE.json", help="write what was done as JSON")
    add("--jobs", type=count, default=1, metavar="N", help="models of a folder at a time (1)")
    add("--html", metavar="FILE", help="write what was done as a page for a browser")
    add("--fail-if-not-faster", action="store_true", help="exit with 4 if nothing was gained")
    add_talk(parser)
    parser.set_defaults(run="optimize", parser=parser)


CHECK_EXAMPLE = """\
All outputs are compared on random inputs that make sense: indices lie inside what
they index, masks are mostly ones.  And on edge cases: zeros, ties, large and small
numbers, values around each constant of the model, NaN, infinities, other sizes.
With --max-regress, both are timed as well.
Exit code 0: the same, 6: not the same, 7: slower by more than --max-regress.
"""


def _add_check(commands: "Commands[Parser]") -> None:
    usage = "xflow check A B [options]"
    parser = add_command(
        commands, "check", "compare two models that should be the same", usage, CHECK_EXAMPLE
    )
    add = parser.add_argument
    add("before", metavar="A", help="the model that is right")
    add("after", metavar="B", help="the one in question")
    add("--samples", type=count, default=3, metavar="N", help="sets of random inputs (3)")
    _add_comparison(add)
    add_inputs(add, "compare")
    add(
        "--promised",
        action="store_true",
        help="hold B to what `xflow optimize` promises: for inputs that are numbers, and no empty "
        "ones, and where A gives numbers",
    )
    add(
        "--max-regress",
        type=tolerance,
        metavar="PERCENT",
        help="how much slower B may be; nothing is timed without it",
    )
    add_talk(parser)
    parser.set_defaults(run="check")


def _add_comparison(add: Add) -> None:
    """How models are run and compared."""
    add_threads(add)
    add_provider(add)
    add_input_shapes(add, ", also for one input: then the worst result counts")
    add_tolerances(add)
    add_seed(add)


def _add_calibrate(commands: "Commands[Parser]") -> None:
    parser = add_command(commands, "calibrate", "measure this machine for the estimate")
    add = parser.add_argument
    add_threads(add)
    add_provider(add)
    add_talk(parser)
    parser.set_defaults(run="calibrate")


def complete(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` with the command in front: the bare form means `optimize`."""
    rest = list(arguments)
    flags = []
    while rest and rest[0] in FLAGS:
        flags.append(rest.pop(0))
    if rest and rest[0] in COMMANDS:
        # `rules` has commands of its own, behind which the flags belong.
        optimizes = rest[0] == "optimize"
        return [rest[0], *translate(rest[1:]), *flags] if optimizes else rest + flags
    if not rest or rest[0] in ("-h", "--help", "--version"):
        return rest or ["--help"]
    return ["optimize", *flags, *translate(rest)]


def _look_at_the_command(arguments: Sequence[str]) -> None:
    """Raises UsageError for a command that is misspelled, and that would be taken for a model."""
    first = next((word for word in arguments if word not in FLAGS), "")
    close = difflib.get_close_matches(first, COMMANDS, n=1, cutoff=0.75)
    if close and first not in COMMANDS and not os.path.exists(first):
        raise UsageError(
            f"there is neither a command nor a model {first}", do=f"did you mean {close[0]}?"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; every failure is one sentence on stderr."""
    if arguments is None:  # as a program of its own
        arguments = sys.argv[1:]
        # Processes that are started must not take modules from the folder at hand, which may be
        # one of models of other people's.
        os.environ.setdefault("PYTHONSAFEPATH", "1")
    verbose = "-v" in arguments or "--verbose" in arguments
    try:
        with unwinding_on_sigterm():
            _look_at_the_command(arguments)
            options = build_parser().parse_args(complete(arguments))
            module, _, name = options.run.rpartition(":")
            # Only now, so that --help is instant.
            commands = importlib.import_module(f"xflow.cli.{module or 'commands'}")
            run: Callable[[argparse.Namespace], ExitCode] = getattr(commands, name)
            code = _with_pipes(options, run)
            sys.stdout.flush()
            return code
    except XflowError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    except OSError as error:  # a full disk under the temporary files, and the like
        if verbose:
            traceback.print_exc()
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}")
        return ExitCode.ERROR
    except Exception as error:
        if verbose:
            traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _complain(f"internal error: {reason}; rerun with -v for the traceback")
        return ExitCode.ERROR


def _with_pipes(
    options: argparse.Namespace, run: Callable[[argparse.Namespace], ExitCode]
) -> ExitCode:
    """Run a command, a model of which may come through the standard input as `-`.

    `optimize` has its own way, since its result may go through the standard output.
    """
    models = {"check": ("before", "after"), "explain": ("input",)}.get(options.command, ())
    if any(getattr(options, name) == "-" for name in models):
        from xflow.cli import streams  # noqa: PLC0415 - nobody else needs it

        return streams.receive(options, models, run)
    files = ("report", "html", *(("input", "output") if options.command != "optimize" else ()))
    if any(getattr(options, name, None) == "-" for name in files):
        raise UsageError(
            "only models of optimize, check and explain go through pipes, by -", do="name a file"
        )
    return run(options)


def _complain(sentence: str) -> None:
    """Print one sentence to stderr, if anybody is left to read it."""
    with contextlib.suppress(OSError):
        print(f"xflow: {printable(sentence)}", file=sys.stderr)
