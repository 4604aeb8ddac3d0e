"""A moment by which something has to be over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, order=True)
class Deadline:
    """A moment by time.monotonic, whose clock all processes of a machine share.

    Of several deadlines, the `min` comes first. Where `stop` is given and says so, it has passed
    already; another process is not told.
    """

    moment: float
    stop: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def after(cls, seconds: float, stop: Callable[[], bool] | None = None) -> Deadline:
        """The moment so many seconds from now."""
        return cls(time.monotonic() + seconds, stop)

    @property
    def left(self) -> float:
        """Seconds until then, at least 0."""
        return 0.0 if self.stopped else max(0.0, self.moment - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self.moment or self.stopped

    @property
    def stopped(self) -> bool:
        """Whether it has passed since it was to stop."""
        return self.stop is not None and self.stop()

    def extended(self, seconds: float) -> Deadline:
        """The moment so many seconds later."""
        return replace(self, moment=self.moment + seconds)

    def sooner(self, seconds: float) -> Deadline:
        """The moment so many seconds earlier: when what takes so long has to begin."""
        return self.extended(-seconds)

    def part(self, share: float) -> Deadline:
        """The moment at which that share of what is left now will have passed."""
        return Deadline.after(share * self.left, self.stop)

    def __reduce__(self) -> tuple[type[Deadline], tuple[float]]:
        return Deadline, (self.moment,)


NEVER = Deadline(math.inf)
