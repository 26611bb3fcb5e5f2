"""Runs what the documentation and the examples say."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from semel.testing import TestServer

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)```|<!-- (?P<act>kill) (?P<what>\w+) -->", re.DOTALL)
#: What differs from run to run.
VARIES = re.compile(r"(run|node)_[0-9a-z]{26}")


def play_page(page: str, folder: Path, listen: str) -> None:
    """Executes a page: commands in their order, those noted as ``background`` beside the others, and compares what they print."""
    (folder / "semel").symlink_to(ROOT)
    environment = {**os.environ, "SEMEL_URL": f"http://{listen}"}
    environment["PATH"] = f"{Path(os.environ['SEMEL_BIN']).parent}:{environment['PATH']}"
    beside: dict[str, subprocess.Popen[bytes]] = {}
    printed = ""
    try:
        text = (ROOT / "docs" / page).read_text().replace("\nsemel dev\n", f"\nexec semel dev --listen {listen}\n")
        for block in BLOCK.finditer(text):
            if block["act"]:
                os.killpg(beside[block["what"]].pid, signal.SIGKILL)
                beside.pop(block["what"]).wait()
            elif block["kind"] == "sh" and (block["note"] or "").startswith("background"):
                name = block["note"].split()[1]
                log = (folder / f"{name}.log").open("ab")
                beside[name] = subprocess.Popen(["bash", "-ec", block["text"]], cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
                wait_for(folder / f"{name}.log", block["note"].split(maxsplit=2)[2])
            elif block["kind"] == "sh" and block["note"] != "not here":
                done = subprocess.run(["bash", "-ec", block["text"]], check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
                assert done.returncode == 0, f"{block['text']}\n{done.stdout}{done.stderr}"
                printed = done.stdout
            elif block["kind"] == "text":
                assert VARIES.sub("…", printed) == VARIES.sub("…", block["text"])
    finally:
        for process in beside.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(file: Path, text: str) -> None:
    until = time.monotonic() + 60
    while text not in file.read_text():
        assert time.monotonic() < until, file.read_text()
        os.sched_yield()


def test_the_python_page(tmp_path: Path, free_port: int) -> None:
    play_page("python.md", tmp_path, f"127.0.0.1:{free_port}")


def test_the_order_example(tmp_path: Path, semel_server: TestServer) -> None:
    example = Path(__file__).parents[1] / "examples" / "order.py"
    environment: dict[str, Any] = {**os.environ, "SEMEL_URL": semel_server.url}
    done = subprocess.run([sys.executable, example], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result, verdict = done.stdout.splitlines()
    expected = {"charge": "1999 cents", "balance": 3001, "letter": "letter for 7", "rate": 0.94, "by": "Ada"}
    assert json.loads(result) == {**expected, "left": "ink shipped", "right": "pens shipped", "total": 300}
    assert verdict == "replayed"
