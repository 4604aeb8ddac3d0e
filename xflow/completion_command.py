"""`xflow completion`: the script with which a shell completes the command line."""

import argparse

from xflow.cli import build_parser
from xflow.errors import ExitCode


def run(options: argparse.Namespace) -> ExitCode:
    """Print the script."""
    import shtab  # noqa: PLC0415 - nobody else needs it

    print(shtab.complete(build_parser(), shell=options.shell))
    return ExitCode.OK
