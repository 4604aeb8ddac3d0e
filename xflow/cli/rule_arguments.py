"""The arguments of `prove` and of the commands around rules."""

from xflow.cli.arguments import add_seed, byte_size, count, positive
from xflow.cli.parser import Commands, Parser, add_command, add_talk


def _add_equation(parser: Parser) -> None:
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


def add_prove(commands: "Commands[Parser]") -> None:
    """Add `prove`."""
    usage = "xflow prove --in INPUTS LEFT RIGHT [options]\n       xflow prove FILE.rules ..."
    parser = add_command(
        commands, "prove", "prove or refute a rule of your own", usage, PROVE_EXAMPLE
    )
    add = parser.add_argument
    _add_equation(parser)
    add("--no-infer", action="store_true", help="prove it as it stands, find no conditions")
    add("--save-counterexample", metavar="DIR", help="write it as ONNX models and a program")
    add("--certificate", metavar="FILE.json", help="write what the proof rests on")
    add_talk(parser)
    parser.set_defaults(run="prove")


def add_rules(commands: "Commands[Parser]") -> None:
    """Add `rules` and what can be done with them."""
    rules = add_command(commands, "rules", "work with the rewrite rules")
    actions = rules.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=Parser
    )
    listing = add_command(actions, "list", "list the rules")
    listing.add_argument("--op", metavar="OPERATOR", help="those that speak of it, such as Conv")
    show = add_command(actions, "show", "show one rule and its proof record")
    show.add_argument("name", metavar="NAME")
    generate = add_command(actions, "generate", "find and prove the rules anew")
    add = generate.add_argument
    add("--out", metavar="DIR", help="where they go (the folder of xflow's own rules)")
    add_seed(add)
    add("--families", nargs="+", metavar="NAME", help="families of operators (all)")
    add("--max-ops", type=count, default=3, metavar="N", help="operators in one side (3)")
    add("--jobs", type=count, metavar="N", help="processes (physical cores)")
    add(
        "--max-memory",
        type=byte_size,
        metavar="SIZE",
        help="all together, as 12GB (3/4 of what is)",
    )
    add("--engine", choices=("local", "ray"), default="local", help="what runs it (local)")
    add("--address", metavar="ADDR", help="of a Ray cluster (one is started here)")
    add("--report", metavar="FILE.json", help="write what was done as JSON")
    add("--diff", action="store_true", help="say which rules changed; exit with 5 if any")
    add("--against", metavar="DIR", help="what --diff compares with (xflow's own rules)")
    verify = add_command(actions, "verify", "prove every rule of a folder again")
    verify.add_argument("directory", nargs="?", metavar="DIR", help="(xflow's own rules)")
    verify.add_argument("--jobs", type=count, metavar="N", help="processes (physical cores)")
    recheck = add_command(actions, "recheck", "check certificates with a second solver")
    recheck.add_argument("directory", nargs="?", metavar="DIR", help="(xflow's own rules)")
    _add_derive(actions)
    named = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME"}
    recheck.add_argument("--rule", help="these rules only", **named)  # type: ignore[arg-type]
    recheck.add_argument("--jobs", type=count, metavar="N", help="processes (physical cores)")
    recheck.add_argument("--limit", type=positive, metavar="SECONDS", help="for one rule (120)")
    for parser in (listing, show):
        parser.add_argument("--rules", metavar="DIR", help="folder of rules (xflow's own)")
    for parser, name in ((listing, "list"), (show, "show"), (generate, "generate")):
        parser.set_defaults(run=f"rules_{name}")
    verify.set_defaults(run="rules_verify")
    recheck.set_defaults(run="rules_recheck")
    for parser in (listing, show, generate, verify, recheck):
        add_talk(parser)


DERIVE_EXAMPLE = """\
Both sides are rewritten by all rules at once, step after step, until they meet; a
derivation counts if it is found again at other sizes.  Where the equation needs
conditions, they are looked for.  Exit code 0: derived, 12: not.

  xflow rules derive --in 'a[n,m] b[m,k] c[m,k]' \\
                     'MatMul(a, Add(b, c))' 'Add(MatMul(a, c), MatMul(a, b))'
  xflow rules derive my.rules --steps 4
"""


def _add_derive(actions: "Commands[Parser]") -> None:
    usage = (
        "xflow rules derive --in INPUTS LEFT RIGHT [options]\n"
        "       xflow rules derive FILE.rules ..."
    )
    parser = add_command(
        actions, "derive", "show how an equation follows from the rules", usage, DERIVE_EXAMPLE
    )
    _add_equation(parser)
    add = parser.add_argument
    add("--no-infer", action="store_true", help="take it as it stands, find no conditions")
    add("--rules", metavar="DIR", help="folder of rules (xflow's own)")
    add("--steps", type=count, default=3, metavar="N", help="of saturation (3)")
    add_seed(add, "of the sizes that are tried")
    add_talk(parser)
    parser.set_defaults(run="rules_derive")
