"""Parsers of arguments as all commands have them."""

import argparse
from typing import NoReturn

from xflow.errors import UsageError


class Parser(argparse.ArgumentParser):
    """A parser that reports a mistake as a UsageError: one sentence, no page of usage."""

    def error(self, message: str) -> NoReturn:
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
    """Add a command to others; `usage` replaces what argparse would make up, and `epilog` is a text
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
