"""The command line: what it accepts, and how failures become one sentence and an exit code."""

import argparse
import contextlib
import importlib
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from xflow import report_arguments
from xflow.atomic import unwinding_on_sigterm
from xflow.cost import OBJECTIVES
from xflow.errors import ExitCode, UsageError, XflowError
from xflow.incumbents import translate

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
       xflow prove --in INPUTS LEFT RIGHT   prove or refute a rule of your own
       xflow rules list | show NAME         look at the rewrite rules
       xflow rules generate | verify        find them anew; prove them again
       xflow rules recheck | derive         check proofs; derive an equation

IN is never written.  OUT appears whole or not at all, computes the same as IN,
and is IN's own graph unless it was measured to be faster.

often used: --budget SECONDS           time for the search (60)
            --threads N                threads of the runtime (physical cores)
            --input-shapes NAME:1,3,224,224   sizes for dynamic dimensions
            --report FILE.json, --html FILE   write what was done
            -q, -v                     say nothing, or say more
all:        xflow optimize --help, xflow prove --help, ...; xflow --version
exit codes: 0 done, 1 error, 2 usage, 3 result not validated, 4 not faster,
            5 rules changed, 6 not the same, 7 slower, 10 refuted,
            11 neither proved nor refuted, 12 not derived, 13 not certified
"""


class _Parser(argparse.ArgumentParser):
    """A parser that reports a mistake as a UsageError: one sentence, no page of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, do=f"see {self.prog} --help")


class _TopParser(_Parser):
    """The outermost parser, whose help is a screen of its own."""

    def format_help(self) -> str:
        return HELP


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=30, width=80)


def _raw_formatter(prog: str) -> argparse.HelpFormatter:
    """Like `_formatter`, but the text behind the options keeps its lines."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=80)


_Number = TypeVar("_Number", int, float)


def _number(
    kind: type[_Number], what: str, accept: Callable[[_Number], bool]
) -> Callable[[str], _Number]:
    """Return a reader of arguments that are a finite `kind` and that `accept` takes."""

    def read(text: str) -> _Number:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if math.isfinite(value) and accept(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return read


_positive = _number(float, "a positive number", lambda value: value > 0)
_tolerance = _number(float, "a number that is not negative", lambda value: value >= 0)
_count = _number(int, "a positive whole number", lambda value: value > 0)
_seed = _number(int, "a whole number that is not negative", lambda value: value >= 0)


_UNITS = {
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("", "K", "M", "G", "T"))},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}


def _size(text: str) -> int:
    """Return the bytes of `12GB`, `1.5GiB` or `800MB`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?i?B)", text.strip(), re.IGNORECASE)
    units = {name.lower(): size for name, size in _UNITS.items()}
    if match is None or match[2].lower() not in units or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 12GB")
    return int(float(match[1]) * units[match[2].lower()])


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return (name, sizes) of `NAME:1,3,224,224`; the name itself may hold colons."""
    name, colon, sizes = text.rpartition(":")
    try:
        shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError:
        shape = (0,)
    if not colon or not name or any(size < 1 for size in shape):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME:1,3,224,224")
    return name, shape


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = _TopParser(prog="xflow", allow_abbrev=False)
    parser.add_argument("--version", action=_Version, nargs=0)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    _add_optimize(commands)
    _add_check(commands)
    _add_calibrate(commands)
    _add_prove(commands)
    _add_rules(commands)

    def command(name: str, summary: str, usage: str | None = None) -> _Parser:
        made = _add_command(commands, name, summary, usage)
        _add_talk(made)
        return made

    report_arguments.add_reports(command, _count, _seed, _tolerance)
    report_arguments.add_help(command, _count, _seed, _positive, _shape)
    return parser


class _Version(argparse.Action):
    """Prints the version; looked up only when asked for, since that takes a while."""

    def __call__(self, *_: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415

        print(f"xflow {version('xflow-onnx')}")
        raise SystemExit(0)


_Commands = argparse._SubParsersAction  # argparse gives it no public name


def _add_command(
    commands: "_Commands[_Parser]", name: str, summary: str, usage: str | None = None
) -> _Parser:
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        usage=usage,
        formatter_class=_formatter,
        allow_abbrev=False,
    )


def _add_talk(parser: argparse.ArgumentParser) -> None:
    talk = parser.add_mutually_exclusive_group()
    talk.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    talk.add_argument("-v", "--verbose", action="store_true", help="print every step")
    talk.add_argument(
        "--log-level",
        action=_Level,
        choices=("error", "info", "debug"),
        metavar="LEVEL",
        help="error (as -q), info or debug (as -v)",
    )


class _Level(argparse.Action):
    """Says by one word what -q and -v say."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.quiet = values == "error"
        namespace.verbose = values == "debug"


def _add_optimize(commands: "_Commands[_Parser]") -> None:
    usage = "xflow [optimize] IN OUT [options]"
    parser = _add_command(commands, "optimize", "make an ONNX model faster", usage)
    add = parser.add_argument
    add("input", metavar="IN", help="the model, - for stdin, or a folder of models; never written")
    add("output", metavar="OUT", help="where the faster model goes, - for stdout, or a folder")
    add("--budget", type=_positive, default=60.0, metavar="SECONDS", help="for the search (60)")
    _add_comparison(add)
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
    add("--check", type=_count, default=3, metavar="N", help="random inputs to compare on (3)")
    add("--cost", choices=("measured", "estimated"), default="measured", help="(measured)")
    opset = parser.add_mutually_exclusive_group()
    opset.add_argument(
        "--keep-opset", action="store_true", help="use no operators of a newer opset"
    )
    opset.add_argument(
        "--target-opset",
        type=_count,
        metavar="N",
        help="raise to this one where newer operators gain (the oldest that has them)",
    )
    add(
        "--keep-initializer-inputs",
        action="store_true",
        help="weights that are inputs, too, stay inputs (they become constants)",
    )
    add(
        "--size-threshold",
        type=_size,
        default=64 * 2**20,
        metavar="SIZE",
        help="by how much folded constants may enlarge the model (64MiB)",
    )
    add("--save-repro", metavar="DIR", help="where models go that show a wrong rewrite")
    add("--report", metavar="FILE.json", help="write what was done as JSON")
    add("--jobs", type=_count, default=1, metavar="N", help="models of a folder at a time (1)")
    add("--html", metavar="FILE", help="write what was done as a page for a browser")
    add("--fail-if-not-faster", action="store_true", help="exit with 4 if nothing was gained")
    _add_talk(parser)
    parser.set_defaults(run="optimize", parser=parser)


CHECK_EXAMPLE = """\
All outputs are compared on random inputs that make sense: indices lie inside what
they index, masks are mostly ones.  With --max-regress, both are timed as well.
Exit code 0: the same, 6: not the same, 7: slower by more than --max-regress.
"""


def _add_check(commands: "_Commands[_Parser]") -> None:
    usage = "xflow check A B [options]"
    parser = _add_command(commands, "check", "compare two models that should be the same", usage)
    parser.formatter_class = _raw_formatter
    parser.epilog = CHECK_EXAMPLE
    add = parser.add_argument
    add("before", metavar="A", help="the model that is right")
    add("after", metavar="B", help="the one in question")
    add("--samples", type=_count, default=3, metavar="N", help="sets of random inputs (3)")
    _add_comparison(add)
    add(
        "--max-regress",
        type=_tolerance,
        metavar="PERCENT",
        help="how much slower B may be; nothing is timed without it",
    )
    _add_talk(parser)
    parser.set_defaults(run="check")


def _add_comparison(add: Callable[..., object]) -> None:
    """How models are run and compared."""
    add("--threads", type=_count, metavar="N", help="of the runtime (physical cores)")
    add("--provider", choices=("cpu", "cuda"), default="cpu", help="what runs the model (cpu)")
    add(
        "--input-shapes",
        type=_shape,
        action="append",
        default=[],
        metavar="NAME:1,3,224,224",
        help="sizes of an input; repeatable, also for one input: then the worst result counts",
    )
    add("--rtol", type=_tolerance, default=1e-3, metavar="X", help="relative tolerance (1e-3)")
    add("--atol", type=_tolerance, default=1e-5, metavar="X", help="absolute tolerance (1e-5)")
    add("--seed", type=_seed, default=0, metavar="N", help="of everything random (0)")


def _add_equation(parser: _Parser) -> None:
    """What an equation is made of, on the command line or in files."""
    add = parser.add_argument
    add("texts", nargs="*", metavar="LEFT RIGHT | FILE", help="two sides, or files of rules")
    add("--in", dest="inputs", metavar="INPUTS", help="as in 'x[N, C, *S] y[...] c[n]:bool'")
    several = {"action": "append", "default": []}
    add("--param", metavar="NAMES", help="symbols in attributes: 's *p eps:real'", **several)  # type: ignore[arg-type]
    add("--where", metavar="CONDITION", help="what is given; repeatable", **several)  # type: ignore[arg-type]
    add("--rank", metavar="N", help="lengths of the starred vectors: '1 2 3'", **several)  # type: ignore[arg-type]
    add("--types", metavar="TYPES", help="reals; reals, integers; or any (reals)")


PROVE_EXAMPLE = """\
A rule holds if both sides are equal over the reals at every size, and the right
side is defined wherever the left is.  Conditions that this needs are looked for,
and printed.  Exit code 0: proved, 10: refuted, 11: neither.

  xflow prove --in 'a[n,m] b[m,k] c[k,l]' 'MatMul(MatMul(a, b), c)' 'MatMul(a, MatMul(b, c))'
  xflow prove --in 'x[n]' --param 'p q' --where 'p >= 0' \\
              'Pad(Pad(x, pads=[p, p]), pads=[q, q])' 'Pad(x, pads=[p + q, p + q])'
  xflow prove my.rules
"""


def _add_calibrate(commands: "_Commands[_Parser]") -> None:
    parser = _add_command(commands, "calibrate", "measure this machine for the estimate")
    add = parser.add_argument
    add("--threads", type=_count, metavar="N", help="of the runtime (physical cores)")
    add("--provider", choices=("cpu", "cuda"), default="cpu", help="what runs models (cpu)")
    _add_talk(parser)
    parser.set_defaults(run="calibrate")


def _add_prove(commands: "_Commands[_Parser]") -> None:
    usage = "xflow prove --in INPUTS LEFT RIGHT [options]\n       xflow prove FILE.rules ..."
    parser = _add_command(commands, "prove", "prove or refute a rule of your own", usage)
    parser.formatter_class = _raw_formatter
    parser.epilog = PROVE_EXAMPLE
    add = parser.add_argument
    _add_equation(parser)
    add("--no-infer", action="store_true", help="prove it as it stands, find no conditions")
    add("--save-counterexample", metavar="DIR", help="write it as ONNX models and a program")
    add("--certificate", metavar="FILE.json", help="write what the proof rests on")
    _add_talk(parser)
    parser.set_defaults(run="prove")


def _add_rules(commands: "_Commands[_Parser]") -> None:
    rules = _add_command(commands, "rules", "work with the rewrite rules")
    actions = rules.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=_Parser
    )
    listing = _add_command(actions, "list", "list the rules")
    listing.add_argument("--op", metavar="OPERATOR", help="those that speak of it, such as Conv")
    show = _add_command(actions, "show", "show one rule and its proof record")
    show.add_argument("name", metavar="NAME")
    generate = _add_command(actions, "generate", "find and prove the rules anew")
    add = generate.add_argument
    add("--out", metavar="DIR", help="where they go (the folder of xflow's own rules)")
    add("--seed", type=_seed, default=0, metavar="N", help="of everything random (0)")
    add("--families", nargs="+", metavar="NAME", help="families of operators (all)")
    add("--max-ops", type=_count, default=3, metavar="N", help="operators in one side (3)")
    add("--jobs", type=_count, metavar="N", help="processes (physical cores)")
    add("--max-memory", type=_size, metavar="SIZE", help="all together, as 12GB (3/4 of what is)")
    add("--engine", choices=("local", "ray"), default="local", help="what runs it (local)")
    add("--address", metavar="ADDR", help="of a Ray cluster (one is started here)")
    add("--report", metavar="FILE.json", help="write what was done as JSON")
    add("--diff", action="store_true", help="say which rules changed; exit with 5 if any")
    add("--against", metavar="DIR", help="what --diff compares with (xflow's own rules)")
    verify = _add_command(actions, "verify", "prove every rule of a folder again")
    verify.add_argument("directory", nargs="?", metavar="DIR", help="(xflow's own rules)")
    recheck = _add_command(actions, "recheck", "check certificates with a second solver")
    recheck.add_argument("directory", nargs="?", metavar="DIR", help="(xflow's own rules)")
    _add_derive(actions)
    named = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME"}
    recheck.add_argument("--rule", help="these rules only", **named)  # type: ignore[arg-type]
    recheck.add_argument("--jobs", type=_count, metavar="N", help="processes (physical cores)")
    for parser in (listing, show):
        parser.add_argument("--rules", metavar="DIR", help="folder of rules (xflow's own)")
    for parser, name in ((listing, "list"), (show, "show"), (generate, "generate")):
        parser.set_defaults(run=f"rules_{name}")
    verify.set_defaults(run="rules_verify")
    recheck.set_defaults(run="rules_recheck")
    for parser in (listing, show, generate, verify, recheck):
        _add_talk(parser)


DERIVE_EXAMPLE = """\
Both sides are rewritten by all rules at once, step after step, until they meet; a
derivation counts if it is found again at other sizes.  Where the equation needs
conditions, they are looked for.  Exit code 0: derived, 12: not.

  xflow rules derive --in 'a[n,m] b[m,k] c[m,k]' \\
                     'MatMul(a, Add(b, c))' 'Add(MatMul(a, c), MatMul(a, b))'
  xflow rules derive my.rules --steps 4
"""


def _add_derive(actions: "_Commands[_Parser]") -> None:
    usage = (
        "xflow rules derive --in INPUTS LEFT RIGHT [options]\n"
        "       xflow rules derive FILE.rules ..."
    )
    parser = _add_command(actions, "derive", "show how an equation follows from the rules", usage)
    parser.formatter_class = _raw_formatter
    parser.epilog = DERIVE_EXAMPLE
    _add_equation(parser)
    add = parser.add_argument
    add("--no-infer", action="store_true", help="take it as it stands, find no conditions")
    add("--rules", metavar="DIR", help="folder of rules (xflow's own)")
    add("--steps", type=_count, default=3, metavar="N", help="of saturation (3)")
    add("--seed", type=_seed, default=0, metavar="N", help="of the sizes that are tried (0)")
    _add_talk(parser)
    parser.set_defaults(run="rules_derive")


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; every failure is one sentence on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verbose = "-v" in arguments or "--verbose" in arguments
    try:
        with unwinding_on_sigterm():
            options = build_parser().parse_args(complete(arguments))
            module, _, name = options.run.rpartition(":")
            # Only now, so that --help is instant.
            commands = importlib.import_module(f"xflow.{module or 'commands'}")
            run: Callable[[argparse.Namespace], ExitCode] = getattr(commands, name)
            code = run(options)
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


def _complain(sentence: str) -> None:
    """Print one sentence to stderr, if anybody is left to read it."""
    with contextlib.suppress(OSError):
        print(f"xflow: {sentence}", file=sys.stderr)
