"""A race whose branches end at the same moment, so that both are recorded: only the recorded winner makes a replay decide alike."""

import asyncio
from typing import Any

from semel import AsyncSemel, Attempt, Ctx, workflow
from semel.testing import CrashCase, TestServer, crash_everywhere


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def play_tie() -> int:
    """Plays it with a crash at every boundary, and gives their number. What is wrong is raised."""
    after: dict[str, set[str]] = {}
    gate = asyncio.Event()

    @workflow("py-tie")
    async def tie(ctx: Ctx, _: None) -> str:
        async def wait(a: Attempt) -> None:
            await gate.wait()

        async def enter(a: Attempt) -> None:
            gate.set()

        async def one(c: Ctx) -> None:
            await c.step("a", wait)
            await ticks(10)

        async def other(c: Ctx) -> None:
            # It begins late in a replay too, where it would lose: the body of `a` has ended long before.
            await ticks(100)
            await c.step("b", enter)

        winner, _value = await ctx.race("tie", a=one, b=other)

        async def note(a: Attempt) -> None:
            after.setdefault(ctx.key, set()).add(winner)

        await ctx.step(f"after {winner}", note)
        await ctx.step("end", lambda a: None, inline=True)
        return winner

    async def watch(run: Any) -> None:
        """A run that is paused does not fit its code; it would never end."""
        while (view := await run.get()).get("endedAt") is None:
            if view["status"] == "PAUSED":
                await run.cancel("it has decided otherwise in a replay")

    def check(run: dict[str, Any], boundary: str) -> None:
        went = after.get(run["key"])
        told = f"a crash {boundary}: the race is {run['status']} with {run.get('result')}, and went on after {went}"
        assert run["status"] == "COMPLETED" and went == {run["result"]}, told

    with await asyncio.to_thread(TestServer) as server:
        semel = AsyncSemel(server.url)

        def worker(_: str) -> Any:
            gate.clear()
            return semel.worker([tie], lease=30)

        try:
            case = CrashCase(
                semel,
                worker=worker,
                start=lambda play: semel.start(tie, None, key=play),
                during=lambda _, run: watch(run),
                check=check,
            )
            return await crash_everywhere(case)
        finally:
            semel.close()
