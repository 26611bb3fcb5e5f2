"""Whether another attempt is made, and when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ._duration import Duration, millis


@dataclass(frozen=True)
class Retry:
    """How a step is tried again: three attempts, pauses from one second doubling up to a minute, half of it jitter."""

    #: Maximum number of attempts, the first included.
    max_attempts: int = 3
    #: Pause after the first attempt.
    initial: Duration = 1.0
    #: Factor by which each pause is longer than the one before.
    factor: float = 2.0
    #: Maximum length of a pause.
    max_delay: Duration = 60.0
    #: Share of a pause, from 0 to 1, up to which it is shortened at random.
    jitter: float = 0.5

    def next(self, attempt: int, kind: str, random: float) -> int | str:
        """The pause before the next attempt in milliseconds, ``fail`` or ``doubt``. ``random`` is from 0 up to 1."""
        if kind in ("fatal", "cancelled"):
            return "fail"
        if kind == "uncertain":
            return "doubt"
        if attempt >= self.max_attempts:
            return "fail"
        try:
            full = min(millis(self.initial) * self.factor ** (attempt - 1), millis(self.max_delay))
        except OverflowError:
            full = millis(self.max_delay)
        # To the nearest nanosecond first: 933.9999999 is 934.
        return math.floor(round(full * (1 - self.jitter * random), 6))

    def wire(self) -> dict[str, Any]:
        """The policy as it travels."""
        pauses = {"initialMs": millis(self.initial), "factor": self.factor, "maxDelayMs": millis(self.max_delay)}
        return {"maxAttempts": self.max_attempts, **pauses, "jitter": self.jitter}
