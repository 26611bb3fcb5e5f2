"""Programs of the language of the Rust tests, played by ``programs.py``."""

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from semel import Semel
from semel.testing import TestServer

HERE = Path(__file__).parent


def test_programs_end_as_they_should(semel_server: TestServer) -> None:
    text = (HERE.parents[1] / "programs.jsonl").read_text()
    programs: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    environment = {**os.environ, "SEMEL_URL": semel_server.url}
    player = subprocess.Popen([sys.executable, HERE / "programs.py"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert player.stdin is not None and player.stdout is not None
    player.stdin.write(text)
    player.stdin.close()
    semel = Semel(semel_server.url)
    for token, payloads in ((token, all) for program in programs for token, all in program.get("deliver", {}).items()):
        while semel.hook(token) is None:
            os.sched_yield()
        for payload in payloads:
            semel.deliver(token, payload, id=str(payload))
    keys: defaultdict[str, set[str]] = defaultdict(set)
    ends: dict[str, dict[str, Any]] = {}
    for line in player.stdout:
        told = json.loads(line)
        if "applied" in told:
            keys[told["applied"]].add(told["key"])
        if "ended" in told:
            ends[told["ended"]] = told
    assert player.wait(60) == 0
    expected: Counter[str] = Counter()
    for program in programs:
        ended = ends[program["key"]]
        assert (ended["status"], ended.get("result")) == (program.get("status", "COMPLETED"), program.get("result")), program["key"]
        expected.update(program["applied"])
    assert {name: len(all) for name, all in keys.items()} == expected
