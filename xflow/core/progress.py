"""How a long job tells how far it is."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

Progress: TypeAlias = Callable[[str, Mapping[str, object]], None]
"""Is told the phase that the job is in, and how far that is."""

CountProgress: TypeAlias = Callable[[int, int], None]
"""Is told how many parts of the job are done, and of how many."""
