"""Faults that a worker has to live with, on a real server."""

import asyncio
import logging
import signal
import threading
from typing import Any

import pytest
from test_workflows import delivered, play

from semel import AsyncSemel, Attempt, Cancelled, Ctx, QueueTask, Retry, RunFailed, fatal, workflow
from semel._http import Address, Answer, AsyncHttp, Unreached
from semel.testing import TestServer


async def status(run: Any, wanted: str) -> dict[str, Any]:
    while (view := await run.get())["status"] != wanted:
        await asyncio.sleep(0)
    return dict(view)


def test_what_cannot_be_recorded_fails_its_own_run_and_no_other(semel_server: TestServer) -> None:
    once = Retry(max_attempts=1)

    @workflow("py-bad")
    async def bad(ctx: Ctx, what: str) -> Any:
        match what:
            case "data":
                raise fatal("it has data", data=object())
            case "half":
                raise fatal("half \ud83d of a character")
            case "step":
                return await ctx.step("half", lambda a: "half \ud83d", retry=once)
            case "keys":
                return {(1, 2): 3}
            case "time":
                return await ctx.step("time", timed_out, retry=once)
            case "cancel":
                raise asyncio.CancelledError
        return await ctx.step("whole", lambda a: 2**60 + 1)

    def timed_out(a: Attempt) -> None:
        raise TimeoutError("the bank was slow")

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([bad]):
            told = {"data": "its data cannot be kept", "half": r"half \? of", "step": "not JSON", "keys": "not JSON", "time": "the bank was slow", "cancel": "own task"}
            runs = {what: await semel.start(bad, what) for what in [*told, "good"]}
            assert await runs["good"].result(20) == 2**60 + 1
            for what, why in told.items():
                with pytest.raises(RunFailed, match=why):
                    await runs[what].result(20)
        semel.close()

    play(go())


def test_values_of_more_than_a_request_holds_are_sent_in_parts(semel_server: TestServer) -> None:
    text = "x" * 1_900_000

    @workflow("py-large")
    async def large(ctx: Ctx, _: None) -> int:
        parts = await asyncio.gather(*(ctx.step("part", lambda a: text, key=i, inline=True) for i in range(12)))
        await ctx.hook("py-large").recv()
        return sum(len(part) for part in parts)

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([large]):
            run = await semel.start(large, None)
            await delivered(semel, "py-large", 1)
            assert await run.result(60) == 12 * 1_900_000
        semel.close()

    play(go())


def test_a_worker_that_stops_lets_a_body_end_and_begins_no_other(semel_server: TestServer, caplog: pytest.LogCaptureFixture) -> None:
    began: list[str] = []

    async def go() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()

        @workflow("py-two")
        async def two(ctx: Ctx, _: None) -> None:
            async def one(a: Attempt) -> None:
                began.append("one")
                entered.set()
                await leave.wait()

            await ctx.step("one", one)
            await ctx.step("two", lambda a: began.append("two"))

        semel = AsyncSemel(semel_server.url)
        first = await semel.worker([two], slots=1).start()
        run = await semel.start(two, None)
        await entered.wait()
        stopped = asyncio.create_task(first.stop())
        await asyncio.sleep(0)
        leave.set()
        await stopped
        assert began == ["one"]
        async with semel.worker([two]):
            await run.result(20)
        assert began == ["one", "two"]
        semel.close()

    with caplog.at_level(logging.WARNING, "semel"):
        play(go())
    assert not caplog.records


def test_a_delivery_is_heard_of_while_a_long_body_runs(semel_server: TestServer) -> None:
    cancelled: list[bool] = []

    async def go() -> None:
        entered = asyncio.Event()

        @workflow("py-gate")
        async def gate(ctx: Ctx, _: None) -> Any:
            async def long(a: Attempt) -> None:
                entered.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.append(a.cancelled.is_set())

            hook = ctx.hook("py-gate", int)
            return await ctx.race("gate", long=lambda c: c.step("long", long), answer=lambda c: hook.recv())

        semel = AsyncSemel(semel_server.url)
        async with semel.worker([gate], lease=1):
            run = await semel.start(gate, None)
            await entered.wait()
            await delivered(semel, "py-gate", 5)
            assert await run.result(20) == ["answer", 5]
            assert cancelled == [True]
        semel.close()

    play(go())


def test_a_cancel_waits_for_a_thread_before_the_clean_up(semel_server: TestServer) -> None:
    seen: list[str] = []
    entered, refunded = threading.Event(), threading.Event()

    @workflow("py-busy")
    async def busy(ctx: Ctx, _: None) -> None:
        later = asyncio.ensure_future(ctx.cleanup().hook("py-busy-later", str).recv())

        def refund(a: Attempt) -> None:
            refunded.set()
            seen.append("refund")

        def body(a: Attempt) -> None:
            entered.set()
            while not a.cancelled.is_set():
                threading.Event().wait(0.01)
            # Clean-up that does not wait for this body has half a second to show itself.
            seen.append("overtaken" if refunded.wait(0.5) else "body ended")

        try:
            await ctx.all(body=lambda c: c.step("body", body), wait=lambda c: c.sleep("long", "7d"))
        except Cancelled:
            await ctx.cleanup().step("refund", refund)
            seen.append(str(await later))
            raise

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([busy], lease=1):
            run = await semel.start(busy, None)
            await asyncio.to_thread(entered.wait)
            await run.cancel("enough", graceful=True)
            while len(seen) < 2:
                await asyncio.sleep(0)
            await delivered(semel, "py-busy-later", "later")
            with pytest.raises(RunFailed) as failed:
                await run.result(20)
            assert failed.value.run["status"] == "CANCELLED"
        assert seen[:2] == ["body ended", "refund"] and seen[-1] == "later"
        semel.close()

    play(go())


def test_a_function_that_blocks_does_not_stop_the_worker(semel_server: TestServer) -> None:
    class Bank:
        def __init__(self) -> None:
            self.open = threading.Event()

        def charge(self, a: Attempt) -> bool:
            return self.open.wait(20)

        def let_in(self, a: Attempt) -> bool:
            self.open.set()
            return True

    bank = Bank()

    @workflow("py-blocking")
    async def blocking(ctx: Ctx, how: str) -> bool:
        if how == "open":
            return await ctx.step("open", bank.let_in)
        return await ctx.step("charge", bank.charge if how == "method" else lambda a: bank.charge(a))

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([blocking]):
            waiting = [await semel.start(blocking, how) for how in ("method", "lambda")]
            for run in waiting:
                await status(run, "RUNNING")
            assert await (await semel.start(blocking, "open")).result(20)
            assert all([await run.result(20) for run in waiting])
        semel.close()

    play(go())


def test_a_task_group_gives_up_what_its_other_tasks_wait_for(semel_server: TestServer) -> None:
    ended: list[str] = []

    async def go() -> None:
        entered = asyncio.Event()

        @workflow("py-group")
        async def group(ctx: Ctx, _: None) -> str:
            async def body(a: Attempt) -> None:
                entered.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("body")

            async def failing(a: Attempt) -> None:
                await entered.wait()
                raise fatal("no")

            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(ctx.step("body", body))
                    tasks.create_task(ctx.sleep("long", "7d"))
                    tasks.create_task(ctx.step("failing", failing))
            except* Exception as many:
                why = str(many.exceptions[0])
            await ctx.hook("py-group").recv()
            return why

        semel = AsyncSemel(semel_server.url)
        async with semel.worker([group]):
            run = await semel.start(group, None)
            await status(run, "WAITING")
            assert ended == ["body"]
            await delivered(semel, "py-group", 1)
            assert await run.result(20) == "failing: no"
        semel.close()

    play(go())


def test_an_effect_at_most_once_that_lost_a_race_is_in_doubt_at_the_end(semel_server: TestServer) -> None:
    calls: list[int] = []

    async def go() -> None:
        entered = asyncio.Event()

        @workflow("py-lost")
        async def lost(ctx: Ctx, _: None) -> str:
            async def charge(a: Attempt) -> None:
                calls.append(a.number)
                entered.set()
                await asyncio.Event().wait()

            hook = ctx.hook("py-lost", int)
            await ctx.race("gate", charge=lambda c: c.step("charge", charge, at_most_once=True), answer=lambda c: hook.recv())
            return "over"

        semel = AsyncSemel(semel_server.url)
        async with semel.worker([lost], lease=1):
            run = await semel.start(lost, None)
            await entered.wait()
            await delivered(semel, "py-lost", 1)
            await status(run, "PAUSED")
            await run.resolve("gate/charge/charge", happened=1)
            assert await run.result(20) == "over" and calls == [1]
        semel.close()

    play(go())


def test_a_worker_that_has_lost_its_lease_joins_anew(semel_server: TestServer) -> None:
    keys: list[str] = []

    async def go() -> None:
        entered = asyncio.Event()

        @workflow("py-kept")
        async def kept(ctx: Ctx, _: None) -> None:
            async def one(a: Attempt) -> None:
                keys.append(a.key)
                entered.set()
                if len(keys) == 1:
                    await asyncio.Event().wait()

            await ctx.step("one", one)

        semel = AsyncSemel(semel_server.url)
        async with semel.worker([kept], lease=1) as worker:
            run = await semel.start(kept, None)
            await entered.wait()
            await semel.http.call("POST", "/workers/release", f'{{"node":"{worker._node}"}}')
            await run.result(20)
        assert len(keys) == 2 and len(set(keys)) == 1
        semel.close()

    play(go())


def test_a_step_of_a_queue_is_done_elsewhere_with_its_retries_and_its_key(semel_server: TestServer) -> None:
    keys: list[str] = []
    threads: set[bool] = set()

    @workflow("py-shop")
    async def shop(ctx: Ctx, cents: int) -> Any:
        charge = await ctx.remote("charge", "py-payments", cents, retry=Retry(initial=0.02, jitter=0))
        try:
            await ctx.remote("refuse", "py-payments", "no")
        except Exception as refused:
            return [charge, getattr(refused, "kind", ""), getattr(refused, "code", "")]

    def payments(given: Any, task: QueueTask) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        if given == "no":
            raise fatal("declined", code="DECLINED")
        keys.append(task.key)
        if task.attempt < 2:
            raise OSError("busy")
        return {"cents": given}

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([shop]), semel.worker(queues={"py-payments": payments}):
            run = await semel.start(shop, 1999)
            assert await run.result(20) == [{"cents": 1999}, "fatal", "DECLINED"]
        assert len(keys) == 2 and len(set(keys)) == 1 and threads == {False}
        semel.close()

    play(go())


def test_a_key_may_have_any_characters(semel_server: TestServer) -> None:
    @workflow("py-echo")
    async def echo(ctx: Ctx, n: int) -> str:
        return f"{ctx.key} {n}"

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([echo]):
            assert await (await semel.start(echo, 1, key="Bestellung „7“ 日")).result(20) == "Bestellung „7“ 日 1"
            assert (await semel.start(echo, 1, key="Bestellung „7“ 日")).verdict == "replayed"
        semel.close()

    play(go())


def is_claim(path: str, body: str | None) -> bool:
    """Whether a call claims runs, and does not only look for them."""
    return path == "/workers/claim" and '"look":true' not in (body or "")


class LosesClaims(AsyncHttp):
    """The first claim takes place and its answer is lost. Its repetition reaches a server that knows the id, or one that does not."""

    def __init__(self, url: str, known: bool) -> None:
        super().__init__(Address(url, None))
        self.claims, self.known = 0, known

    async def _send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        if is_claim(path, body):
            self.claims += 1
            if self.claims == 1:
                await super()._send(method, path, body, headers)
                raise EOFError("the answer is lost")
            if self.claims == 2 and not self.known:
                headers = {**headers, "idempotency-key": "unknown"}
        return await super()._send(method, path, body, headers)


@pytest.mark.parametrize("known", [True, False])
def test_the_runs_of_a_lost_claim_are_driven_whether_or_not_the_server_remembers_it(
    semel_server: TestServer, caplog: pytest.LogCaptureFixture, known: bool
) -> None:
    @workflow(f"py-lost-claim-{known}")
    async def echo(ctx: Ctx, n: int) -> int:
        return n

    async def go() -> None:
        semel, far = AsyncSemel(semel_server.url), AsyncSemel(semel_server.url)
        far.http = LosesClaims(semel_server.url, known)
        run = await semel.start(echo, 7)
        async with far.worker([echo], lease=3600):
            assert await run.result(20) == 7
        for client in (semel, far):
            client.close()

    with caplog.at_level(logging.WARNING, "semel"):
        play(go())
    assert ("joins anew" in caplog.text) == (not known)


class Restarted(AsyncHttp):
    """A way to a server that is killed and comes back: calls under way are lost, others refused."""

    def __init__(self, url: str) -> None:
        super().__init__(Address(url, None))
        self.down, self.enough = asyncio.Event(), asyncio.Event()
        self.refused = 0

    async def _send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        if self.down.is_set():
            self.refused += 1
            if self.refused == 8:
                self.enough.set()
            raise Unreached("refused")
        call, killed = asyncio.create_task(super()._send(method, path, body, headers)), asyncio.create_task(self.down.wait())
        await asyncio.wait([call, killed], return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if call.done():
            return await call
        call.cancel()
        raise EOFError("the server was killed")


def test_a_worker_keeps_its_runs_and_its_steps_of_queues_while_the_server_cannot_be_reached(
    semel_server: TestServer, caplog: pytest.LogCaptureFixture
) -> None:
    bodies: list[str] = []

    async def go() -> None:
        entered, leave = [asyncio.Event(), asyncio.Event()], asyncio.Event()

        async def body(name: str, i: int) -> str:
            bodies.append(name)
            entered[i].set()
            await leave.wait()
            return name

        @workflow("py-both")
        async def both(ctx: Ctx, _: None) -> Any:
            return await ctx.all(
                letter=lambda c: c.step("letter", lambda a: body("letter", 0), at_most_once=True, inline=True),
                parcel=lambda c: c.remote("parcel", "py-parcels", None),
            )

        async def parcel(given: Any, task: QueueTask) -> str:
            return await body("parcel", 1)

        semel, far = AsyncSemel(semel_server.url), AsyncSemel(semel_server.url)
        http = far.http = Restarted(semel_server.url)
        async with far.worker([both], queues={"py-parcels": parcel}, lease=3600):
            run = await semel.start(both, None)
            await asyncio.gather(*(one.wait() for one in entered))
            http.down.set()
            await http.enough.wait()
            http.down.clear()
            leave.set()
            assert await run.result(20) == {"letter": "letter", "parcel": "parcel"}
        for client in (semel, far):
            client.close()

    with caplog.at_level(logging.WARNING, "semel"):
        play(go())
    assert sorted(bodies) == ["letter", "parcel"] and "joins anew" not in caplog.text


class NoClaims(AsyncHttp):
    """A way to a server to which claims find no connection for a while."""

    down, refused, looks = False, 0, 0

    async def _send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        if path == "/workers/claim" and not is_claim(path, body):
            self.looks += 1
            if self.looks == 2:
                # A proxy in between fails at a look, which is not a claim.
                return Answer(502, {}, b"<html>")
        if self.down and is_claim(path, body):
            self.refused += 1
            # By then half of the lease is over, after which a claim that was sent is given up.
            self.down = self.refused < 6
            raise Unreached("refused")
        return await super()._send(method, path, body, headers)


def test_a_claim_without_a_connection_is_made_again_for_as_long_as_it_takes(semel_server: TestServer, caplog: pytest.LogCaptureFixture) -> None:
    bodies: list[int] = []

    async def go() -> None:
        entered, leave = asyncio.Event(), asyncio.Event()

        @workflow("py-letter")
        async def letter(ctx: Ctx, n: int) -> int:
            async def write(a: Attempt) -> int:
                bodies.append(n)
                if n == 1:
                    entered.set()
                    await leave.wait()
                return n

            return await ctx.step("letter", write, at_most_once=True)

        semel, far = AsyncSemel(semel_server.url), AsyncSemel(semel_server.url)
        http = far.http = NoClaims(Address(semel_server.url, None))
        async with far.worker([letter], lease=0.9):
            first = await semel.start(letter, 1)
            await entered.wait()
            http.down = True
            assert await (await semel.start(letter, 2)).result(20) == 2
            leave.set()
            assert await first.result(20) == 1
        for client in (semel, far):
            client.close()
        assert (bodies, http.refused) == ([1, 2], 6)

    with caplog.at_level(logging.WARNING, "semel"):
        play(go())
    assert "HTTP_502" in caplog.text and "joins anew" not in caplog.text


def test_a_worker_that_has_run_leaves_the_signals_of_the_process_as_they_were(semel_server: TestServer) -> None:
    @workflow("py-signals")
    async def idle(ctx: Ctx, _: None) -> None:
        return None

    async def go() -> None:
        semel, loop = AsyncSemel(semel_server.url), asyncio.get_running_loop()
        worker = semel.worker([idle])
        running = asyncio.create_task(worker.run())
        while not worker._loops:
            await asyncio.sleep(0)
        signal.raise_signal(signal.SIGTERM)
        await running
        assert [loop.remove_signal_handler(number) for number in (signal.SIGINT, signal.SIGTERM)] == [False, False]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        semel.close()

    play(go())


def test_a_server_that_speaks_another_protocol_is_refused_with_a_sentence_that_says_what_to_do() -> None:
    @workflow("py-idle")
    async def idle(ctx: Ctx, _: None) -> None:
        return None

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"node":"node_1","until":2,"now":1}'
        writer.write(b"HTTP/1.1 200 OK\r\nsemel-protocol: 2\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    async def go() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
            semel = AsyncSemel(f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}")
            with pytest.raises(RuntimeError) as refused:
                await semel.worker([idle]).start()
            semel.close()
        assert str(refused.value) == (
            "the server speaks version 2 of the worker protocol, and this SDK version 1: install the SDK of the server's release"
        )

    play(go())
