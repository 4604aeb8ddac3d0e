"""A moment by which something has to be over."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Deadline:
    """A moment by time.monotonic, whose clock all processes of a machine share.

    Of several deadlines, the `min` comes first.
    """

    moment: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return max(0.0, self.moment - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.moment

    def extended(self, seconds: float) -> Deadline:
        """The moment so many seconds later."""
        return Deadline(self.moment + seconds)

    def sooner(self, seconds: float) -> Deadline:
        """The moment so many seconds earlier: when what takes so long has to begin."""
        return self.extended(-seconds)

    def part(self, share: float) -> Deadline:
        """The moment at which that share of what is left now will have passed."""
        return Deadline.after(share * self.left)


NEVER = Deadline(math.inf)
