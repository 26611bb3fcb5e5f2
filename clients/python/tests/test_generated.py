"""A worker that is written with nothing but a client generated from the OpenAPI document of the server."""

import importlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from semel.testing import TestServer

NODE, WORKFLOW = "node_01j0000000e00800000000007z", "generated"


def generate(url: str, folder: Path) -> None:
    """Writes the module ``semel_generated``: a type for each request and answer."""
    with urllib.request.urlopen(f"{url}/api/v1/openapi.json", timeout=30) as answer:
        (folder / "openapi.json").write_bytes(answer.read())
    command = [sys.executable, "-m", "datamodel_code_generator", "--input", "openapi.json", "--input-file-type", "openapi"]
    command += ["--output", "semel_generated.py", "--output-model-type", "pydantic_v2.BaseModel"]
    subprocess.run(command, check=True, cwd=folder, capture_output=True, timeout=120)


def test_a_worker_written_with_the_generated_client(semel_server: TestServer, tmp_path: Path, monkeypatch: Any) -> None:
    generate(semel_server.url, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    api = importlib.import_module("semel_generated")

    def call(path: str, body: Any, answer: Any) -> Any:
        text = body.model_dump_json(by_alias=True, exclude_unset=True).encode()
        headers = {"content-type": "application/json", "semel-protocol": "1"}
        request = urllib.request.Request(f"{semel_server.url}/api/v1{path}", text, headers)
        with urllib.request.urlopen(request, timeout=30) as got:
            assert got.headers["semel-protocol"] == ("1" if path.startswith("/workers") else None)
            return answer.model_validate_json(got.read())

    call("/workflow-runs", api.StartRun(workflow=WORKFLOW, idempotencyKey="g-1"), api.StartAnswer)
    call("/workers", api.Join(node=NODE, name="generated", leaseMs=10_000), api.Joined)
    claim = api.ClaimCall(node=NODE, workflows=[api.Served(workflow=WORKFLOW)], limit=1, waitMs=10_000, folded=True)
    claimed = call("/workers/claim", claim, api.FoldedClaims).runs[0].model_dump(mode="json")
    assert claimed["key"] == "g-1" and claimed["workflow"] == WORKFLOW

    entries = [
        {"stepStarted": {"step": "charge", "attempt": 1}},
        {"stepCompleted": {"step": "charge", "value": {"id": "ch_7"}}},
        {"completed": {"value": "charged"}},
    ]
    item = api.CommitItemVec.model_validate({"run": claimed["run"], "node": NODE, "expected": claimed["version"], "entries": entries})
    saved = call("/workers/commit", api.CommitCallVecEntry(commits=[item]), api.CommitAnswers).model_dump(mode="json")
    assert saved["answers"][0]["ok"]["version"] == claimed["version"] + len(entries)
    call("/workers/release", api.ReleaseCall(node=NODE), api.Leased)

    with urllib.request.urlopen(f"{semel_server.url}/api/v1/workflow-runs/{claimed['run']}", timeout=30) as got:
        found = json.load(got)
    assert found["status"] == "COMPLETED" and found["result"] == "charged"
