"""What else a workflow and a client can ask for."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pydantic
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

from semel import AsyncSemel, Attempt, Ctx, Retry, RunFailed, Semel, SemelError, fatal, retry_after, workflow
from semel.testing import CrashCase, TestServer, crash_everywhere, effects
from semel.tx import SqlAlchemy, postgres_table, sqlite_table

LIMIT = 20


def play(url: str, test: Callable[[AsyncSemel], Coroutine[Any, Any, None]]) -> None:
    async def go() -> None:
        semel = AsyncSemel(url)
        await test(semel)
        semel.close()

    asyncio.run(asyncio.wait_for(go(), 120))


async def status(run: Any, wanted: str) -> dict[str, Any]:
    while True:
        view: dict[str, Any] = await run.get()
        if view["status"] == wanted:
            return view
        await asyncio.sleep(0)


async def delivered(semel: AsyncSemel, token: str, payload: Any) -> None:
    while await semel.hook(token) is None:
        await asyncio.sleep(0)
    await semel.deliver(token, payload, id="once")


def test_recorded_values_are_the_same_in_every_replay(semel_server: TestServer) -> None:
    seen: list[list[Any]] = []

    @workflow("py-values")
    async def values(ctx: Ctx, _: None) -> Any:
        every = [await ctx.random("dice"), str(await ctx.uuid("id")), (await ctx.now("t")).isoformat(), await ctx.record("counted", len(seen))]
        seen.append(every)
        await ctx.hook("py-values").recv()
        return every

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([values]):
            run = await semel.start(values, None)
            await status(run, "WAITING")
            await delivered(semel, "py-values", None)
            assert await run.result(LIMIT) == seen[0]
        assert len(seen) == 2 and seen[0] == seen[1], "it rested, and was played again"
        assert 0 <= seen[0][0] < 1

    play(semel_server.url, test)


def test_a_time_is_waited_for_and_one_that_has_passed_is_not(semel_server: TestServer) -> None:
    @workflow("py-until")
    async def until(ctx: Ctx, _: None) -> float:
        start = await ctx.now("from")
        await ctx.sleep_until("then", start + timedelta(milliseconds=60))
        await ctx.sleep_until("long ago", datetime(1970, 1, 1, tzinfo=UTC))
        return (await ctx.now("to") - start).total_seconds()

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([until]):
            took = await (await semel.start(until, None)).result(LIMIT)
            assert 0.06 <= took < 5

    play(semel_server.url, test)


def test_a_step_that_is_not_needed_is_recorded_as_skipped_and_stays_so(semel_server: TestServer) -> None:
    plays = 0

    @workflow("py-gift")
    async def gift(ctx: Ctx, _: None) -> str:
        nonlocal plays
        plays += 1
        await ctx.skip("gift", "not asked for")
        await ctx.hook("py-gift").recv()
        await ctx.skip("card", "neither")
        return "packed"

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([gift]):
            run = await semel.start(gift, None)
            await status(run, "WAITING")
            await delivered(semel, "py-gift", None)
            assert (await run.result(LIMIT), plays) == ("packed", 2)

    play(semel_server.url, test)


def test_an_attempt_that_takes_too_long_is_cancelled_and_fails_each_time(semel_server: TestServer) -> None:
    cancelled: list[int] = []

    @workflow("py-slow")
    async def slow(ctx: Ctx, _: None) -> None:
        async def body(a: Attempt) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancelled.append(a.number)
                raise

        await ctx.step("slow", body, timeout=0.03, retry=Retry(2, initial=0.01, jitter=0))

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([slow]):
            with pytest.raises(RunFailed) as failed:
                await (await semel.start(slow, None)).result(LIMIT)
            assert failed.value.run["error"]["kind"] == "timeout"
        assert cancelled == [1, 2]

    play(semel_server.url, test)


def test_the_pause_that_a_body_asks_for_counts_before_that_of_its_policy(semel_server: TestServer) -> None:
    tried: list[float] = []

    @workflow("py-busy-provider")
    async def busy(ctx: Ctx, _: None) -> int:
        async def body(a: Attempt) -> int:
            tried.append(time.monotonic())
            if len(tried) == 1:
                raise retry_after("busy", 0.06, code="SLOW_DOWN")
            return len(tried)

        return await ctx.step("call", body, retry=Retry(initial="1h"))

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([busy]):
            assert await (await semel.start(busy, None)).result(LIMIT) == 2
        assert tried[1] - tried[0] >= 0.059

    play(semel_server.url, test)


def test_ctx_inside_of_a_body_pauses_the_run_and_run_once_is_allowed_there(semel_server: TestServer) -> None:
    @workflow("py-nested")
    async def nested(ctx: Ctx, _: None) -> None:
        async def outer(a: Attempt) -> None:
            await ctx.step("inner", lambda a: None)

        await ctx.step("outer", outer)

    @workflow("py-allowed")
    async def allowed(ctx: Ctx, _: None) -> int:
        async def outer(a: Attempt) -> int:
            return await ctx.run_once("token", lambda: 5)

        return await ctx.step("outer", outer)

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([nested, allowed]):
            paused = await status(await semel.start(nested, None), "PAUSED")
            assert "`inner` is asked for inside of the body" in paused["pauseReason"]
            assert await (await semel.start(allowed, None)).result(LIMIT) == 5

    play(semel_server.url, test)


def test_runs_are_listed_newest_first_by_workflow_status_key_and_time(semel_server: TestServer) -> None:
    @workflow("py-listed")
    async def listed(ctx: Ctx, n: int) -> int:
        return n

    async def test(semel: AsyncSemel) -> None:
        async def ids(**options: Any) -> list[str]:
            return [run["id"] async for run in semel.list(workflow="py-listed", **options)]

        async with semel.worker([listed]):
            started = [await semel.start(listed, n, key=f"py-listed-{n}") for n in (1, 2, 3)]
            for run in started:
                await run.result(LIMIT)
        one, two, three = (run.id for run in started)
        assert await ids() == await ids(status="COMPLETED") == [three, two, one]
        assert await ids(status="FAILED") == []
        assert await ids(key="py-listed-2") == [two]
        assert await ids(since=datetime.now(UTC) + timedelta(hours=1)) == []
        found = await semel.key("py-listed-1")
        assert found is not None and found["run"]["id"] == one

    play(semel_server.url, test)


def test_a_paused_run_takes_a_delivery_and_goes_on_when_it_is_resumed(semel_server: TestServer) -> None:
    @workflow("py-pausable")
    async def gate(ctx: Ctx, _: None) -> Any:
        return await ctx.hook("py-pausable").recv()

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([gate]):
            run = await semel.start(gate, None)
            await status(run, "WAITING")
            assert (await run.pause())["status"] == "PAUSED"
            await delivered(semel, "py-pausable", 7)
            assert (await run.get())["status"] == "PAUSED"
            assert (await run.resume())["status"] != "PAUSED"
            assert await run.result(LIMIT) == 7

    play(semel_server.url, test)


class Line(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(gt=0)


class Basket(pydantic.BaseModel):
    lines: list[Line]


def test_a_pydantic_model_checks_and_converts_inputs_and_payloads(semel_server: TestServer) -> None:
    @workflow("py-basket")
    async def basket(ctx: Ctx, given: Basket) -> int:
        more = await ctx.hook(f"py-more-{ctx.key}", Line).recv()
        return sum(line.count for line in [*given.lines, more])

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([basket]):
            run = await semel.start(basket, Basket(lines=[Line(sku="ink", count=2)]), key="good")
            await delivered(semel, "py-more-good", {"sku": "pens", "count": 3})
            assert await run.result(LIMIT) == 5
            wrong: Any = await semel.start("py-basket", {"lines": [{"sku": "ink", "count": 0}]})
            with pytest.raises(RunFailed) as failed:
                await wrong.result(LIMIT)
            assert (failed.value.run["error"]["code"], failed.value.run["error"]["kind"]) == ("INPUT_INVALID", "fatal")
            tipped = await semel.start(basket, Basket(lines=[]), key="bad")
            await delivered(semel, "py-more-bad", {"sku": "pens", "count": "many"})
            with pytest.raises(RunFailed, match="count"):
                await tipped.result(LIMIT)

    play(semel_server.url, test)


@contextlib.asynccontextmanager
async def blocking_sessions(url: str, table: str, *, is_postgres: bool) -> AsyncIterator[tuple[sessionmaker[Session], SqlAlchemy]]:
    engine = create_engine(url)
    sessions = sessionmaker(engine)
    with sessions() as session:
        session.execute(text((postgres_table if is_postgres else sqlite_table)(table)))
        session.execute(text("CREATE TABLE IF NOT EXISTS py_blocking_account (owner TEXT PRIMARY KEY, cents BIGINT NOT NULL)"))
        session.commit()
    yield sessions, SqlAlchemy(sessions, table=table, postgres=is_postgres)
    engine.dispose()


@pytest.mark.parametrize("database", ["sqlite", "postgresql+psycopg"])
def test_a_blocking_sqlalchemy_session_is_one_commit_with_the_outcome(semel_server: TestServer, tmp_path: Path, database: str) -> None:
    is_postgres = database != "sqlite"
    url = os.environ["SEMEL_TEST_POSTGRES"].replace("postgres://", f"{database}://") if is_postgres else f"sqlite:///{tmp_path}/shop.db"

    async def test(semel: AsyncSemel) -> None:
        async with blocking_sessions(url, "py_blocking_fence", is_postgres=is_postgres) as (sessions, source):

            def ask(statement: str, **values: Any) -> Any:
                with sessions() as session:
                    result: Any = session.execute(text(statement), values)
                    row = result.fetchone() if result.returns_rows else None
                    session.commit()
                    return row

            @workflow(f"py-blocking-{is_postgres}")
            async def pay(ctx: Ctx, owner: str) -> int:
                async def body(db: Session, attempt: Attempt) -> int:
                    debit = "UPDATE py_blocking_account SET cents = cents - 1 WHERE owner = :owner AND cents > 0 RETURNING cents"
                    row = db.execute(text(debit), {"owner": owner}).fetchone()
                    if row is None:
                        raise fatal("not enough money", code="POOR")
                    return int(row[0])

                return int(await ctx.tx("debit", source, body))

            async def start(name: str) -> Any:
                ask("INSERT INTO py_blocking_account VALUES (:owner, 100)", owner=name)
                return await semel.start(pay, name, key=name)

            def check(run: dict[str, Any], boundary: str) -> None:
                assert (run["status"], run["result"]) == ("COMPLETED", 99), f"{boundary}: {run}"
                assert ask("SELECT cents FROM py_blocking_account WHERE owner = :owner", owner=run["key"])[0] == 99, boundary

            case = CrashCase(semel, worker=lambda _: semel.worker([pay], lease=5), start=start, check=check)
            assert await crash_everywhere(case) >= 3
            ask("INSERT INTO py_blocking_account VALUES (:owner, 0)", owner=f"poor-{database}")
            async with semel.worker([pay]):
                with pytest.raises(RunFailed) as failed:
                    await (await semel.start(pay, f"poor-{database}")).result(LIMIT)
                assert failed.value.run["error"]["code"] == "POOR"

    play(semel_server.url, test)


def test_a_commit_tells_of_a_delivery_long_before_the_next_heartbeat(semel_server: TestServer) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    @workflow("py-heard")
    async def heard(ctx: Ctx, _: None) -> Any:
        hook = ctx.hook("py-heard", int)

        async def long(a: Attempt) -> None:
            await asyncio.get_running_loop().create_future()

        async def enter(a: Attempt) -> None:
            entered.set()
            await leave.wait()

        async def short(c: Ctx) -> None:
            await c.step("short", enter)
            await c.sleep("then", "1h")

        # A body that runs keeps the run in this worker, which so looks at no inbox by itself.
        return await ctx.race("gate", long=lambda c: c.step("long", long), short=short, answer=lambda c: hook.recv())

    async def test(semel: AsyncSemel) -> None:
        # The next heartbeat is twenty minutes away.
        async with semel.worker([heard], lease="1h"):
            run = await semel.start(heard, None)
            await entered.wait()
            await delivered(semel, "py-heard", 5)
            leave.set()
            assert await run.result(LIMIT) == ["answer", 5]

    play(semel_server.url, test)


def test_a_client_restarts_forks_frees_keys_and_starts_many_runs(semel_server: TestServer) -> None:
    calls: list[str] = []
    broken = [True]

    @workflow("py-verbs")
    async def verbs(ctx: Ctx, n: int) -> int:
        await ctx.step("charge", lambda a: calls.append(a.key))

        def check(a: Attempt) -> None:
            if broken[0]:
                raise fatal("not now")

        await ctx.step("check", check)
        return n

    async def test(semel: AsyncSemel) -> None:
        async with semel.worker([verbs]):
            run = await semel.start(verbs, 7, key="py-verbs")
            with pytest.raises(RunFailed):
                await run.result(LIMIT)
            broken[0] = False
            assert (await run.restart(from_="beginning"))["id"] == run.id
            assert await run.result(LIMIT) == 7
            fork = await run.fork(at=1, key="py-verbs-again")
            assert fork.id != run.id and await fork.result(LIMIT) == 7
            assert len(calls) == 3 and len(set(calls)) == 1, "the beginning, the restart from there and the fork, under one key"
            assert (await semel.release_key("py-verbs"))["id"] == run.id
            assert await semel.key("py-verbs") is None
            starts: list[dict[str, Any]] = [{"input": 1, "key": "py-verbs-again"}, {"input": 2, "key": "py-verbs"}, {"input": 3}]
            other, second, third = await semel.start_many(verbs, starts, id="py-many")
            assert isinstance(other, SemelError) and (other.code, other.owner) == ("KEY_REUSED", fork.id)
            assert not isinstance(second, SemelError) and not isinstance(third, SemelError)
            assert [await second.result(LIMIT), await third.result(LIMIT)] == [2, 3]
            _, _, again = await asyncio.to_thread(lambda: Semel(semel_server.url).start_many(verbs, starts, id="py-many"))
            assert not isinstance(again, SemelError) and (again.id, again.verdict) == (third.id, "replayed")

    play(semel_server.url, test)


def test_effects_are_counted_by_their_keys_wherever_the_worker_crashes(semel_server: TestServer) -> None:
    charges, repeated = effects(), 0

    @workflow("py-counted")
    async def counted(ctx: Ctx, _: None) -> Any:
        first = await ctx.step("charge", lambda a: charges.take(a.key, lambda: f"ch_{charges.count}"), inline=True)
        return [first, await ctx.step("again", lambda a: charges.take(a.key, lambda: f"ch_{charges.count}"), inline=True)]

    async def test(semel: AsyncSemel) -> None:
        def check(run: dict[str, Any], boundary: str) -> None:
            nonlocal repeated
            count = len(charges.calls)
            assert run["result"] == [f"ch_{count - 2}", f"ch_{count - 1}"] and charges.count == count, boundary
            repeated = sum(charges.calls.values()) - count

        case = CrashCase(semel, lambda _: semel.worker([counted], lease=5), lambda play: semel.start(counted, None, key=play), check)
        assert await crash_everywhere(case) >= 6
        assert repeated > 0, "a crash after a body repeats its call"

    play(semel_server.url, test)
