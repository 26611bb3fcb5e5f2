#!/usr/bin/env python3
"""Computes every golden vector anew, without any of Semel's code, and compares. The definitions are in README.md.

    python3 vectors/check.py           # exit code 1 if a vector differs
    python3 vectors/check.py --write   # fill in what is expected of new inputs; never to change an old one
"""

import hashlib
import json
import pathlib
import struct
import sys
import uuid
from fractions import Fraction

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
HERE = pathlib.Path(__file__).parent


def digest(*parts):
    hash = hashlib.sha256()
    for part in parts:
        data = part.encode()
        hash.update(struct.pack(">Q", len(data)) + data)
    return hash.digest()


def base32(data):
    number, bits = int.from_bytes(data, "big"), len(data) * 8
    assert bits % 5 == 0
    return "".join(ALPHABET[number >> shift & 31] for shift in range(bits - 5, -1, -5))


def effect_key(vector):
    parts = [vector["workspace"], vector["lineage"], vector["path"], str(vector["tick"]), vector["label"]]
    first = digest("semel/effect/v1", *parts)[:20]
    as_uuid = bytearray(first[:16])
    as_uuid[6] = as_uuid[6] & 0x0F | 0x80
    as_uuid[8] = as_uuid[8] & 0x3F | 0x80
    return {"key": "e1" + base32(first), "uuid": str(uuid.UUID(bytes=bytes(as_uuid)))}


class Integer(int):
    pass


def parse_integer(text):
    value = int(text)
    if text.startswith("-0") or not -(2**63) <= value < 2**64:
        return parse_double(text)
    return Integer(value)


def parse_double(text):
    value = float(text)
    if value == int(value) and abs(value) <= 2**53:
        return Integer(int(value))
    return value


def double_text(value):
    """Number::toString of ECMAScript, which RFC 8785 prescribes."""
    sign, value = ("-", -value) if value < 0 else ("", value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0)
    if whole == "0":
        point -= 1 + len(fraction) - len(fraction.lstrip("0"))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    power = f"e{point - 1:+d}"
    return sign + digits[0] + ("." + digits[1:] if count > 1 else "") + power


def canonical(value):
    if isinstance(value, Integer):
        return str(int(value))
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        return "{" + ",".join(f"{canonical(name)}:{canonical(member)}" for name, member in members) + "}"
    return json.dumps(value, ensure_ascii=False)


def is_index(part):
    return part.isascii() and part.isdigit() and (part == "0" or part[0] != "0")


def exclude(value, pointer):
    if not pointer.startswith("/"):
        return
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and is_index(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return
    if isinstance(value, dict):
        value.pop(last, None)
    elif isinstance(value, list) and is_index(last) and int(last) < len(value):
        value[int(last)] = None


def fingerprint(vector):
    value = json.loads(vector["input"], parse_int=parse_integer, parse_float=parse_double)
    for pointer in vector["excluded"]:
        exclude(value, pointer)
    text = canonical({"workflow": vector["workflow"], "input": value})
    return {"canonical": text, "fingerprint": digest("semel/fingerprint/v1", text).hex()}


def control_fingerprint(vector):
    control = json.loads(vector["control"], parse_int=parse_integer, parse_float=parse_double)
    action = control["action"]
    if "fork" in action:
        del action["fork"]["run"]
    text = canonical({"run": control["run"], "action": action})
    return {"canonical": text, "fingerprint": digest("semel/fingerprint/v1", text).hex()}


def definition_id(vector):
    """From the JSON; that the YAML is the same document is for the readers of YAML to show."""
    text = canonical(json.loads(vector["json"], parse_int=parse_integer, parse_float=parse_double))
    data = hashlib.sha256(text.encode()).digest()[:20]
    return {"canonical": text, "id": "def1_" + base32(data)[:26]}


COLUMNS = "effect_key, run_id, step, fence, attempt, outcome"
KINDS = {
    "postgres": ("text", "bigint", "timestamptz", ")"),
    "sqlite": ("TEXT", "INTEGER", "TEXT", ") WITHOUT ROWID"),
    "mysql": ("longtext", "bigint", "timestamp(6)", ") ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
}
#: An outcome is never changed, and no earlier try of a run writes over a later one.
UPSERT = (
    "ON CONFLICT (effect_key) DO UPDATE SET run_id = excluded.run_id, step = excluded.step, fence = excluded.fence, attempt = excluded.attempt, "
    "outcome = excluded.outcome, settled = excluded.settled WHERE held.outcome IS NULL AND (held.run_id <> excluded.run_id "
    "OR held.fence < excluded.fence OR (held.fence = excluded.fence AND held.attempt <= excluded.attempt))"
)
ALONE = "CASE WHEN current_setting({0}) = '0' AND set_config({0}, '10s', true) IS NULL THEN '' ELSE $3 END".format(
    "'idle_in_transaction_session_timeout'"
)


def fence(vector):
    table, dialect = vector["table"], vector["dialect"]
    text, number, time, end = KINDS[dialect]
    find = f"SELECT run_id, fence, attempt, outcome FROM {table} WHERE effect_key = "
    create = (
        f"CREATE TABLE IF NOT EXISTS {table} (effect_key {text} PRIMARY KEY, run_id {text} NOT NULL, step {text} NOT NULL, fence {number} NOT NULL, "
        f"attempt {number} NOT NULL, outcome {text}, created {time} NOT NULL DEFAULT CURRENT_TIMESTAMP, settled {time}{end}"
    )
    if dialect == "mysql":
        insert = f"INSERT INTO {table} (effect_key, run_id, step, fence, attempt) VALUES "
        same = "ON DUPLICATE KEY UPDATE effect_key = effect_key"
        rule = "WHERE effect_key = ? AND outcome IS NULL AND (run_id <> ? OR (fence, attempt) <= "
        key = "varchar(64) CHARACTER SET ascii COLLATE ascii_bin"
        create = create.replace("effect_key longtext", f"effect_key {key}").replace("run_id longtext", f"run_id {key}")
        create = create.replace("step longtext", "step text").replace("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP(6)")
        return {
            "create": create.replace("settled timestamp(6))", "settled timestamp(6) NULL)"),
            "find": find + "?",
            "put": f"{insert}(?, ?, ?, ?, ?) {same}; UPDATE {table} SET run_id = ?, step = ?, fence = ?, attempt = ?, outcome = ?, "
            f"settled = IF(? IS NULL, NULL, CURRENT_TIMESTAMP(6)) {rule}(?, ?))",
            "fence": f"{insert}(?, ?, '', ?, 0) {same}; UPDATE {table} SET run_id = ?, fence = ?, attempt = 0 {rule}(?, 0))",
        }
    place = "$" if dialect == "postgres" else "?"
    step = ALONE if dialect == "postgres" else "?3"
    outcome = f"CAST({place}6 AS text)"
    insert = f"INSERT INTO {table} AS held ({COLUMNS}, settled) VALUES "
    settled = f"CASE WHEN {outcome} IS NULL THEN NULL ELSE CURRENT_TIMESTAMP END"
    return {
        "create": create,
        "find": f"{find}{place}1",
        "put": f"{insert}({place}1, {place}2, {step}, {place}4, {place}5, {outcome}, {settled}) {UPSERT}",
        "fence": f"{insert}({place}1, {place}2, '', {place}3, 0, NULL, NULL) {UPSERT}",
    }


def retry(vector):
    policy, kind = vector["policy"], vector["kind"]
    if kind in ("fatal", "cancelled"):
        return "fail"
    if kind == "uncertain":
        return "doubt"
    if vector["attempt"] >= policy["maxAttempts"]:
        return "fail"
    most, initial = policy["maxDelayMs"], policy["initialMs"]
    exact = lambda number: Fraction(str(number))
    full = most
    # Powers of a thousand steps are not computed exactly: they are far beyond the longest pause, or the factor is 1.
    if policy["factor"] == 1 or vector["attempt"] < 100:
        full = min(initial * exact(policy["factor"]) ** (vector["attempt"] - 1), most)
    return {"pauseMs": int(full * (1 - exact(policy["jitter"]) * exact(vector["random"])))}


FILES = [
    ("effect_keys.json", effect_key),
    ("fingerprints.json", fingerprint),
    ("control_fingerprints.json", control_fingerprint),
    ("definition_ids.json", definition_id),
    ("fence.json", fence),
    ("retry.json", retry),
]


def main():
    differ = 0
    for name, compute in FILES:
        path = HERE / name
        vectors = json.loads(path.read_text())
        for vector in vectors:
            expected = compute(vector["given"])
            if vector.get("expected", expected) != expected:
                differ += 1
                print(f"{name}: {vector['why']}: {vector['expected']} should be {expected}")
            vector.setdefault("expected", expected)
        if "--write" in sys.argv:
            path.write_text(json.dumps(vectors, indent=2, ensure_ascii=False) + "\n")
        print(f"{name}: {len(vectors)} vectors")
    sys.exit(1 if differ else 0)


main()
