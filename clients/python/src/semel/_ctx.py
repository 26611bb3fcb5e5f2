"""The workflow's way to everything that is recorded."""

from __future__ import annotations

import asyncio
import inspect
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from ._duration import Duration, millis
from ._errors import Fail, fail_of, fatal
from ._json import decode, encode
from ._keys import Effect, id_of, is_name, path_key, uuid7
from ._retry import Retry
from ._run import Body, Branch, Run, Stand, once_visit, path_of
from ._types import expect_type, read_as, result_type
from ._workflow import Workflow

if TYPE_CHECKING:
    from .tx import TxSource

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")
Key = str | int | None

_VISIT = re.compile(r"^(.*?)(?:#(\d+))?$", re.DOTALL)


def split_visit(visit: str) -> tuple[str, int]:
    """A visit as path and number."""
    found = _VISIT.match(visit)
    assert found is not None
    return found[1], int(found[2] or 1)


def is_plain(body: Callable[..., Any]) -> bool:
    """Whether a function is not async: it may block, and is called in a thread."""
    return not inspect.iscoroutinefunction(body) and not inspect.iscoroutinefunction(type(body).__call__)


class Attempt:
    """One attempt at a step, as its body sees it."""

    def __init__(self, run: Run, visit: str, number: int, cancelled: asyncio.Event) -> None:
        self._run, self._visit = run, visit
        #: Number of the attempt, from 1.
        self.number = number
        #: Set when the step should stop: the run is cancelled, or it lost a race.
        self.cancelled = cancelled

    @property
    def key(self) -> str:
        """The effect key: the same on every attempt. Hand it to a provider as its idempotency key."""
        return self._effect("").key()

    @property
    def uuid(self) -> uuid.UUID:
        """The effect key as a UUID."""
        return self._effect("").uuid()

    def key_for(self, label: str) -> str:
        """The key of one of several effects of the step."""
        return self._effect(label).key()

    @property
    def fence(self) -> int:
        """Version of the claim under which this runs. A system that compares fences can refuse a late owner."""
        return int(self._run.claim["fence"])

    @property
    def path(self) -> str:
        return self._visit

    @property
    def run_id(self) -> str:
        return self._run.id

    def _effect(self, label: str) -> Effect:
        path, tick = split_visit(self._visit)
        return Effect(self._run.claim["workspace"], self._run.claim["lineage"], path, tick, label)


class Ctx:
    """What a workflow does by its run. All effects are steps; everything else must be the same in every replay."""

    def __init__(self, run: Run, stand: Stand, at: str) -> None:
        self._run, self._stand, self._at = run, stand, at

    @property
    def run_id(self) -> str:
        return self._run.id

    @property
    def key(self) -> str:
        """Idempotency key of the run."""
        return str(self._run.claim["key"])

    @property
    def workflow(self) -> str:
        return str(self._run.claim["workflow"])

    @property
    def workflow_version(self) -> str:
        return str(self._run.claim["workflowVersion"])

    @property
    def workspace(self) -> str:
        return str(self._run.claim["workspace"])

    @property
    def started(self) -> datetime:
        """Time of the run's start."""
        return _time(self._run.claim["created"])

    @property
    def is_replaying(self) -> bool:
        """Whether recorded results are given, and nothing new has begun. For logs."""
        return self._run.replaying

    def scope(self, name: str, key: Key = None) -> Ctx:
        """Names in here are below this one: ``left/pack``."""
        return Ctx(self._run, self._stand, self._path(name, key))

    def cleanup(self) -> Ctx:
        """What is asked for here is not stopped by a cancel: to clean up after one."""
        return Ctx(self._run, replace(self._stand, shielded=True), self._at)

    @overload
    async def step(
        self,
        name: str,
        body: Callable[[Attempt], Coroutine[Any, Any, T]],
        *,
        key: Key = None,
        indexed: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
        reconcile: Callable[[Attempt], Coroutine[Any, Any, T | None] | T | None] | None = None,
        inline: bool = False,
        type_: type[T] | None = None,
    ) -> T: ...

    @overload
    async def step(
        self,
        name: str,
        body: Callable[[Attempt], T],
        *,
        key: Key = None,
        indexed: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
        reconcile: Callable[[Attempt], Coroutine[Any, Any, T | None] | T | None] | None = None,
        inline: bool = False,
        type_: type[T] | None = None,
    ) -> T: ...

    async def step(
        self,
        name: str,
        body: Callable[[Attempt], Any],
        *,
        key: Key = None,
        indexed: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        at_most_once: bool = False,
        reconcile: Callable[[Attempt], Any] | None = None,
        inline: bool = False,
        type_: Any = None,
    ) -> Any:
        """An effect, tried until it has an outcome. After a crash the recorded outcome is given, and the body is not called.

        A plain function runs in a thread, or on the loop of the process with ``inline``. The result is read as ``type_``, or as the
        body's hint says; without both it is plain JSON.
        """
        visit = self._visit(name, key, indexed)
        of = "reconcile" if reconcile is not None else "at-most-once" if at_most_once else "keyed"
        step = StepDriver(self._run, self._stand, visit, of, retry or Retry(), None if timeout is None else millis(timeout), body, reconcile, inline)
        step.type_ = result_type(body) if type_ is None else type_
        return await step.perform()

    async def tx(
        self,
        name: str,
        source: TxSource[Any],
        body: Callable[..., Any],
        *,
        key: Key = None,
        indexed: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """The user's rows and the step's result in one commit of the user's database. The body's value is the result.

        The body gets the database, and the attempt as well if it takes two arguments.
        """
        from .tx import perform_tx

        visit = self._visit(name, key, indexed)
        limit = None if timeout is None else millis(timeout)
        step = StepDriver(self._run, self._stand, visit, "tx", retry or Retry(), limit, body, None, False)
        return await step.perform(lambda driver, number: perform_tx(driver, source, number, body))

    async def skip(self, name: str, reason: str) -> None:
        """Records that a step is not needed."""
        visit = self._visit(name)
        record = self._run.records.get(visit)
        if record == "skipped":
            return
        if record is not None:
            if visit not in self._run.carried:
                self._run.diverge(f"`{visit}` is skipped in the code, but not in the ledger")
            return
        await self._run.live(self._stand, visit)
        self._run.add("stepSkipped", step=visit, reason=reason)

    async def sleep(self, name: str, time: Duration) -> None:
        """Waits durably: over restarts, and in no memory."""
        length = millis(time)
        await self._timer(name, lambda: self._run.host.latest() + length)

    async def sleep_until(self, name: str, time: datetime) -> None:
        """Waits until a time."""
        at = round(time.timestamp() * 1000)
        await self._timer(name, lambda: at)

    async def _timer(self, name: str, at: Callable[[], int]) -> None:
        visit = self._visit(name)
        found = self._run.found(visit, "timer", "a timer")
        if found and found[0]["fired"]:
            return
        due = await self._set_timer(visit, at)
        await self._run.wait(self._stand, visit, due, lambda now: _fire(self._run, visit, due, now))

    async def _set_timer(self, visit: str, at: Callable[[], int]) -> int:
        found = self._run.found(visit, "timer", "a timer")
        if found:
            return int(found[0]["at"])
        self._run.check_cancelled(self._stand.shielded)
        await self._run.live(self._stand, visit)
        self._run.check_cancelled(self._stand.shielded)
        due = at()
        self._run.add("timerSet", timer=visit, at=due)
        return due

    def hook(self, token: str, type_: type[T] | None = None) -> Hook[T]:
        """Opens a place where the run waits for input, under a token that is unique in the workspace while it is open."""
        visit = self._run.visit(self._path("@hook", path_key(token), own=True), indexed=True)
        self._run.open_hook(self._stand, visit, token)
        return Hook(self, visit, token, type_)

    async def child(
        self, workflow: Workflow[In, Out] | tuple[str, str], input: In, *, name: str | None = None, key: Key = None, indexed: bool = False
    ) -> Child[Out]:
        """Starts another run, or finds it again. It is there when this returns; ``result()`` waits for its end."""
        of, version = (workflow.name, workflow.version) if isinstance(workflow, Workflow) else workflow
        child = await self._begin(self._visit(name or of, key, indexed), of, version, input)
        child.type_ = workflow.output_type() if isinstance(workflow, Workflow) else None
        return child

    async def remote(
        self, name: str, queue: str, input: Any, *, key: Key = None, indexed: bool = False, retry: Retry | None = None, timeout: Duration | None = None
    ) -> Any:
        """A step that is done elsewhere, by a worker that takes it from a queue: its ``queues`` option, in any language."""
        visit = self._visit(name, key, indexed)
        step = {"step": visit, "input": input, "retry": (retry or Retry()).wire()}
        if timeout is not None:
            step["timeoutMs"] = millis(timeout)
        return await (await self._begin(visit, f"queue:{queue}", "1", step)).result()

    async def _begin(self, visit: str, of: str, version: str, input: Any) -> Child[Any]:
        while True:
            found = self._run.found(visit, "child", "a child")
            if found and "run" in found[0]:
                return Child(self, visit, found[0]["run"])
            self._run.check_cancelled(self._stand.shielded)
            await self._run.live(self._stand, visit)
            self._run.check_cancelled(self._stand.shielded)
            if not found:
                run = id_of("run", uuid7(self._run.host.latest()))
                self._run.draft("startChild", child=visit, run=run, workflow=of, workflowVersion=version, input=input)
            await self._run.written(self._stand)

    @overload
    async def run_once(
        self, label: str, body: Callable[[], Coroutine[Any, Any, T]], *, scope: str = "run", ttl: Duration | None = None, timeout: Duration | None = None
    ) -> T: ...

    @overload
    async def run_once(
        self, label: str, body: Callable[[], T], *, scope: str = "run", ttl: Duration | None = None, timeout: Duration | None = None, inline: bool = False
    ) -> T: ...

    async def run_once(
        self,
        label: str,
        body: Callable[[], Any],
        *,
        scope: str = "run",
        ttl: Duration | None = None,
        timeout: Duration | None = None,
        inline: bool = False,
    ) -> Any:
        """One value for all calls with this label: of the run (``run``), of all runs that had its key (``key``), or of the ``workspace``."""
        once = _run_once(self._run, self._stand, label, body, scope, ttl, timeout, inline)
        # A body is on the loop of the process, and what the run waits for on its own.
        return await (self._run.inward(once) if self._run.is_inside else once)

    async def race(self, name: str, **branches: Callable[[Ctx], Awaitable[Any]]) -> tuple[str, Any]:
        """The first of several branches, as its name and value. The others go on with nothing new.

        Each branch has a scope of its own: ask for everything by the ``ctx`` of the branch.
        """
        visit = self._visit(name)
        if not branches:
            raise fatal(f"the race {visit} has no branches")
        found = self._run.found(visit, "value", "a race")
        recorded = found[0] if found else None
        if recorded is not None and recorded not in branches:
            self._run.diverge(f"`{visit}` was won by `{recorded}`, which the code does not have")
            return cast(tuple[str, Any], await self._run.never())
        runners: dict[str, tuple[Branch, asyncio.Task[Any]]] = {}
        for own, code in branches.items():
            # A loser is given what it has recorded, and nothing new.
            branch = Branch(self._stand.branch, lost=recorded is not None and own != recorded)
            ctx = Ctx(self._run, replace(self._stand, branch=branch), self._path(name)).scope(own)
            runners[own] = (branch, asyncio.ensure_future(_awaited(code, ctx)))
        able = {task: own for own, (branch, task) in runners.items() if not branch.lost}
        done, _ = await asyncio.wait(able, return_when=asyncio.FIRST_COMPLETED)
        won = next(own for own, (_, task) in runners.items() if task in done)
        self._run.lose([branch for own, (branch, _) in runners.items() if own != won])
        self._run.losers.extend(task for own, (_, task) in runners.items() if own != won and not task.done())
        raised = runners[won][1].exception()
        if recorded is None:
            await self._run.live(self._stand, visit)
            failed = fail_of(raised).at if raised is not None else None
            self._run.add("recorded", at=visit, value=won, **({} if failed is None else {"failed": failed}))
        if raised is not None:
            raise raised
        return won, runners[won][1].result()

    async def all(self, **branches: Callable[[Ctx], Awaitable[Any]]) -> dict[str, Any]:
        """All branches, side by side, each in a scope of its name.

        If some fail, the others are waited for first, because an effect is not abandoned half-way; then the first failure in the order
        of the code is raised.
        """
        ended = await asyncio.gather(*(_awaited(code, self.scope(own)) for own, code in branches.items()), return_exceptions=True)
        for one in ended:
            if isinstance(one, BaseException):
                raise one
        return dict(zip(branches, ended, strict=True))

    async def now(self, name: str) -> datetime:
        """The time, recorded."""
        return _time(await self._recorded("@now", name, self._run.host.latest))

    async def random(self, name: str) -> float:
        """A random number from 0 up to 1, recorded."""
        return await self._recorded("@random", name, self._run.host.random)

    async def uuid(self, name: str) -> uuid.UUID:
        """A fresh UUID, recorded."""
        return uuid.UUID(await self._recorded("@uuid", name, lambda: str(uuid7(self._run.host.latest()))))

    async def record(self, name: str, value: T) -> T:
        """A value that must be the same in every replay."""
        return await self._recorded_at(self._visit(name), lambda: value)

    async def patched(self, name: str) -> bool:
        """Whether this run follows a change of the code: true for runs that get here for the first time."""
        self._run.refuse_inside(f"patched {name}")
        visit = self._path("@patch", path_key(name), own=True)
        known = self._run.records.get(visit)
        if known is not None:
            return bool(known["value"])
        if self._run.replaying:

            def unpatched() -> None:
                if visit not in self._run.records:
                    self._run.add("recorded", at=visit, value=False)

            self._run.defer(self._stand, unpatched)
            return False
        self._run.visit_again(visit)
        self._run.add("recorded", at=visit, value=True)
        return True

    async def _recorded(self, kind: str, name: str, make: Callable[[], T]) -> T:
        return await self._recorded_at(self._run.visit(self._path(kind, name, own=True)), make)

    async def _recorded_at(self, visit: str, make: Callable[[], T]) -> T:
        found = self._run.found(visit, "value", "a recorded value")
        if found:
            return cast(T, found[0])
        await self._run.live(self._stand, visit)
        value = decode(encode(make()))
        self._run.add("recorded", at=visit, value=value)
        return cast(T, value)

    def _visit(self, name: str, key: Key = None, indexed: bool = False) -> str:
        return self._run.visit(self._path(name, key), indexed)

    def _path(self, name: str, key: Key = None, own: bool = False) -> str:
        text = None if key is None else str(key)
        for part in (name,) if text is None else (name, text):
            if not is_name(part):
                raise fatal(f"{part!r} is no name: give 1 to 200 characters, none of / [ ] # and no control characters")
        if name.startswith("@") and not own:
            raise fatal(f"{name!r} begins with @, which is for Semel's own names; choose another")
        return path_of(self._at, name, text)


async def _awaited(code: Callable[[Ctx], Awaitable[T]], ctx: Ctx) -> T:
    return await code(ctx)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _fire(run: Run, timer: str, due: int, now: int) -> list[None] | None:
    if now < due:
        return None
    run.add("timerFired", timer=timer)
    return [None]


@dataclass
class StepDriver:
    """One step in execution."""

    run: Run
    stand: Stand
    visit: str
    of: str
    retry: Retry
    limit: int | None
    body: Callable[..., Any]
    reconcile: Callable[[Attempt], Any] | None
    inline: bool
    #: Type of the result; ``None`` if it is plain JSON.
    type_: Any = None

    async def perform(self, once: Callable[[StepDriver, int], Awaitable[None]] | None = None) -> Any:
        """Tries until there is an outcome. ``once`` makes an attempt of its own kind."""
        attempt = once or (lambda driver, number: driver._try_once(number))
        shielded = replace(self, stand=replace(self.stand, shielded=True))
        while True:
            record = self.run.records.get(self.visit)
            if record is None:
                await attempt(self, 1)
            elif record == "skipped":
                return await self._unlike("was skipped, but is a step in the code")
            elif "completed" in record:
                return read_as(self.type_, record["completed"], f"the result of {self.visit}")
            elif "failed" in record:
                raise Fail.recorded(self.visit, record["failed"])
            elif "inDoubt" in record:
                return await self.run.never()
            elif "retrying" in record:
                at, number = record["retrying"]["at"], record["retrying"]["attempt"]
                await self.run.wait(self.stand, self.visit, at, lambda now, at=at: [None] if now >= at else None)  # type: ignore[misc]
                await attempt(self, number + 1)
            elif "cleared" in record:
                await attempt(self, record["cleared"]["attempt"] + 1)
            elif "started" in record:
                number = record["started"]["attempt"]
                if await self._find_out(number, record["started"]["class"]):
                    await attempt(shielded, number + 1)
            else:
                return await self._unlike("is a step in the code, but not in the ledger")

    async def _unlike(self, why: str) -> Any:
        self.run.diverge(f"`{self.visit}` {why}")
        return await self.run.never()

    async def _find_out(self, number: int, of: str) -> bool:
        """What became of an attempt whose end a crash has hidden: whether to try again."""
        body = await self.run.effect(replace(self.stand, shielded=True), self.visit)
        if of in ("keyed", "tx"):
            self.run.over(body)
            return True
        if of == "at-most-once":
            if self.run.over(body):
                self._doubt("a crash has hidden its end, or it was given up")
            return False
        found = await self._ask(number, body)
        if not self.run.over(body):
            await self.run.never()
        return not found

    async def _try_once(self, number: int) -> None:
        run, keyed = self.run, self.of == "keyed"
        body = await run.effect(self.stand, self.visit, None if keyed else {"attempt": number, "class": self.of})
        began = run.host.earliest()
        attempt = Attempt(run, self.visit, number, body.cancelled)
        await self.probe("before the body")
        text, fail = None, None
        try:
            value = await run.call(body, self.limit, lambda: self.body(attempt), self._threaded(self.body))
            try:
                expect_type(self.type_, value)
                text = encode(value)
            except Fail as unkept:
                fail = unkept if keyed else Fail("uncertain", f"it took place, but its result cannot be kept: {unkept.message}")
        except Exception as raised:
            fail = fail_of(raised)
        await self.probe("after the body")
        if fail is not None and self.of == "reconcile" and fail.retry_after_ms is None:
            found = await self._ask(number, body)
            if not run.over(body):
                await run.never()
            if not found:
                kind = fail.kind if fail.kind in ("fatal", "cancelled") else "retryable"
                self._failed(number, Fail(kind, fail.message, code=fail.code, data=fail.data))
            return
        if not run.over(body):
            await run.never()
        self.finish(number, {"attempt": number, "at": began} if keyed else None, text, fail)

    async def probe(self, moment: str) -> None:
        await self.run.outside(None, lambda: self.run.host.probe(self.run.id, f"{moment} of {self.visit}"))

    def _threaded(self, body: Callable[..., Any]) -> bool:
        return not self.inline and is_plain(body)

    def finish(self, number: int, started: dict[str, Any] | None, text: str | None, fail: Fail | None) -> None:
        """Records the end of an attempt."""
        if text is not None:
            return self.run.complete(self.visit, started, text)
        assert fail is not None
        if started is not None:
            self.run.add("stepStarted", step=self.visit, **started)
        return self._failed(number, fail)

    def _failed(self, number: int, fail: Fail) -> None:
        certain = fail.kind == "fatal" or fail.retry_after_ms is not None
        decided: int | str = "doubt"
        if self.of != "at-most-once" or certain:
            decided = self.retry.next(number, fail.kind, self.run.host.random())
        if decided == "doubt":
            return self._doubt(fail.message)
        if decided == "fail":
            return self.run.add("stepFailed", step=self.visit, attempt=number, error=fail.view())
        pause = int(decided) if fail.retry_after_ms is None else fail.retry_after_ms
        self.run.host.log("warning", f"attempt {number} at {self.visit} of {self.run.id} has failed and is tried again: {fail.message}")
        return self.run.add("stepFailed", step=self.visit, attempt=number, error=fail.view(), retryAt=self.run.host.latest() + pause)

    def _doubt(self, reason: str) -> None:
        self.run.host.log("warning", f"it is unknown whether {self.visit} of {self.run.id} took place; an operator has to decide")
        self.run.add("stepInDoubt", step=self.visit, reason=reason)

    async def _ask(self, number: int, body: Body) -> bool:
        """Asks the other side about an attempt: whether there is an answer, which then is recorded."""
        reconcile = self.reconcile
        if reconcile is None:
            self._doubt("its end is hidden, and the code no longer says whom to ask")
            return True
        attempt = Attempt(self.run, self.visit, number, body.cancelled)
        try:
            found = await self.run.call(body, self.limit, lambda: reconcile(attempt), self._threaded(reconcile))
            if found is None:
                return False
            if not body.stand.branch.is_lost:
                self.run.complete(self.visit, None, encode(found))
        except Exception as unknown:
            self._doubt(f"its end is hidden, and the look-up failed: {fail_of(unknown).message}")
        return True


@dataclass(frozen=True)
class Owner:
    """The run that owns a token."""

    run_id: str


class Hook(Generic[T]):
    """A place where a run waits for input."""

    def __init__(self, ctx: Ctx, visit: str, token: str, type_: type[T] | None) -> None:
        self._ctx, self._run, self._stand = ctx, ctx._run, ctx._stand
        self._at, self._type = visit, type_
        self._given = 0
        #: Its public address.
        self.token = token

    async def conflict(self) -> Owner | None:
        """The run that owns the token, if it is another one."""
        while True:
            hook = self._run.hook_at(self._at) or {}
            if hook.get("state") == "conflicted":
                return Owner(hook["owner"])
            if hook.get("state") in ("open", "closed"):
                return None
            await self._run.live(self._stand, self._at)
            await self._run.written(self._stand)
            if self._run.hook_at(self._at) is None:
                await self._run.never()

    async def recv(self) -> T:
        """The next payload."""
        await self._owned()
        early = self._recorded()
        if early is not None:
            return self._read(early[0])
        await self._reopen()
        return self._read(await self._run.wait(self._stand, self._at, None, lambda _: self._take()))

    async def recv_for(self, time: Duration) -> T | None:
        """The next payload, or None if none comes in time."""
        await self._owned()
        path, tick = split_visit(self._at)
        timer = self._run.visit(path_of(path if tick == 1 else f"{path}/@{tick}", "timeout"), indexed=True)
        found = self._run.found(timer, "timer", "a timer")
        if found and found[0]["fired"]:
            return None
        early = self._recorded()
        if early is not None:
            return self._read(early[0])
        await self._reopen()
        length = millis(time)
        due = await self._ctx._set_timer(timer, lambda: self._run.host.latest() + length)

        def attempt(now: int) -> list[Any] | None:
            taken = self._take()
            if taken is not None:
                return [taken]
            return None if _fire(self._run, timer, due, now) is None else [None]

        got = await self._run.wait(self._stand, self._at, due, attempt)
        return None if got is None else self._read(got[0])

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            yield await self.recv()

    def close(self) -> None:
        """Frees the token. It is also free when the run ends."""
        self._run.close_hook(self._stand, self._at)

    async def __aenter__(self) -> Hook[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> list[Any] | None:
        delivery = self._run.take_delivery(self.token)
        if delivery is None:
            return None
        self._given += 1
        self._run.add("hookReceived", hook=self._at, arrival=delivery[0], payload=delivery[1])
        return [delivery[1]]

    def _recorded(self) -> list[Any] | None:
        received = (self._run.hook_at(self._at) or {}).get("received", [])
        if self._given >= len(received):
            return None
        self._given += 1
        return [received[self._given - 1]]

    async def _owned(self) -> None:
        self._run.refuse_inside(self._at)
        owner = await self.conflict()
        if owner is not None:
            fail = fatal(f"the token {self.token} is owned by {owner.run_id}: ask `conflict()` before you wait")
            fail.at = self._at
            raise fail

    async def _reopen(self) -> None:
        """Opens a hook again that was closed before a restart: a branch that lost there may go on here."""
        hook = self._run.hook_at(self._at) or {}
        if hook.get("state") != "closed" or self._at not in self._run.carried:
            return
        self._run.check_cancelled(self._stand.shielded)
        await self._run.live(self._stand, self._at)
        self._run.draft("openHook", hook=self._at, token=self.token)
        await self._owned()

    def _read(self, payload: Any) -> T:
        return cast(T, read_as(self._type, payload, f"the payload for {self.token}"))


class Child(Generic[Out]):
    """A run that another one has started."""

    def __init__(self, ctx: Ctx, visit: str, run: str) -> None:
        self._run, self._stand, self._at = ctx._run, ctx._stand, visit
        #: Id of the child.
        self.id = run
        #: Type of its result; ``None`` if it is plain JSON.
        self.type_: Any = None

    async def outcome(self) -> Any:
        """How the child ended, whatever that is: ``{"completed": …}``, ``{"failed": …}``, ``{"cancelled": …}`` or ``timedOut``."""
        record = self._run.records[self._at]["child"]
        if record.get("outcome") is not None:
            return record["outcome"]

        def attempt(_: int) -> list[Any] | None:
            ended = self._run.take_child_end(self._at, self.id)
            if ended is None:
                return None
            self._run.add("childFinished", child=self._at, arrival=ended[0], outcome=ended[1])
            return [ended[1]]

        return await self._run.wait(self._stand, self._at, None, attempt)

    async def result(self) -> Out:
        """The child's result. Any other end is raised as a failure."""
        outcome = await self.outcome()
        if isinstance(outcome, dict) and "completed" in outcome:
            return cast(Out, read_as(self.type_, outcome["completed"], f"the result of {self._at}"))
        if outcome == "timedOut":
            fail = Fail("timeout", f"{self._at}: {self.id} has timed out")
        elif "failed" in outcome:
            fail = Fail.recorded(self._at, outcome["failed"])
        elif "cancelled" in outcome:
            fail = fatal(f"{self._at}: {self.id} was cancelled: {outcome['cancelled']}")
        else:
            fail = fatal(f"{self._at}: {self.id} has ended as {outcome['purged']}, and its result is no longer kept")
        fail.at = self._at
        raise fail


_ONCE_NAMES = {"run": "@once", "key": "@once-key", "workspace": "@once-workspace"}


async def _run_once(
    run: Run, stand: Stand, label: str, body: Callable[[], Any], kind: str, ttl: Duration | None, timeout: Duration | None, inline: bool
) -> Any:
    if kind not in _ONCE_NAMES:
        raise fatal(f"the scope of `run_once` is run, key or workspace, and not {kind!r}")
    of = run.claim
    wire: Any = "workspace" if kind == "workspace" else {"key": [of["scope"], of["key"]]}
    scope = {"run": "", "workspace": "*"}.get(kind, f"k{len(of['scope'].encode())}/{of['scope']}/{of['key']}")
    place, asks, inside = (scope, label), once_visit(_ONCE_NAMES[kind], label), run.is_inside
    limit = None if timeout is None else millis(timeout)
    threaded, type_ = not inline and is_plain(body), result_type(body)

    def call(ask: Any) -> Awaitable[dict[str, Any]]:
        request = {"scope": wire, "label": label, "run": run.id, "ask": ask}
        return run.outside(None, lambda: run.host.once(request))

    async def made(active: Body) -> Any:
        value = await run.call(active, limit, body, threaded)
        expect_type(type_, value)
        return decode(encode(value))

    async def shared(active: Body) -> dict[str, Any]:
        claimed = await call("claim")
        if "mine" not in claimed:
            return claimed
        try:
            value = await made(active)
        except Exception:
            await call({"release": {"fence": claimed["mine"]}})
            raise
        length = None if ttl is None else millis(ttl)
        return await call({"settle": {"fence": claimed["mine"], "value": value, "ttlMs": length}})

    async def turn() -> Any:
        while True:
            if place in run.onces:
                return read_as(type_, run.onces[place], f"the value of {label}")
            record = run.records.get(asks)
            if record is not None and not inside:
                run.visit_again(asks)
                if "failed" in record:
                    raise Fail.recorded(label, record["failed"])
            active = await run.effect(stand, asks)
            began = run.host.earliest()
            try:
                answer = {"settled": await made(active)} if kind == "run" else await shared(active)
            except Exception as raised:
                if not run.over(active):
                    return await run.never()
                if inside:
                    raise
                run.add("stepStarted", step=asks, attempt=1, at=began)
                run.add("stepFailed", step=asks, attempt=1, error=fail_of(raised).view())
                continue
            if not run.over(active):
                return await run.never()
            if "settled" in answer:
                members: dict[str, Any] = {"label": label, "value": answer["settled"]}
                if scope:
                    members["scope"] = scope
                if inside:
                    members["inside"] = True
                run.add("once", **members)
            elif "inFlight" in answer:
                # It may have been settled before this run was among those that are told.
                run.look()

                def noted(_: int) -> list[None] | None:
                    arrival = run.take_settled_once(place)
                    if arrival is None:
                        return None
                    run.add("noted", arrival=arrival)
                    return [None]

                await run.wait(stand, asks, None, noted)
            else:
                raise fatal(f"`run_once` was answered with {answer}")

    return await run.turn_of(place, turn)
