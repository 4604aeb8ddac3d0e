"""The argument parser of all commands: errors in one sentence, help in one format."""

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import NoReturn

from xflow.core.errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake as a UsageError: one sentence, no page of usage."""

    # Of argparse's two forms, the one that is used.
    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Like argparse's, but with different errors for unknown flags and surplus arguments."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            parser = self.called(options)
            flag = next((word.partition("=")[0] for word in rest if word.startswith("-")), None)
            if flag is not None:
                raise UsageError(f"there is no flag {flag}", do=parser.advice(flag))
            raise UsageError(
                f"{rest[0]!r} is one argument too many", do=f"see {parser.prog} --help"
            )
        return options

    @property
    def commands(self) -> Sequence[str]:
        """The names of the commands in it."""
        inner = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return [name for action in inner for name in action.choices]

    def called(self, options: argparse.Namespace) -> "Parser":
        """The parser of the command that was called, or of the command inside it."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                inner: Parser = action.choices[getattr(options, action.dest)]
                return inner.called(options)
        return self

    def advice(self, flag: str) -> str:
        """Advice on an unknown flag: flags with a similar spelling, or the help."""
        known = [word for action in self._actions for word in action.option_strings]
        close = difflib.get_close_matches(flag, known, n=2)
        return f"did you mean {' or '.join(close)}?" if close else f"see {self.prog} --help"

    def error(self, message: str) -> NoReturn:
        choice = re.fullmatch(r"(.*): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            known = [word.strip(" '") for word in choice[3].split(",")]
            close = difflib.get_close_matches(choice[2], known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"
            raise UsageError(f"{choice[1]}: there is no {choice[2]!r}", do=meant)
        raise UsageError(message, do=f"see {self.prog} --help")


Commands = argparse._SubParsersAction  # argparse gives it no public name


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.HelpFormatter(prog, max_help_position=30, width=80)


def _raw_formatter(prog: str) -> argparse.HelpFormatter:
    """Like `_formatter`, but the text behind the options keeps its lines."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=80)


def add_command(
    commands: "Commands[Parser]",
    name: str,
    summary: str,
    usage: str | None = None,
    epilog: str | None = None,
) -> Parser:
    """Add a command to others; `usage` replaces argparse's own, and `epilog` is a text
    behind the options, whose lines stay as they are.
    """
    return commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        usage=usage,
        epilog=epilog,
        formatter_class=_raw_formatter if epilog else _formatter,
        allow_abbrev=False,
    )


def add_subcommands(parser: argparse.ArgumentParser, dest: str = "action") -> "Commands[Parser]":
    """Add subcommands to a parser, of which one has to be given."""
    name = dest.upper()
    return parser.add_subparsers(dest=dest, required=True, metavar=name, parser_class=Parser)


def add_talk(parser: argparse.ArgumentParser) -> None:
    """Add `-q`, `-v` and `--log-level`."""
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
    """The option `--log-level`, which sets by a word what -q and -v set."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.quiet = values == "error"
        namespace.verbose = values == "debug"
