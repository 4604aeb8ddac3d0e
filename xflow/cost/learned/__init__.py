"""What measurements of other networks teach about the kernels that the estimate counts.

The estimate of a graph is a sum over the kernels that the runtime runs. What is learned is a factor
for each of them, from `features` of that kernel alone, so that the cost of a graph is a sum still.
The search does not use it by itself: it corrects the estimate where the target has a `learned`
`Correction`, as with ``--cost learned`` the one that is shipped.
"""
