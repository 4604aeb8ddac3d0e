"""Rules by which a sum of a value and itself becomes a product, and that a quotient."""

from xflow.rewriting.text import parse_rules

DOUBLE = parse_rules("""
rule double
  in       x[...]
  from     Add(x, x)
  to       Mul(x, 2)
""")
INVERSE = parse_rules("""
rule inverse
  in       x[...]
  from     Mul(x, 2)
  to       Div(x, 1/2)
""")
