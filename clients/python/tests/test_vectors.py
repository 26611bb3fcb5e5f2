"""The golden vectors, and what follows from them."""

import json
from pathlib import Path

from semel import Retry
from semel._keys import Effect, id_of, path_key, uuid7

VECTORS = Path(__file__).resolve().parents[3] / "vectors"


def test_effect_keys_are_those_of_the_golden_vectors() -> None:
    vectors = json.loads((VECTORS / "effect_keys.json").read_text())
    assert len(vectors) > 5
    for vector in vectors:
        effect = Effect(**vector["given"])
        assert {"key": effect.key(), "uuid": str(effect.uuid())} == vector["expected"], vector["why"]


def test_ids_have_their_length_and_paths_their_keys() -> None:
    assert len(id_of("run", uuid7())) == 30
    assert path_key("order-7") == "order-7"
    assert path_key("a/b").startswith("~") and len(path_key("a/b")) == 33


def test_pauses_grow_up_to_a_limit_and_are_shortened_by_jitter() -> None:
    retry = Retry(max_attempts=99_999)
    assert [retry.next(n, "retryable", 0) for n in (1, 2, 3, 7, 5000)] == [1000, 2000, 4000, 60_000, 60_000]
    assert retry.next(1, "retryable", 1) == 500
    assert [Retry().next(1, kind, 0) for kind in ("fatal", "cancelled", "uncertain")] == ["fail", "fail", "doubt"]
    assert Retry().next(3, "retryable", 0) == "fail"
