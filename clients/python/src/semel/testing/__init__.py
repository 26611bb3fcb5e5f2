"""For tests of workflows: a server of one's own, and a crash at every boundary."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, Self, TypeVar

from .._client import AsyncRun, AsyncSemel, RunFailed
from .._duration import Duration, millis
from .._errors import SemelError
from .._server import binary
from .._worker import Worker

T = TypeVar("T")

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


class Effects(Generic[T]):
    """Effects by their keys, as a provider has them that recognises keys: a repeated call gets the first answer."""

    def __init__(self) -> None:
        self._answers: dict[str, T] = {}
        #: Number of calls under each key.
        self.calls: dict[str, int] = {}

    def take(self, key: str, make: Callable[[], T]) -> T:
        """A call of the provider, from a body: ``lambda a: charges.take(a.key, lambda: "ch_1")``."""
        if key not in self._answers:
            self._answers[key] = make()
        self.calls[key] = self.calls.get(key, 0) + 1
        return self._answers[key]

    @property
    def count(self) -> int:
        """Number of effects: calls under one key are one."""
        return len(self._answers)


def effects() -> Effects[Any]:
    """Counts effects by their keys."""
    return Effects()


@dataclass
class CrashCase:
    """A workflow that is to survive a crash at any moment."""

    semel: AsyncSemel
    #: Makes a worker. It is called for the first worker of a play, and for the one that takes over.
    worker: Callable[[str], Worker]
    #: Starts the run. The text differs from play to play: use it in keys and tokens.
    start: Callable[[str], Awaitable[AsyncRun[Any]]]
    #: Checks the end of a play. The text says where the worker crashed; it is ``nowhere`` in a play without a crash.
    check: Callable[[dict[str, Any], str], Awaitable[None] | None]
    #: What happens from outside meanwhile, such as deliveries.
    during: Callable[[str, AsyncRun[Any]], Awaitable[None]] | None = None


#: A boundary that so many plays in a row do not reach is beyond the last one: how many there are may differ from play to play.
TRIES = 2


async def crash_everywhere(case: CrashCase) -> int:
    """Plays a workflow once without a crash, then once for each of its boundaries (before and after each commit, at both ends of each
    body) with a worker that crashes there and another one that goes on, until a boundary is not reached any more. Gives the number of
    boundaries at which a worker has crashed; it is an error if there is none.
    """
    await _play(case, None)
    at = 1
    while await _crashed(case, at):
        at += 1
    if at == 1:
        raise RuntimeError("no boundary was reached: does the worker execute the workflow that is started?")
    return at - 1


async def _crashed(case: CrashCase, at: int) -> bool:
    for _ in range(TRIES):
        if await _play(case, at):
            return True
    return False


async def _play(case: CrashCase, at: int | None) -> bool:
    """Plays once; true if the worker has crashed. Without a number it does not."""
    play = f"{'whole' if at is None else f'crash-{at}'}-{uuid.uuid4().hex}"
    where, main, over = "nowhere", "", False
    passed = unanswered = 0
    first, second = case.worker(play), None

    async def follow() -> Worker:
        await first.kill()
        return await case.worker(play).start()

    async def moment(run: str, name: str) -> None:
        nonlocal where, second, passed, unanswered
        if run == main and name in ("before a commit", "after a commit"):
            unanswered += 1 if name == "before a commit" else -1
        if where != "nowhere" or over:
            return
        passed += 1
        if passed == at:
            where = name
            second = asyncio.create_task(follow())
            await asyncio.Event().wait()

    first.on_moment = moment
    run = await case.start(play)
    main = run.id
    await first.start()
    during = None if case.during is None else asyncio.create_task(_awaited(case.during(play, run)))
    ended = True
    try:
        await run.result(60)
    except RunFailed:
        # The check sees how the run ended.
        pass
    except SemelError:
        ended = False
    if during is not None:
        await during
    # The last commit may be answered after the run has ended.
    while ended and where == "nowhere" and unanswered > 0:
        await asyncio.sleep(0)
    over = True
    await (first if second is None else await second).kill()
    checked = case.check(await run.get(), where)
    if checked is not None:
        await checked
    return where != "nowhere"


async def _awaited(what: Awaitable[None]) -> None:
    await what
