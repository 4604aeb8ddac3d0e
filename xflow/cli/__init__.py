"""The command line."""

from xflow.cli.entry import main as main
