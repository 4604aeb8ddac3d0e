"""What a report says of its rewrites and blocks, in sentences."""

from collections import Counter
from collections.abc import Sequence

from xflow.core.wording import counted
from xflow.cost.kernels import HEAVY
from xflow.report.formats import percent
from xflow.report.report import Assumed, Based, Block, KernelTime


def basis_lines(bases: Sequence[Based]) -> list[str]:
    """Return a sentence for each basis: how many rewrites rest on it."""
    return [f"{counted(each.rewrites, 'rewrite')} by {each.sentence}" for each in bases]


def assumed_lines(assumed: Sequence[Assumed], most: int = 3) -> list[str]:
    """Return a sentence for each assumption: how many rewrites rest on it, and by which rules."""
    lines = []
    for each in assumed:
        named = ", ".join(each.rules[:most])
        rest = f" and {len(each.rules) - most} more" if len(each.rules) > most else ""
        count = f"{each.rewrites} rewrite{' assumes' if each.rewrites == 1 else 's assume'}"
        lines.append(f"{count} that {each.sentence} (--assume {each.option}): {named}{rest}")
    return lines


def block_lines(blocks: Sequence[Block], most: int = 4) -> list[str]:
    """Return how many blocks of each kind became one operator each, and why others did not."""
    if not blocks:
        return []
    lines = [f"In one operator or kernel each: {recognised(blocks)}"]
    missed = Counter(
        (block.kind, block.name or "no operator", block.reason)
        for block in blocks
        if not block.recognised
    )
    for (kind, name, reason), count in missed.most_common(most):
        lines.append(f"In several operators still: {count} x {kind} ({name}): {reason}")
    if len(missed) > most:
        lines.append("Others are in the report (--report, --html)")
    return lines


def profile_lines(profile: Sequence[KernelTime], most: int = 5) -> list[str]:
    """Return where the time of the input model goes, and what of it rules could speak of."""
    total = sum(each.seconds for each in profile)
    if not total:
        return []
    named = [f"{each.operator} {percent(each.seconds / total)}" for each in profile[:most]]
    rest = f" and {len(profile) - most} more" if len(profile) > most else ""
    opaque = sum(each.opaque * each.seconds for each in profile) / total
    heavy = (
        sum((1 - each.opaque) * each.seconds for each in profile if each.operator in HEAVY) / total
    )
    return [
        f"Time of the input model by kernel: {', '.join(named)}{rest}",
        f"Of that, {percent(heavy)} is convolutions and matrix products, {percent(opaque)} what no "
        f"rule speaks of, and {percent(1 - heavy - opaque)} all else",
    ]


def recognised(blocks: Sequence[Block]) -> str:
    """Return how many of the blocks of each kind the output model has as one operator each."""
    words = []
    for kind in sorted({block.kind for block in blocks}):
        those = [block.recognised for block in blocks if block.kind == kind]
        plural = kind if len(those) == 1 else f"{kind}{'es' if kind.endswith('x') else 's'}"
        words.append(f"{sum(those)} of {len(those)} {plural}")
    return ", ".join(words)
