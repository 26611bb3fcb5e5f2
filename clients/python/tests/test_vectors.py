"""The golden vectors, and what follows from them."""

import json
from collections.abc import Callable
from pathlib import Path

from semel import Retry
from semel._keys import Effect, id_of, path_key, uuid7
from semel.tx import postgres_table, sqlite_table, statements

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


def test_statements_of_the_fence_table_are_those_of_the_golden_vectors() -> None:
    places: dict[str, tuple[Callable[[int], str], bool, Callable[[str], str]]] = {
        "postgres": (lambda n: f"${n}", True, postgres_table),
        "sqlite": (lambda n: f"?{n}", False, sqlite_table),
    }
    # There is no source for MySQL.
    vectors = [vector for vector in json.loads((VECTORS / "fence.json").read_text()) if vector["given"]["dialect"] in places]
    assert len(vectors) >= 4
    for vector in vectors:
        table, expected = vector["given"]["table"], vector["expected"]
        place, is_postgres, create = places[vector["given"]["dialect"]]
        assert statements(table, place, is_postgres) == (expected["find"], expected["put"]), vector["why"]
        assert create(table) == expected["create"], vector["why"]


def test_pauses_between_attempts_are_those_of_the_golden_vectors() -> None:
    vectors = json.loads((VECTORS / "retry.json").read_text())
    assert len(vectors) >= 20
    for vector in vectors:
        given, policy = vector["given"], vector["given"]["policy"]
        pauses = {"initial": policy["initialMs"] / 1000, "max_delay": policy["maxDelayMs"] / 1000}
        retry = Retry(policy["maxAttempts"], factor=policy["factor"], jitter=policy["jitter"], **pauses)
        found = retry.next(given["attempt"], given["kind"], given["random"])
        assert (found if isinstance(found, str) else {"pauseMs": found}) == vector["expected"], vector["why"]
