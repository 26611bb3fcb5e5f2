"""Workflows on a real server."""

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from tie import play_tie

from semel import AsyncSemel, Attempt, Cancelled, Ctx, Retry, RunFailed, Semel, SemelError, fatal, workflow
from semel._keys import Effect
from semel.testing import CrashCase, TestServer, crash_everywhere

#: The workspace of a server without tenants.
WORKSPACE = f"ws_{'0' * 26}"


@dataclass
class Order:
    id: str
    items: list[str]


def play(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


def test_steps_sleeps_scopes_and_values(semel_server: TestServer) -> None:
    calls: list[str] = []

    @workflow("py-order")
    async def order(ctx: Ctx, o: Order) -> dict[str, Any]:
        async def charge(a: Attempt) -> dict[str, str]:
            calls.append(a.key)
            return {"id": f"ch_{o.id}"}

        def pack(item: str, a: Attempt) -> None:
            calls.append(item)

        charged = await ctx.step("charge", charge)
        for item in o.items:
            await ctx.step("pack", partial(pack, item), key=item)
        await ctx.sleep("nap", 0.05)
        at = await ctx.now("t")

        async def ship(c: Ctx, what: str) -> str:
            return await c.step("ship", lambda a: what)

        both = await ctx.all(left=lambda c: ship(c, "L"), right=lambda c: ship(c, "R"))
        plain = await asyncio.gather(ctx.step("g1", lambda a: 1), ctx.step("g2", lambda a: 2))
        thread = await ctx.step("thread", in_a_thread)
        once = await ctx.run_once("rate", lambda: 0.94)
        return {**charged, **both, "once": once, "year": at.year > 2000, "plain": plain, "thread": thread}

    def in_a_thread(a: Attempt) -> bool:
        return threading.current_thread() is not threading.main_thread()

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([order]):
            run = await semel.start(order, Order("7", ["ink", "pens"]), key="py-7")
            assert run.verdict == "created"
            expected = {"id": "ch_7", "left": "L", "right": "R", "once": 0.94, "year": True, "plain": [1, 2], "thread": True}
            assert await run.result(20) == expected
            assert len(calls) == 3 and len(calls[0]) == 34
            again = await semel.start(order, Order("7", ["ink", "pens"]), key="py-7")
            assert (again.verdict, again.created, again.id) == ("replayed", False, run.id)
            with pytest.raises(SemelError) as refused:
                await semel.start(order, Order("8", []), key="py-7")
            assert refused.value.code == "KEY_REUSED" and "/input/id" in refused.value.pointers
        semel.close()

    play(go())
    blocking = Semel(semel_server.url)
    assert blocking.start(order, Order("7", ["ink", "pens"]), key="py-7").result(5)["id"] == "ch_7"
    assert any(run["key"] == "py-7" for run in blocking.list(workflow="py-order"))


async def delivered(semel: AsyncSemel, token: str, payload: Any) -> None:
    while await semel.hook(token) is None:
        await asyncio.sleep(0)
    await semel.deliver(token, payload, id="once")


def test_hooks_races_children_and_failures(semel_server: TestServer) -> None:
    @workflow("py-price")
    async def price(ctx: Ctx, sku: str) -> int:
        return len(sku) * 100

    @workflow("py-buy")
    async def buy(ctx: Ctx, id: str) -> dict[str, int]:
        async with ctx.hook(f"py-approve-{id}", dict) as approval:
            if await approval.conflict():
                raise fatal("a duplicate")
            who, said = await ctx.race("gate", answer=lambda c: approval.recv(), patience=lambda c: c.sleep("patience", "7d"))
        if who == "patience" or not said["ok"]:
            raise fatal("not approved", code="REFUSED")
        child = await ctx.child(price, "ink")
        return {"total": await child.result()}

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([buy, price]):
            run = await semel.start(buy, "7")
            await delivered(semel, "py-approve-7", {"ok": True})
            assert await run.result(20) == {"total": 300}
            refused = await semel.start(buy, "8")
            await delivered(semel, "py-approve-8", {"ok": False})
            with pytest.raises(RunFailed) as failed:
                await refused.result(20)
            assert failed.value.run["error"]["code"] == "REFUSED"
        semel.close()

    play(go())


def test_a_sleep_of_seven_days_is_over_when_the_clock_of_the_server_moves() -> None:
    @workflow("py-nap")
    async def nap(ctx: Ctx, _: None) -> str:
        await ctx.sleep("week", "7d")
        return "rested"

    async def go(server: TestServer) -> None:
        semel = AsyncSemel(server.url)
        async with semel.worker([nap]):
            run = await semel.start(nap, None)
            while (await run.get())["status"] != "WAITING":
                await asyncio.sleep(0)
            server.advance("7d")
            assert await run.result(20) == "rested"
        semel.close()

    with TestServer(clock="manual") as server:
        play(go(server))


def test_a_graceful_cancel_lets_the_code_clean_up(semel_server: TestServer) -> None:
    seen: list[str] = []

    @workflow("py-long")
    async def long(ctx: Ctx, _: None) -> None:
        try:
            await ctx.sleep("a while", "7d")
        except Cancelled:
            await ctx.cleanup().step("refund", lambda a: seen.append("refunded"))
            raise

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([long]):
            run = await semel.start(long, None)
            while (await run.get())["status"] != "WAITING":
                await asyncio.sleep(0)
            await run.cancel("enough", graceful=True)
            with pytest.raises(RunFailed) as failed:
                await run.result(20)
            assert failed.value.run["status"] == "CANCELLED" and seen == ["refunded"]
        semel.close()

    play(go())


def test_a_failed_attempt_is_tried_again_under_the_same_key(semel_server: TestServer) -> None:
    keys: list[str] = []

    @workflow("py-flaky")
    async def flaky(ctx: Ctx, _: None) -> int:
        def pay(a: Attempt) -> int:
            keys.append(a.key)
            if a.number < 3:
                raise OSError("busy")
            return a.number

        return await ctx.step("pay", pay, retry=Retry(initial=0.03, jitter=0))

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([flaky]):
            assert await (await semel.start(flaky, None)).result(20) == 3
        assert len(set(keys)) == 1
        semel.close()

    play(go())


def test_every_boundary_of_steps_races_hooks_children_and_once(semel_server: TestServer) -> None:
    calls: dict[str, int] = {}
    known: set[str] = set()

    def effect(a: Attempt) -> str:
        calls[a.key] = calls.get(a.key, 0) + 1
        return a.key

    @workflow("py-part")
    async def part(ctx: Ctx, n: int) -> int:
        await ctx.step("part", effect)
        return n * 2

    @workflow("py-whole")
    async def whole(ctx: Ctx, name: str) -> dict[str, Any]:
        first = await ctx.step("first", effect)
        letter = await ctx.step("letter", effect, reconcile=lambda a: a.key if a.key in calls else None)
        both = await ctx.all(left=lambda c: c.step("go", effect), right=lambda c: c.step("go", effect))
        hook = ctx.hook(f"py-hook-{name}", int)
        gate = await ctx.race("gate", answer=lambda c: hook.recv(), patience=lambda c: c.sleep("patience", "1h"))
        twice = await (await ctx.child(part, 21)).result()
        once = await ctx.run_once("rate", lambda: 7)
        shared = await ctx.run_once(f"py-shared-{name}", lambda: 8, scope="workspace")
        await ctx.sleep("nap", 0.005)
        patched = await ctx.patched("new")
        hook.close()
        return {"keys": len({first, letter, *both.values()}), "gate": gate, "twice": twice, "once": once, "shared": shared, "patched": patched}

    def check(run: dict[str, Any], boundary: str) -> None:
        assert run["status"] == "COMPLETED", f"{boundary}: {run}"
        expected = {"keys": 4, "gate": ["answer", 5], "twice": 42, "once": 7, "shared": 8, "patched": True}
        assert run["result"] == expected, boundary
        child = next(child["run"] for child in run["children"] if child["path"] == "py-part")
        places = [(run["id"], path) for path in ("first", "letter", "left/go", "right/go")] + [(child, "part")]
        known.update(Effect(WORKSPACE, lineage, path, 1, "").key() for lineage, path in places)

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        case = CrashCase(
            semel,
            worker=lambda _: semel.worker([whole, part], lease=5),
            start=lambda name: semel.start(whole, name, key=name),
            during=lambda name, _: delivered(semel, f"py-hook-{name}", 5),
            check=check,
        )
        assert await crash_everywhere(case) > 30
        assert set(calls) == known
        # A crash between a body and its record repeats the body once, under the same key.
        assert all(count <= 2 for count in calls.values())
        semel.close()

    play(go())


def test_a_race_whose_branches_end_at_the_same_moment_is_decided_once() -> None:
    async def go() -> None:
        assert await play_tie() > 8

    play(go())


def test_a_workflow_that_no_worker_executes_is_not_taken_for_one_that_survives(semel_server: TestServer) -> None:
    @workflow("py-here")
    async def here(ctx: Ctx, _: None) -> None: ...

    @workflow("py-elsewhere")
    async def elsewhere(ctx: Ctx, _: None) -> None: ...

    async def cancel(_: str, run: Any) -> None:
        await run.cancel("no worker has it")

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        case = CrashCase(
            semel,
            worker=lambda _: semel.worker([here]),
            start=lambda name: semel.start(elsewhere, None, key=name),
            during=cancel,
            check=lambda run, boundary: None,
        )
        with pytest.raises(RuntimeError, match="no boundary was reached"):
            await crash_everywhere(case)
        semel.close()

    play(go())


def test_a_step_at_most_once_is_in_doubt_and_never_repeated(semel_server: TestServer) -> None:
    calls: dict[str, int] = {}
    doubts = 0

    @workflow("py-careful")
    async def careful(ctx: Ctx, name: str) -> int:
        def charge(a: Attempt) -> int:
            calls[name] = calls.get(name, 0) + 1
            return 1

        return await ctx.step("charge", charge, at_most_once=True)

    async def settled(name: str, run: Any) -> None:
        nonlocal doubts
        while True:
            status = (await run.get())["status"]
            if status == "COMPLETED":
                return
            if status == "PAUSED":
                doubts += 1
                return await run.resolve("charge", happened=1)  # type: ignore[no-any-return]
            await asyncio.sleep(0)

    def check(run: dict[str, Any], boundary: str) -> None:
        assert run["status"] == "COMPLETED", boundary

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        case = CrashCase(
            semel,
            worker=lambda _: semel.worker([careful], lease=5),
            start=lambda name: semel.start(careful, name, key=name),
            during=settled,
            check=check,
        )
        assert await crash_everywhere(case) > 4
        assert doubts > 0 and all(count <= 1 for count in calls.values())
        semel.close()

    play(go())


def test_code_that_does_not_fit_pauses_the_run_and_begins_nothing(semel_server: TestServer) -> None:
    began: list[str] = []

    @workflow("py-changed")
    async def before(ctx: Ctx, _: None) -> None:
        await ctx.step("a", lambda a: 1)
        await ctx.hook("py-changed").recv()

    @workflow("py-changed")
    async def after(ctx: Ctx, _: None) -> None:
        await ctx.step("b", lambda a: began.append("b"))
        await ctx.hook("py-changed").recv()

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([before]):
            run = await semel.start(before, None)
            while (await run.get())["status"] != "WAITING":
                await asyncio.sleep(0)
        async with semel.worker([after]):
            await semel.deliver("py-changed", 1)
            while (view := await run.get())["status"] != "PAUSED":
                await asyncio.sleep(0)
            assert "`a` is in the ledger and the code asks for" in view["pauseReason"]
        assert began == []
        await run.cancel("a test")
        semel.close()

    play(go())
