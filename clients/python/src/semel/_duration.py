"""Lengths of time."""

from __future__ import annotations

import re
from datetime import timedelta

#: Seconds, a timedelta, or a text such as ``500ms``, ``10s``, ``1h30m``, ``7d``, ``2w``.
Duration = float | timedelta | str

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")


def millis(duration: Duration) -> int:
    """A length of time in milliseconds."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, str):
        parts = _PART.findall(duration)
        if not parts or "".join(count + unit for count, unit in parts) != duration.strip():
            raise ValueError(f"{duration!r} is no length of time: write one such as 500ms, 10s, 1h30m or 7d")
        return round(sum(float(count) * _UNITS[unit] for count, unit in parts))
    if not 0 <= duration < float("inf"):
        raise ValueError(f"{duration} is no length of time")
    return round(duration * 1000)
