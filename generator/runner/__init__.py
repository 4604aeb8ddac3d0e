"""The runner of the generator: chunks of work, the engines that run them, and their journal.

Every chunk is a pure function of what it holds, and what becomes of their results is decided in
one fixed order; so the rules depend neither on the number of workers nor on which engine runs
them, nor on whether a run was killed and taken up again.
"""
