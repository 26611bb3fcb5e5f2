"""A worker process that is killed: its runs are taken over when its lease ends."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from test_workflows import WORKSPACE, play

from semel import AsyncSemel, Attempt, Ctx, workflow
from semel._keys import Effect
from semel.testing import TestServer


async def killed_inside_the_body(server: TestServer) -> str:
    """Lets a worker process begin the body of a step, and kills it there. Gives the effect key that the body has got."""
    environment = {**os.environ, "SEMEL_URL": server.url}
    program = str(Path(__file__).with_name("victim.py"))
    worker = await asyncio.create_subprocess_exec(sys.executable, program, env=environment, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    key = await worker.stdout.readline()
    worker.kill()
    await worker.wait()
    return key.decode().strip()


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_step_of_a_killed_process_is_settled_when_the_lease_has_ended(at_most_once: bool) -> None:
    calls: list[str] = []

    @workflow("victim")
    async def same(ctx: Ctx, _: bool) -> str:
        async def charge(a: Attempt) -> str:
            calls.append(a.key)
            return "charged"

        return await ctx.step("charge", charge, at_most_once=at_most_once)

    async def go(server: TestServer) -> None:
        semel = AsyncSemel(server.url)
        run = await semel.start(same, at_most_once)
        key = await killed_inside_the_body(server)
        assert key == Effect(WORKSPACE, run.id, "charge", 1, "").key()
        # The dead process has released nothing: until its lease ends, the run is its own.
        async with semel.worker([same], lease="1h"):
            server.advance("9s")
            assert ((await run.get())["status"], calls) == ("RUNNING", [])
        server.advance("1m")
        async with semel.worker([same], lease="1h"):
            if at_most_once:
                while (await run.get())["status"] != "PAUSED":
                    await asyncio.sleep(0)
                await run.resolve("charge", happened="charged")
            assert await run.result(30) == "charged"
        assert calls == ([] if at_most_once else [key])
        semel.close()

    with TestServer(clock="manual") as server:
        play(go(server))
