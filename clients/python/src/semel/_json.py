"""JSON as the ledger keeps it: every digit of an integer, and nothing that other languages cannot read."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any

from ._errors import fatal


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)
    try:
        # Dates, decimals and so on: what hints can read back.
        from pydantic_core import to_jsonable_python

        return to_jsonable_python(value)
    except (ImportError, ValueError):
        raise fatal(f"a {type(value).__name__} is not JSON: return a plain value, a dataclass or a pydantic model") from None


def encode(value: Any) -> str:
    """JSON text of a value. NaN, infinities, halves of characters and values that JSON does not have are refused."""
    try:
        text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        if not text.isascii():
            text.encode()
        return text
    except (TypeError, ValueError, RecursionError) as refused:
        raise fatal(f"the value is not JSON: {refused}") from refused


def decode(text: str | bytes) -> Any:
    """The value of a JSON text."""
    return json.loads(text)
