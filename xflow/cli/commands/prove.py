"""`xflow prove`: proves or refutes equations that a person states."""

from __future__ import annotations

import argparse

from xflow.cli.arguments import add_equation
from xflow.cli.parser import Commands, Parser, add_command, add_talk
from xflow.core.errors import ExitCode

PROVE_EXAMPLE = """\
A rule holds if both sides are equal over the reals at every size, and the right
side is defined wherever the left is.  Conditions that this needs are looked for,
and printed.  Exit code 0: proved, 10: refuted, 11: neither.

  xflow prove --in 'a[n,m] b[m,k] c[k,l]' 'MatMul(MatMul(a, b), c)' 'MatMul(a, MatMul(b, c))'
  xflow prove --in 'x[n]' --param 'p q' --where 'p >= 0' \\
              'Pad(Pad(x, pads=[p, p]), pads=[q, q])' 'Pad(x, pads=[p + q, p + q])'
  xflow prove my.rules
"""


def add(commands: Commands[Parser]) -> None:
    """Add `prove`."""
    usage = "xflow prove --in INPUTS LEFT RIGHT [options]\n       xflow prove FILE.rules ..."
    parser = add_command(
        commands, "prove", "prove or refute a rule of your own", usage, PROVE_EXAMPLE
    )
    add_argument = parser.add_argument
    add_equation(add_argument)
    add_argument(
        "--no-infer", action="store_true", help="prove it as it stands, find no conditions"
    )
    add_argument(
        "--save-counterexample", metavar="DIR", help="write it as ONNX models and a program"
    )
    add_argument("--certificate", metavar="FILE.json", help="write what the proof rests on")
    add_talk(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> ExitCode:
    """Prove the given equations, print the verdicts, and return the worst one."""
    from xflow.cli import proving

    return proving.run(options)
