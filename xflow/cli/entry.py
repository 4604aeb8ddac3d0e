"""The entry of the program: parses arguments, runs a command, reports failures in one sentence."""

import argparse
import contextlib
import difflib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from xflow.cli.commands import (
    calibrate,
    certify,
    check,
    completion,
    doctor,
    explain,
    optimize,
    prove,
    replay,
    report,
    rules,
)
from xflow.cli.foreign_flags import translate
from xflow.cli.parser import Parser, add_subcommands
from xflow.core.atomic import unwinding_on_termination
from xflow.core.errors import ExitCode, UsageError, XflowError, printable

COMMANDS = (
    *(optimize, check, explain, report, replay, certify),
    *(calibrate, doctor, completion, prove, rules),
)
NAMES = tuple(command.__name__.rpartition(".")[2] for command in COMMANDS)
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


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = _TopParser(prog="xflow", allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0)
    commands = add_subcommands(parser, "command")
    for command in COMMANDS:
        command.add(commands)
    return parser


class _Version(argparse.Action):
    """Prints the version; looked up only when asked for, since that takes a while."""

    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415

        print(f"xflow {version('xflow-onnx')}")
        raise SystemExit(0)


def complete(arguments: Sequence[str]) -> list[str]:
    """Return `arguments` with the command in front: the bare form means `optimize`."""
    rest = list(arguments)
    flags = []
    while rest and rest[0] in FLAGS:
        flags.append(rest.pop(0))
    if rest and rest[0] in NAMES:
        # `rules` has commands of its own, behind which the flags belong.
        optimizes = rest[0] == "optimize"
        return [rest[0], *translate(rest[1:]), *flags] if optimizes else rest + flags
    if not rest or rest[0] in ("-h", "--help", "--version"):
        return rest or ["--help"]
    return ["optimize", *flags, *translate(rest)]


def _look_at_the_command(arguments: Sequence[str]) -> None:
    """Raises UsageError for a command that is misspelled, and that would be taken for a model."""
    first = next((word for word in arguments if word not in FLAGS), "")
    close = difflib.get_close_matches(first, NAMES, n=1, cutoff=0.75)
    if close and first not in NAMES and not os.path.exists(first):
        raise UsageError(
            f"there is neither a command nor a model {first}", do=f"did you mean {close[0]}?"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; every failure is one sentence on stderr."""
    if arguments is None:  # as a program of its own
        arguments = sys.argv[1:]
        # Child processes must not import modules from the working directory, which may hold
        # files of other people.
        os.environ.setdefault("PYTHONSAFEPATH", "1")
    _open_streams()
    verbose = "-v" in arguments or "--verbose" in arguments
    try:
        with unwinding_on_termination():
            _look_at_the_command(arguments)
            parser = build_parser()
            options = parser.parse_args(complete(arguments))
            options.top = parser  # whose commands a shell completes
            code = _with_pipes(options, options.run)
            sys.stdout.flush()
            return code
    except XflowError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed the pipe, as `head` does
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ERROR
    except OSError as error:  # a full disk under the temporary files, and the like
        if verbose:
            _show_traceback()
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}")
        return ExitCode.ERROR
    except Exception as error:
        if verbose:
            _show_traceback()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        _complain(f"internal error: {reason}; rerun with -v for the traceback")
        return ExitCode.ERROR


def _open_streams() -> None:
    """Let standard streams that the caller has closed lead nowhere.

    Python has None in their place. Their descriptors are used up, too: the next file to be opened
    would get one of them, and what a library writes to it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(nowhere, nowhere == number)
            setattr(sys, name, open(nowhere, "w" if number else "r"))  # noqa: SIM115


def _with_pipes(
    options: argparse.Namespace, run: Callable[[argparse.Namespace], ExitCode]
) -> ExitCode:
    """Run a command, a model of which may come through the standard input as `-`.

    `optimize` has its own way, since its result may go through the standard output.
    """
    models = {"check": ("before", "after"), "explain": ("input",)}.get(options.command, ())
    if any(getattr(options, name) == "-" for name in models):
        from xflow.cli import streams  # noqa: PLC0415 - only needed here

        return streams.receive(options, models, run)
    files = ("report", "html", *(("input", "output") if options.command != "optimize" else ()))
    if any(getattr(options, name, None) == "-" for name in files):
        raise UsageError(
            "only models of optimize, check and explain go through pipes, by -", do="name a file"
        )
    return run(options)


def _show_traceback() -> None:
    with contextlib.suppress(OSError):
        traceback.print_exc()


def _complain(sentence: str) -> None:
    """Print one sentence to stderr, unless it is closed."""
    with contextlib.suppress(OSError):
        print(f"xflow: {printable(sentence)}", file=sys.stderr)
