"""Ids and effect keys, as the golden vectors have them."""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid
from dataclasses import dataclass

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: Maximum length of a part of a path, in characters.
_PART = 200


def base32(data: bytes) -> str:
    """Crockford's base32 in lower case, five bits a character, the first bits first."""
    bits = len(data) * 8
    number = int.from_bytes(data, "big") << (-bits % 5)
    count = (bits + 4) // 5
    return "".join(_ALPHABET[(number >> (5 * (count - 1 - i))) & 31] for i in range(count))


def id_of(prefix: str, value: uuid.UUID) -> str:
    """An id as Semel writes it: a prefix and the 128 bits of a UUID in 26 characters."""
    return f"{prefix}_" + "".join(_ALPHABET[(value.int >> (5 * (25 - i))) & 31] for i in range(26))


def uuid7(now_ms: int | None = None) -> uuid.UUID:
    """A fresh UUIDv7."""
    now = int(time.time() * 1000) if now_ms is None else now_ms
    data = bytearray(now.to_bytes(6, "big") + os.urandom(10))
    data[6] = 0x70 | (data[6] & 0x0F)
    data[8] = 0x80 | (data[8] & 0x3F)
    return uuid.UUID(bytes=bytes(data))


@dataclass(frozen=True)
class Effect:
    """What an effect is known by."""

    workspace: str
    lineage: str
    path: str
    tick: int
    #: Tells several effects of one step apart; empty for the first.
    label: str = ""

    def _digest(self) -> bytes:
        digest = hashlib.sha256()
        for part in ("semel/effect/v1", self.workspace, self.lineage, self.path, str(self.tick), self.label):
            data = part.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.digest()

    def key(self) -> str:
        """The effect key: the same on every attempt, over crashes, restarts and forks."""
        return "e1" + base32(self._digest()[:20])

    def uuid(self) -> uuid.UUID:
        """The effect key as a UUID."""
        data = bytearray(self._digest()[:16])
        data[6] = 0x80 | (data[6] & 0x0F)
        data[8] = 0x80 | (data[8] & 0x3F)
        return uuid.UUID(bytes=bytes(data))


def _is_plain(text: str, reserved: str) -> bool:
    return 0 < len(text) <= _PART and not any(c in reserved for c in text) and _CONTROL.search(text) is None


def is_name(text: str) -> bool:
    """Whether a text can be a part of a path."""
    return _is_plain(text, "/[]#")


def path_key(text: str) -> str:
    """A text as the key of a path: as it is if that is possible, else by its hash."""
    return text if _is_plain(text, "/[]#~") else "~" + base32(hashlib.sha256(text.encode()).digest()[:20])
