"""A worker that is written with nothing but a client generated from the OpenAPI document of the server."""

import importlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from semel.testing import TestServer

NODE, WORKFLOW = "node_01j0000000e00800000000007z", "generated"


def named(schemas: dict[str, Any]) -> dict[str, Any]:
    """The same schemas, with names for the objects inside of unions: this generator loses those without one."""
    parts: dict[str, Any] = {}
    for name, schema in schemas.items():
        for variant in schema.get("oneOf", []):
            for member, inner in variant.get("properties", {}).items():
                if "properties" in inner:
                    part = f"{name}{member[0].upper()}{member[1:]}"
                    parts[part] = inner
                    variant["properties"][member] = {"$ref": f"#/components/schemas/{part}"}
    return schemas | parts


def generate(url: str, folder: Path) -> None:
    """Writes the package ``semel_generated``: a function for each route, and a class for each request and answer."""
    with urllib.request.urlopen(f"{url}/api/v1/openapi.json", timeout=30) as answer:
        document = json.load(answer)
    document["components"]["schemas"] = named(document["components"]["schemas"])
    (folder / "openapi.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none", "--output-path", "semel_generated"]
    subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=120)


class Generated:
    """The generated functions: ``api("workers", "worker_claim", body)``."""

    def __init__(self, url: str) -> None:
        self.models = importlib.import_module("semel_generated.models")
        self._client = importlib.import_module("semel_generated.client").Client(base_url=url, raise_on_unexpected_status=True)

    def __call__(self, tag: str, name: str, body: Any = None, *args: str) -> Any:
        route = importlib.import_module(f"semel_generated.api.{tag}.{name}")
        given = {} if body is None else {"body": body}
        answer = route.sync_detailed(*args, client=self._client, **given)
        assert answer.status_code < 300, answer.content
        return answer.parsed


def test_a_worker_written_with_the_generated_client(semel_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(semel_server.url, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    api = Generated(semel_server.url)
    models = api.models

    def claim() -> dict[str, Any]:
        call = models.ClaimCall(node=NODE, workflows=[models.Served(workflow=WORKFLOW)], limit=1, wait_ms=10_000, folded=True)
        claims = api("workers", "worker_claim", call)
        assert isinstance(claims, models.FoldedClaims) and len(claims.runs) == 1
        return dict(claims.runs[0].to_dict())

    def commit(claimed: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        item = {"run": claimed["run"], "node": NODE, "expected": claimed["version"], "entries": entries}
        saved = api("workers", "worker_commit", models.CommitCall(commits=[models.CommitItem.from_dict(item)])).to_dict()
        assert saved["answers"][0]["ok"]["version"] == claimed["version"] + len(entries)

    api("runs", "start_run", models.StartRun(workflow=WORKFLOW, idempotency_key="g-1"))
    joined = api("workers", "worker_register", models.Join(node=NODE, name="generated", lease_ms=10_000))
    first = claim()
    assert (first["key"], first["workflow"], first["records"]) == ("g-1", WORKFLOW, {})
    # A step, and a sleep: the run rests until it is over.
    charged: list[dict[str, Any]] = [{"stepStarted": {"step": "charge", "attempt": 1}}, {"stepCompleted": {"step": "charge", "value": {"id": "ch_7"}}}]
    nap = joined.now + 100
    commit(first, [*charged, {"timerSet": {"timer": "nap", "at": nap}}, {"waiting": {"due": nap}}])
    second = claim()
    assert (second["run"], second["claims"]) == (first["run"], 2)
    assert second["records"] == {"charge": {"completed": {"id": "ch_7"}}, "nap": {"timer": {"at": nap, "fired": False}}}
    beat = models.Heartbeat(node=NODE, lease_ms=10_000, runs=[models.DrivenRun(run=second["run"], fence=second["fence"])])
    assert api("workers", "worker_heartbeat", beat).until > joined.until
    commit(second, [{"timerFired": {"timer": "nap"}}, {"completed": {"value": "charged"}}])
    api("workers", "worker_release", models.ReleaseCall(node=NODE))
    found = api("runs", "get_run", None, second["run"]).to_dict()
    assert (found["status"], found["result"]) == ("COMPLETED", "charged")
