"""`xflow completion`: prints the script with which a shell completes the command line."""

from __future__ import annotations

import argparse

from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode

FILES = ("IN", "OUT", "A", "B", "LEFT RIGHT | FILE")
"""Arguments that are files, beside those whose name says so."""

BARE = """
# `xflow IN OUT` is `xflow optimize IN OUT`: what is no command gets the completions of that one.
_xflow() {{
  local found=()
  if (( COMP_CWORD == 1 )); then
    _shtab_xflow
    [[ -z "${{COMP_WORDS[1]}}" ]] && return  # commands alone: files are offered as one is begun
    found=("${{COMPREPLY[@]}}")
  elif [[ " {commands} " == *" ${{COMP_WORDS[1]}} "* ]]; then
    _shtab_xflow
    return
  fi
  COMP_WORDS=("${{COMP_WORDS[0]}}" optimize "${{COMP_WORDS[@]:1}}")
  (( COMP_CWORD += 1 ))
  _shtab_xflow
  COMPREPLY+=("${{found[@]}}")
}}

complete -o bashdefault -F _xflow xflow"""
"""Additional code of the script for bash."""


def add(commands: Commands[Parser]) -> None:
    """Add `completion`."""
    summary = "print the script with which a shell completes commands"
    parser = add_command(commands, "completion", summary)
    parser.add_argument("shell", choices=("bash", "fish", "zsh"), metavar="bash|fish|zsh")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Print the script."""
    import shtab

    parser: Parser = options.top
    _name_files(parser, shtab.FILE, shtab.DIRECTORY)
    script = shtab.complete(parser, shell=options.shell)
    print(
        script + BARE.format(commands=" ".join(parser.commands))
        if options.shell == "bash"
        else script
    )
    return ExitCode.OK


def _name_files(parser: argparse.ArgumentParser, file: object, directory: object) -> None:
    """Tell shtab which arguments are files or folders: to others it offers no file at all.

    `file` and `directory` are its own constants for these.
    """
    for action in parser._actions:  # argparse has no public name for them, and shtab reads these
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _name_files(inner, file, directory)
            continue
        name = str(action.metavar)
        if name in FILES or name.startswith("FILE") or name.endswith(".json"):
            action.complete = file  # type: ignore[attr-defined]
        elif name == "DIR":
            action.complete = directory  # type: ignore[attr-defined]
