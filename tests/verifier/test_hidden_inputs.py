"""Kernels that hide NaN or infinities: when two sides make the same of them."""

import pytest

from xflow.rewriting.text import parse_rules
from xflow.verifier.proof.instance import InstanceProof
from xflow.verifier.recheck.check import assumptions
from xflow.verifier.recheck.hidden import what_shows

ATTENTION = "q[B, H, S, D] k[B, H, L, D] v[B, H, L, E] a[S, L]"
SAME = {
    "a pool of what is moved": (
        "x[N, C, L]",
        "GlobalMaxPool(Transpose(x, perm=[1, 0, 2]))",
        "Transpose(GlobalMaxPool(x), perm=[1, 0, 2])",
        "x < inf",
    ),
    "summands in another order": (
        "x[n] s[n] t[n]",
        "PRelu(x, Add(s, t))",
        "PRelu(x, Add(t, s))",
        "",
    ),
    "columns of a product": (
        "x[B, S, K] w[K, 2*m] k[B, S, m] v[B, S, m]",
        "Attention(Slice(MatMul(x, w), starts=[0], ends=[m], axes=[2], steps=[1]), k, v, scale=1,"
        " q_num_heads=1, kv_num_heads=1)",
        "Attention(MatMul(x, Slice(w, starts=[0], ends=[m], axes=[1], steps=[1])), k, v, scale=1,"
        " q_num_heads=1, kv_num_heads=1)",
        "",
    ),
    "numbers computed otherwise": (
        ATTENTION,
        "Attention(Mul(q, 2), k, v, a, scale=1)",
        "Attention(q, k, v, a, scale=2)",
        "finite(q), finite(k)",
    ),
}
OTHER = {
    "a pool of what may be NaN": (
        "x[N, C, L]",
        "GlobalMaxPool(Transpose(x, perm=[1, 0, 2]))",
        "Transpose(GlobalMaxPool(x), perm=[1, 0, 2])",
        "",
    ),
    "a pool of what may become NaN": (
        "x[N, C, L]",
        "GlobalMaxPool(Sub(x, Mul(x, 0)))",
        "GlobalMaxPool(x)",
        "x < inf",
    ),
    "a step behind the kernel": (
        "x[n] s[n]",
        "Neg(PRelu(x, s))",
        "PRelu(Neg(x), s)",
        "",
    ),
    "what others reach": (
        "x[n] s[n]",
        "PRelu(x, s)",
        "PRelu(x, Add(s, Mul(ReduceSum(s, axes=[0], keepdims=1), 0)))",
        "",
    ),
    "operands that are read together": (
        "x[n] s[n] t[n]",
        "PRelu(x, Max(s, t))",
        "Max(PRelu(x, s), PRelu(x, t))",
        "",
    ),
    "a factor that no number is known to have": (
        ATTENTION,
        "Attention(Mul(q, 2), k, v, a, scale=1)",
        "Attention(q, k, v, a, scale=2)",
        "finite(k)",
    ),
    "a step of the other operand": (
        "x[n] s[n]",
        "PRelu(x, Mul(s, s))",
        "PRelu(x, Abs(Mul(s, s)))",
        "",
    ),
    "a mask of a whole row": (
        "q[B, H, S, D] k[B, H, L, D] v[B, H, L, E] a[S, 1]",
        "Attention(q, k, v, Expand(a, shape=[S, L]), scale=1)",
        "Attention(q, k, v, scale=1)",
        "L >= 1, finite(q), finite(k)",
    ),
    "queries of a single key": (
        "q[B, H, S, D] r[B, H, S, D] k[B, H, 1, D] v[B, H, 1, E]",
        "Attention(q, k, v, scale=1)",
        "Attention(r, k, v, scale=1)",
        "",
    ),
    "queries of keys that are 0": (
        "q[B, H, S, D] r[B, H, S, D] k[B, H, L, D] v[B, H, L, E]",
        "Attention(q, Mul(k, 0), v, scale=1)",
        "Attention(r, Mul(k, 0), v, scale=1)",
        "L >= 1, finite(k)",
    ),
    "a choice that is turned round": (
        "x[n]",
        "Clip(Where(Less(x, 0), x, 0), max=2)",
        "Clip(Where(GreaterOrEqual(x, 0), 0, x), max=2)",
        "",
    ),
    "a kernel behind another": (
        "x[n] s[n] y[n]",
        "Clip(PRelu(x, s), min=-1)",
        "Clip(PRelu(Sub(Add(x, y), y), s), min=-1)",
        "",
    ),
    "a branch that large elements alone take": (
        "x[n] s[n] t[n] u[n]",
        "PRelu(x, Where(Greater(u, 1000000), s, t))",
        "PRelu(x, t)",
        "",
    ),
    "another kernel": (
        "x[n] s[n] t[n]",
        "Add(PRelu(x, s), Mul(PRelu(x, s), 0))",
        "Add(PRelu(x, s), Mul(PRelu(x, t), 0))",
        "",
    ),
}


@pytest.mark.parametrize("case", [*SAME, *OTHER])
def test_both_checkers_tell_sides_that_make_the_same_of_what_they_hide(case: str) -> None:
    inputs, left, right, facts = (SAME | OTHER)[case]
    where = f"  where {facts}\n" if facts else ""
    param = "  param m\n" if "m]" in inputs else ""
    (rule,) = parse_rules(f"rule r\n  in {inputs}\n{param}  from {left}\n  to {right}\n{where}")
    (instance,) = rule.instances()
    sides = instance.lhs[0], instance.rhs[0]
    shown = what_shows(instance, *sides, assumptions(instance))[0]
    assert (shown.sides != sides) == (case in SAME)
    assert bool(shown.hidden) == (case in OTHER)
    proof = InstanceProof(instance)
    with proof.arithmetic, proof.arithmetic.assuming(proof.conditions):
        alike = proof._hides_alike(*sides, proof._elements())
    # The last case differs by what vanishes as a number: that is asked of what is read.
    assert alike == (case in SAME or case == "another kernel")
