"""The policy of the search: all of its tuning constants, each with its unit.

Work is counted in nodes, time in seconds; gains and differences are parts of a time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """How a search spends its time, and what counts as a gain.

    Solutions are stored for one policy and not used with another.
    """

    # Cutting a graph into regions

    region_nodes: int = 40
    """Most nodes of a region that do not depend on constants alone. More find rewrites of more
    operators, and take far longer."""
    merged_nodes: int = 12
    """Neighbouring parts between bottlenecks are joined up to this many nodes."""
    tail_nodes: int = 3
    """So many nodes after a larger part without bottlenecks are joined to it, every other time:
    rules on attention include the operators that join the heads again after it."""
    told_apart: int = 16
    """Most elements of a constant whose values, whatever they are, belong to the key of a region.
    Rules can depend on them; regions that differ in them alone do not share solutions."""

    # Exploring a region

    alpha: float = 2.0
    """Forms that cost more than this times the best are dropped: estimates are rough, and rules
    that enable others cost first."""
    slack_s: float = 2e-5
    """Seconds by which a form may be dearer besides: a few calls of operators, which in a small
    region are more than `alpha` allows."""
    expansions: int = 100
    """Forms of a region of which all steps are tried, with an effort of 1."""
    states: int = 3000
    """Forms of a region that are kept at the same time, with an effort of 1."""
    sweeps: int = 4
    """Most rules that are applied wherever they can be, one after another, before single steps."""
    swept: int = 3
    """Least places of a rule for which that is tried."""
    slide: int = 8
    """Most elementwise operators past which something is moved at once, after the first one: each
    by itself gains nothing."""
    ways: int = 3
    """How many ways from regions like one, to better forms of these, are tried in it first."""
    in_common: float = 0.7
    """How many operators such regions have in common at least, of all that either has."""
    retraced: float = 0.2
    """The part of its time that a region gets where one like it was searched just before: most of
    what there is to find lies on the same way."""
    step_s: float = 1e-8
    """Seconds that a step must gain to be worth taking: of forms that cost the same, such as one
    with Clip and one with Relu, the one nearer to the model is the better one."""
    doubts: int = 2
    """How often a region is explored again without a step whose estimated gain is in doubt."""
    doubt_part: int = 5
    """The divisor of the limits then."""
    forms: int = 6
    """Forms of a region that are measured against the original. Each takes its part of the time."""

    # Sharing out the budget

    passes: int = 4
    """Passes over the graph with one effort, each cut at other places."""
    pass_share: float = 0.7
    """The part of what is left of the time, or of the work, for a pass over the whole graph."""
    first_share: float = 0.4
    """The same of the time where the next pass, cut at other places, is to have as much."""
    near_share: float = 0.3
    """The same for one over the neighbourhood of changes."""
    blocks: float = 0.15
    """The part of a pass's time for exploring, or of its work, in which blocks that are spelled out
    are searched by themselves at most, before its regions."""
    efforts: tuple[int, ...] = (1, 10)
    """Multiples of the limits, one after the other, where results are measured. Small gains are
    lost in the noise, so that a deep search pays; but only after all regions, and their forms
    after the first rewrites, have been searched a little."""
    work_per_s: float = 100_000
    """Nodes of graphs that are priced for each second of the budget, where nothing is measured. It
    is less than what two cores can do, so that a search ends by its work and not by time, and so at
    the same place on any machine."""
    deepening: tuple[float, ...] = (0.25, 0.75)
    """Parts of the work, one after the other, where time may cut the search short: all regions,
    and what lies across their seams, have been searched a little by then."""
    rounds: int = 3
    """How often regions for which the work did not suffice are searched again."""
    deeper: float = 0.5
    """The part of the work, or of the time, that is left then for regions in which a block is still
    spelled out: of some there is no operator that is faster, and measurements want their time."""
    searching: float = 0.6
    """The part of a pass's time that is for exploring; the rest is for measuring."""
    spelled: float = 2.0
    """How many times as long a region is searched where attention or a normalization is spelled
    out."""
    waves: float = 0.25
    """The part of the budget that waves may take, see `xflow.search.channel_padding`."""
    processes: int = 8
    """Most processes that explore. Each holds the rules and what it has matched, some 200 MB."""
    worthwhile_s: float = 2.0
    """Seconds of exploring after which processes are started, which takes as long; there is to be
    at least as much time left."""
    idle_s: float = 60.0
    """Seconds without work after which a process ends: it stays if this process is killed.
    No less than the measurements between two passes take, or it has to read the rules again."""

    # Deciding by a measurement or an estimate

    least_gain: float = 0.02
    """Least relative gain for which a region is rewritten by the estimate."""
    beside: float = 2.5
    """How many times that part a form may gain instead of what a region costs without the products
    that both have. It is more, since each such rewrite leads to a further pass."""
    hurried_gain: float = 0.05
    """The same where it would be measured if there were time, in relation to the whole region, for
    a form without fewer operators: the estimate errs by some percent, and what it promises beyond
    that is mostly true."""
    alike: float = 0.02
    """Up to which relative difference two forms count as equally fast."""
    measured_gain: float = 0.01
    """Least relative gain for which a region is rewritten where it is measured, at first and then
    in new sessions."""
    plain: float = 0.25
    """The relative gain from which a measurement counts by itself where the estimate agrees: two
    sessions differ by less."""
    sessions: int = 3
    """Most new sessions; more than one only while the result is unclear."""
    surprise: float = 0.08
    """The least gain at first for a form that the estimate does not call faster: more often it is
    noise."""
    noise: float = 0.05
    """Up to which relative difference two measured forms count as equally fast that the estimate
    does not tell apart."""
    hope: float = 1.05
    """Forms are measured up to this estimated cost, relative to the original's."""
    kernels_hope: float = 1.25
    """The same for forms with their products in other kernels, whose peaks the estimate may have
    taken for that much higher than they are."""
    measure_s: tuple[float, float] = (0.2, 1.0)
    """Least and most seconds for measuring one region."""
    worth: float = 0.005
    """The least part of the model's time that a region has to gain by the estimate to be measured
    where the time of its pass is spent."""
    again: float = 0.4
    """The part of them for measuring again what seems to be the fastest form."""
    measured_runs: int = 10
    """How often each form of a region that may be large is run."""
    loading: float = 30.0
    """Parts of the time that is left that may be spent on loading a region for each part of the
    model's time that it may gain: GPT-2's table of tokens takes 5 s to load twice, and is read in
    50 us."""
    loaded_per_s: float = 6e7
    """Bytes of weights of a region that the runtime is given and loads in a second, about."""

    # Remembering

    enough: float = 0.9
    """A stored solution counts if its search had at least this part of the time that there is now;
    that of a shorter search may not be the best."""


POLICY = Policy()
"""The default policy."""
