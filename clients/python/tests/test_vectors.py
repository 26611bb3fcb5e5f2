"""The golden vectors, and what follows from them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel import Retry
from semel._keys import Effect, id_of, path_key, uuid7
from semel.tx import postgres_table, sqlite_table, statements

VECTORS = Path(__file__).resolve().parents[3] / "vectors"
DIALECTS: dict[str, tuple[Callable[[int], str], bool, Callable[[str], str]]] = {
    "postgres": (lambda n: f"${n}", True, postgres_table),
    "sqlite": (lambda n: f"?{n}", False, sqlite_table),
}


def effect_key(given: dict[str, Any]) -> Any:
    effect = Effect(**given)
    return {"key": effect.key(), "uuid": str(effect.uuid())}


def fence(given: dict[str, Any]) -> Any:
    place, is_postgres, create = DIALECTS[given["dialect"]]
    find, put = statements(given["table"], place, is_postgres)
    return {"create": create(given["table"]), "find": find, "put": put}


def retry(given: dict[str, Any]) -> Any:
    policy = given["policy"]
    pauses = {"initial": policy["initialMs"] / 1000, "max_delay": policy["maxDelayMs"] / 1000}
    found = Retry(policy["maxAttempts"], factor=policy["factor"], jitter=policy["jitter"], **pauses).next(given["attempt"], given["kind"], given["random"])
    return found if isinstance(found, str) else {"pauseMs": found}


#: What is made of the vectors of each kind, and how many there are at least.
KINDS: dict[str, tuple[Callable[[dict[str, Any]], Any], int]] = {"effect_keys": (effect_key, 10), "fence": (fence, 4), "retry": (retry, 20)}


def check(kind: str, vector: dict[str, Any]) -> None:
    found, expected = KINDS[kind][0](vector["given"]), vector["expected"]
    # This SDK has no use for the other statements of a fence table.
    assert found == ({name: expected[name] for name in found} if kind == "fence" else expected), vector["why"]


def read(kind: str) -> list[dict[str, Any]]:
    # There is no source for MySQL.
    vectors = [vector for vector in json.loads((VECTORS / f"{kind}.json").read_text()) if vector["given"].get("dialect") != "mysql"]
    assert len(vectors) >= KINDS[kind][1]
    return vectors


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_golden_vectors_say(kind: str) -> None:
    for vector in read(kind):
        check(kind, vector)


def altered(expected: Any) -> Any:
    """Other than what is expected, in one place."""
    if isinstance(expected, dict):
        return {name: altered(value) if i == 0 else value for i, (name, value) in enumerate(expected.items())}
    return f"{expected} " if isinstance(expected, str) else expected + 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_altered_vector_is_found(kind: str) -> None:
    vector = read(kind)[-1]
    with pytest.raises(AssertionError):
        check(kind, {**vector, "expected": altered(vector["expected"])})


def test_ids_have_their_length_and_paths_their_keys() -> None:
    assert len(id_of("run", uuid7())) == 30
    assert path_key("order-7") == "order-7"
    assert path_key("a/b").startswith("~") and len(path_key("a/b")) == 33
