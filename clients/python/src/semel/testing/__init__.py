"""For tests of workflows: a server of one's own, and a crash at every boundary."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from .._client import AsyncRun, AsyncSemel, RunFailed
from .._duration import Duration, millis
from .._errors import SemelError
from .._server import binary
from .._worker import Worker

_URL = re.compile(rb"http://127\.0\.0\.1:\d+")


class TestServer:
    """A Semel server in a temporary folder: the binary of ``SEMEL_BIN``, of the package semel-server, or in the path. With a manual
    clock, ``advance`` moves its time."""

    __test__ = False

    def __init__(self, clock: Literal["machine", "manual"] = "machine") -> None:
        self._folder = tempfile.mkdtemp(prefix="semel-")
        command = [binary(), "dev", "--listen", "127.0.0.1:0", "--folder", self._folder, "--clock", clock]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._process.stdout is not None
        said = b""
        while (found := _URL.search(said)) is None:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"the server has ended: {said.decode(errors='replace')}")
            said += line
        #: Address of the server.
        self.url = found[0].decode()

    def advance(self, by: Duration) -> None:
        """Moves the time of a server with a manual clock forward: a sleep of seven days is over after ``advance("7d")``."""
        body = json.dumps({"advanceMs": millis(by)}).encode()
        request = urllib.request.Request(f"{self.url}/api/v1/dev/clock", body, {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()

    def stop(self) -> None:
        """Ends the server, as a crash would."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass
class CrashCase:
    """A workflow that is to survive a crash at any moment."""

    semel: AsyncSemel
    #: Makes a worker.
    worker: Callable[[], Worker]
    #: Starts the run. The text differs from play to play: use it in keys and tokens.
    start: Callable[[str], Awaitable[AsyncRun[Any]]]
    #: Checks the end of a play; the text says where the worker crashed.
    check: Callable[[dict[str, Any], str], None]
    #: What happens from outside meanwhile, such as deliveries.
    during: Callable[[str, AsyncRun[Any]], Awaitable[None]] | None = None


async def crash_everywhere(case: CrashCase) -> int:
    """Plays a workflow once to count its boundaries (before and after each commit, at both ends of each body), then once for each of
    them with a worker that crashes there and another one that goes on. Gives the number of boundaries.
    """
    boundaries = 0

    def count() -> bool:
        nonlocal boundaries
        boundaries += 1
        return False

    await _play(case, count)
    for at in range(1, boundaries + 1):
        passed = 0

        def crashes(at: int = at) -> bool:
            nonlocal passed
            passed += 1
            return passed == at

        await _play(case, crashes)
    return boundaries


async def _play(case: CrashCase, crashes: Callable[[], bool]) -> None:
    import asyncio

    play, where, over = uuid.uuid4().hex, "nowhere", False
    first, second = case.worker(), None

    async def follow() -> Worker:
        await first.kill()
        return await case.worker().start()

    async def moment(_: str, name: str) -> None:
        nonlocal where, second
        if where == "nowhere" and not over and crashes():
            where = name
            second = asyncio.create_task(follow())
            await asyncio.Event().wait()

    first.on_moment = moment
    run = await case.start(play)
    await first.start()
    during = None if case.during is None else asyncio.create_task(_awaited(case.during(play, run)))
    try:
        await run.result(60)
    except (RunFailed, SemelError):
        # The check sees how the run ended.
        pass
    if during is not None:
        await during
    # The last commit may be answered after the run has ended.
    over = True
    await (first if second is None else await second).kill()
    case.check(await run.get(), where)


async def _awaited(what: Awaitable[None]) -> None:
    await what
