"""One run in memory: its records, what is not committed yet, and what waits for what."""

from __future__ import annotations

import asyncio
import contextvars
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ._errors import Cancelled, Fail, fail_of, fatal
from ._json import decode, encode
from ._keys import path_key
from ._loop import RunLoop

T = TypeVar("T")
Json = Any
Record = Any

#: How long running effects are waited for if the code does not fit the ledger, in milliseconds.
GRACE = 10_000
#: Maximum length of a commit in characters, far below what the server takes; a longer one is sent in parts.
COMMIT = 4 * 1024 * 1024
#: A wait that is shorter than this is not worth the two writes of a rest, in milliseconds.
NOT_WORTH_A_REST = 20
_OPTIONAL = re.compile(r"(^|/)@patch\[")

_inside: contextvars.ContextVar[Run | None] = contextvars.ContextVar("semel_inside", default=None)


class Host(Protocol):
    """What a run asks of the worker that drives it."""

    def earliest(self) -> int:
        """A time that the store has certainly reached, in milliseconds since 1970."""

    def latest(self) -> int:
        """A time that the store has certainly not passed by more than the network took."""

    def random(self) -> float: ...

    async def commit(self, commit: Commit) -> dict[str, Json]:
        """Sends a commit, again and again until the store has answered."""

    async def inbox(self, run: str, start: int) -> list[Json]: ...

    async def once(self, call: dict[str, Json]) -> dict[str, Json]: ...

    def schedule(self, run: Run) -> None:
        """Lets the run move on soon."""

    def forget(self, run: Run) -> None:
        """The run is out of memory."""

    def log(self, level: str, message: str) -> None: ...

    async def probe(self, run: str, moment: str) -> None:
        """For tests: called before and after each commit, and at both ends of each body."""


@dataclass
class Commit:
    """Entries and drafts as JSON texts; a draft comes with the number of entries before it."""

    run: str
    expected: int
    seen: int
    entries: list[str]
    drafts: list[tuple[int, str]]


@dataclass
class Branch:
    """A branch of a race. What lost goes on with nothing new."""

    parent: Branch | None = None
    lost: bool = False

    @property
    def is_lost(self) -> bool:
        return self.lost or (self.parent is not None and self.parent.is_lost)


@dataclass(frozen=True)
class Stand:
    """Where code of a workflow stands: in which branch, and whether a cancel stops it."""

    branch: Branch
    shielded: bool = False


@dataclass(eq=False)
class Wait:
    """A durable wait; ``attempt`` gives a list of one element, its result."""

    stand: Stand
    due: int | None
    attempt: Callable[[int], list[Any] | None]
    future: asyncio.Future[Any]


@dataclass(eq=False)
class Body:
    """A body at work."""

    stand: Stand
    task: asyncio.Task[Any] | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    #: A thread cannot be stopped: it is asked to, and its end is waited for.
    threaded: bool = False

    def abort(self) -> None:
        self.cancelled.set()
        if self.task is not None and not self.threaded:
            self.task.cancel()


class Run:
    """Drives one run. It has at most one commit in flight; what is recorded meanwhile is in the next one."""

    def __init__(self, host: Host, claim: dict[str, Json]) -> None:
        self.host, self.claim, self.id = host, claim, str(claim["run"])
        self.records: dict[str, Record] = dict(claim["records"])
        self.onces: dict[tuple[str, str], Json] = {(o.get("scope", ""), o["label"]): o["value"] for o in claim.get("once", [])}
        self.carried = set(claim.get("carried", []))
        self.cancelling: dict[str, str] | None = claim.get("cancelling")
        self.seen = 0
        self.gone = False
        #: Branches that lost wait for what never comes: they are kept as long as the run is in memory.
        self.losers: list[asyncio.Task[Any]] = []
        self.loop = RunLoop(self.dirty)
        self._missing = {visit for visit in self.records if visit not in self.carried and not _OPTIONAL.search(visit)}
        self._visited: set[str] = set()
        self._ticks: dict[str, int] = {}
        self._intents = {v for v, r in self.records.items() if isinstance(r, dict) and r.get("started", {}).get("class", "keyed") != "keyed"}
        self._version = self._durable = int(claim["version"])
        self._entries: list[str] = []
        self._drafts: list[tuple[int, str]] = []
        self._in_flight = self._leaving = self._stopping = self._reading = False
        self._diverged: str | None = None
        self._grace: int | None = None
        self._parked: list[tuple[str | None, Stand, asyncio.Future[None]]] = []
        self._barriers: list[tuple[int, Stand, asyncio.Future[None]]] = []
        self._deferred: list[Callable[[], None]] = []
        self._waits: list[Wait] = []
        self._bodies: set[Body] = set()
        self._turns: dict[Any, asyncio.Future[None]] = {}
        self._end: tuple[Json, Fail | None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._deliveries: dict[str, list[tuple[int, Json]]] = {}
        self._child_ends: dict[str, tuple[int, str, Json]] = {}
        self._settled_onces: dict[tuple[str, str], list[int]] = {}
        self._cancels: list[tuple[int, str, str]] = []
        self._releases: list[tuple[int, str]] = []
        self._unread: int | None = claim.get("inboxFrom")
        #: Number of the latest message that the server has told of.
        self._told = int(claim.get("arrivals", 0))
        self.replaying = bool(self._missing)
        self.outer = asyncio.get_running_loop()
        self.take_in(claim["inbox"])

    def begin(self, execute: Callable[[], Awaitable[Json]]) -> None:
        """Starts the execution."""

        async def whole() -> None:
            try:
                self._end = (await execute(), None)
            except Exception as raised:
                self._end = (None, fail_of(raised))
            except asyncio.CancelledError:
                self._end = (None, Fail("panic", "the code has cancelled its own task"))
            self.dirty()

        self._task = self.loop.create_task(whole(), context=contextvars.copy_context())
        self.dirty()

    # What the code visits

    def visit(self, path: str, indexed: bool = False) -> str:
        """Visits a path; a path that is not counted is visited once."""
        self.refuse_inside(path)
        before = self._ticks.get(path, 0)
        if before and not indexed:
            raise fatal(f"{path} is visited a second time in this run; add a key (`key=…`) or count the visits (`indexed=True`)")
        self._ticks[path] = before + 1
        visit = path if before == 0 else f"{path}#{before + 1}"
        self._make(visit)
        return visit

    def _make(self, visit: str) -> None:
        self._visited.add(visit)
        if visit in self._missing:
            self._missing.remove(visit)
            self.dirty()

    def visit_again(self, path: str) -> None:
        """Visits a path that several calls share."""
        if path not in self._visited:
            self._ticks[path] = 1
            self._make(path)

    def diverge(self, why: str) -> None:
        """Pauses the run: its code does not fit what is recorded."""
        self._diverged = self._diverged or why
        self.dirty()

    def found(self, visit: str, member: str, kind: str) -> Any:
        """What stands at a visit, if it is of the kind that the code asks for; a list of it, because a value may be None."""
        record = self.records.get(visit)
        if record is None:
            return None
        if isinstance(record, dict) and member in record:
            return [record[member]]
        self.diverge(f"`{visit}` is {kind} in the code, but not in the ledger")
        return None

    def refuse_inside(self, what: str) -> None:
        """Refuses a call from inside of a body, which a replay does not call."""
        self.refuse_gone()
        if _inside.get() is self:
            why = (
                f"`{what}` is asked for inside of the body of a step or of `run_once`, which is not called again when its result is "
                "recorded: ask before it, and use the answer in it"
            )
            self.diverge(why)
            raise fatal(why)

    def refuse_gone(self) -> None:
        """The coroutine of a run that is out of memory is closed: `finally` blocks get nothing more of it."""
        if self.gone:
            raise GeneratorExit

    @property
    def is_inside(self) -> bool:
        return _inside.get() is self

    # What is recorded

    def add(self, kind: str, **members: Json) -> None:
        """Records an entry with the next commit."""
        self._add_text(f'{{"{kind}":{encode(members)}}}', kind, members)

    def _add_text(self, text: str, kind: str, members: dict[str, Json]) -> None:
        if self.gone or self._leaving:
            return
        self._entries.append(text)
        self._version += 1
        self._apply(kind, members)
        self.dirty()

    def complete(self, step: str, started: dict[str, Json] | None, value: str) -> None:
        """Records the end of an attempt; the text of the value is written once."""
        if started is not None:
            self.add("stepStarted", step=step, **started)
        self._add_text(f'{{"stepCompleted":{{"step":{encode(step)},"value":{value}}}}}', "stepCompleted", {"step": step, "value": decode(value)})

    def draft(self, kind: str, **members: Json) -> None:
        """Asks the store for a hook or a child with the next commit."""
        if self.gone or self._leaving:
            return
        self._drafts.append((len(self._entries), f'{{"{kind}":{encode(members)}}}'))
        self._version += 1
        if kind == "openHook":
            before = self.records.get(members["hook"])
            received = before["hook"].get("received", []) if isinstance(before, dict) else []
            self.records[members["hook"]] = {"hook": {"token": members["token"], "state": "opening", "received": received}}
        else:
            self.records[members["child"]] = {"child": {}}
        self.dirty()

    def _apply(self, kind: str, e: dict[str, Json]) -> None:
        """The change of the records by one of our own entries; the server checks the same entry with the ledger."""
        match kind:
            case "stepStarted":
                self.records[e["step"]] = {"started": {"attempt": e["attempt"], "class": e.get("class", "keyed")}}
                if e.get("class", "keyed") != "keyed":
                    self._intents.add(e["step"])
            case "stepCompleted":
                self.records[e["step"]] = {"completed": e["value"]}
            case "stepFailed" if "retryAt" in e:
                self.records[e["step"]] = {"retrying": {"attempt": e["attempt"], "at": e["retryAt"], "error": e["error"]}}
            case "stepFailed":
                self.records[e["step"]] = {"failed": e["error"]}
            case "stepSkipped":
                self.records[e["step"]] = "skipped"
            case "stepInDoubt":
                self.records[e["step"]] = {"inDoubt": {}}
            case "timerSet":
                self.records[e["timer"]] = {"timer": {"at": e["at"], "fired": False}}
            case "timerFired":
                self.records[e["timer"]]["timer"]["fired"] = True
            case "hookReceived":
                self.records[e["hook"]]["hook"].setdefault("received", []).append(e["payload"])
            case "hookClosed":
                self.records[e["hook"]]["hook"]["state"] = "closed"
            case "childFinished":
                self.records[e["child"]]["child"]["outcome"] = e["outcome"]
            case "once":
                self.onces[(e.get("scope", ""), e["label"])] = e["value"]
            case "recorded":
                self.records[e["at"]] = {"value": e["value"]}

    def hook_at(self, visit: str) -> dict[str, Json] | None:
        record = self.records.get(visit)
        return record["hook"] if isinstance(record, dict) and "hook" in record else None

    # When code goes on

    @property
    def _may_act(self) -> bool:
        return not self.gone and not self._leaving and self._diverged is None

    def _may_settle(self, stand: Stand) -> bool:
        return self._may_act and not stand.branch.is_lost

    def check_cancelled(self, shielded: bool) -> None:
        if self.cancelling is not None and not shielded:
            raise Cancelled(self.cancelling["reason"])

    async def never(self) -> Any:
        """The run goes on elsewhere, or not at all."""
        return await self.loop.create_future()

    async def live(self, stand: Stand, asks: str | None = None) -> None:
        """Completes when everything recorded was reached again, and something new may begin. Never in a branch that lost."""
        self.refuse_gone()
        if self.replaying or not self._may_settle(stand):
            future: asyncio.Future[None] = self.loop.create_future()
            self._parked.append((asks, stand, future))
            self.dirty()
            await future

    async def written(self, stand: Stand) -> None:
        """Completes when everything recorded so far is durable."""
        self.refuse_gone()
        if self._durable < self._version or not self._may_settle(stand):
            future: asyncio.Future[None] = self.loop.create_future()
            self._barriers.append((self._version, stand, future))
            self.dirty()
            await future

    async def effect(self, stand: Stand, at: str, intent: dict[str, Json] | None = None) -> Body:
        """Begins an effect: everything before it is durable, and so is its intent if it has one."""
        self.check_cancelled(stand.shielded)
        await self.live(stand, at)
        await self.written(stand)
        # What has changed since: a body begins only where its end counts, and none begins in a worker that stops.
        if self._stopping or not self._may_settle(stand):
            await self.never()
        self.check_cancelled(stand.shielded)
        body = Body(stand)
        self._bodies.add(body)
        if intent is not None:
            self.add("stepStarted", step=at, **intent)
            with self.held(body):
                await self.written(stand)
            if not self._may_settle(stand):
                self.over(body)
                await self.never()
        return body

    @contextmanager
    def held(self, body: Body) -> Iterator[None]:
        """If the code stops to wait for a body, as a task group does whose other tasks have failed, the body is given up."""
        try:
            yield
        except asyncio.CancelledError:
            self.over(body)
            body.abort()
            raise

    def over(self, body: Body) -> bool:
        """An effect has ended; false if its branch has lost or the run is gone, and its result is dropped."""
        counts = body in self._bodies
        self._bodies.discard(body)
        self.dirty()
        return counts and not self.gone and not body.stand.branch.is_lost

    async def outside(self, body: Body | None, work: Callable[[], Awaitable[T]]) -> T:
        """Does something on the loop of the process, and waits for it here."""
        future: asyncio.Future[T] = self.loop.create_future()

        def ended(task: asyncio.Task[T]) -> None:
            if body is not None:
                body.task = None
                self.dirty()
            if self.gone or future.done():
                task.cancelled() or task.exception()
            elif task.cancelled():
                future.set_exception(Fail("retryable", "the body was cancelled"))
            elif (raised := task.exception()) is not None:
                future.set_exception(raised if isinstance(raised, Exception) else Fail("panic", repr(raised)))
            else:
                future.set_result(task.result())

        async def whole() -> T:
            return await work()

        task = self.outer.create_task(whole())
        if body is not None:
            body.task = task
        task.add_done_callback(ended)
        return await future

    async def inward(self, work: Coroutine[Any, Any, T]) -> T:
        """Does something on the loop of the run, and waits for it in a body, on the loop of the process."""
        future: asyncio.Future[T] = self.outer.create_future()

        def ended(task: asyncio.Task[T]) -> None:
            if future.done() or task.cancelled():
                future.cancel()
            elif (raised := task.exception()) is not None:
                future.set_exception(raised)
            else:
                future.set_result(task.result())

        task = self.loop.create_task(work)
        task.add_done_callback(ended)
        try:
            return await future
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def call(self, body: Body, limit: int | None, work: Callable[[], Any], threaded: bool) -> Any:
        """Calls a body where ``ctx`` refuses: a plain function in a thread, unless it is to run inline."""

        async def guarded() -> Any:
            _inside.set(self)
            try:
                async with asyncio.timeout(None if limit is None else limit / 1000) as time:
                    body.threaded = threaded
                    value = await asyncio.to_thread(work) if threaded else work()
                    body.threaded = False
                    return await value if isinstance(value, Awaitable) else value
            except TimeoutError as late:
                if not time.expired():
                    raise
                raise Fail("timeout", f"the body took longer than {limit} ms") from late

        with self.held(body):
            return await self.outside(body, guarded)

    async def wait(self, stand: Stand, asks: str, due: int | None, attempt: Callable[[int], list[T] | None]) -> T:
        """Waits durably: for a time, or for what ``attempt`` looks for. The run needs no worker meanwhile."""
        if self.replaying:
            self.check_cancelled(stand.shielded)
        await self.live(stand, asks)
        wait = Wait(stand, due, attempt, self.loop.create_future())
        self._waits.append(wait)
        self._try_wait(wait)
        self.dirty()
        try:
            result: T = await wait.future
        finally:
            if wait in self._waits:
                self._waits.remove(wait)
        return result

    def _try_wait(self, wait: Wait) -> None:
        if not self._may_act or wait.stand.branch.is_lost or self.replaying or wait.future.done():
            return
        got = wait.attempt(self.host.earliest())
        if got is not None:
            self._waits.remove(wait)
            wait.future.set_result(got[0])
        elif self.cancelling is not None and not wait.stand.shielded:
            self._waits.remove(wait)
            wait.future.set_exception(Cancelled(self.cancelling["reason"]))

    def _try_waits(self) -> None:
        for wait in list(self._waits):
            self._try_wait(wait)

    def defer(self, stand: Stand, act: Callable[[], None]) -> None:
        """Does it when the run is live; in the order in which it was asked for."""
        if self.gone or stand.branch.is_lost:
            return
        if self.replaying:
            self._deferred.append(lambda: None if stand.branch.is_lost else act())
        else:
            act()
        self.dirty()

    async def turn_of(self, name: Any, work: Callable[[], Awaitable[T]]) -> T:
        """One call at a time under a name."""
        while (before := self._turns.get(name)) is not None:
            await before
        mine: asyncio.Future[None] = self.loop.create_future()
        self._turns[name] = mine
        try:
            return await work()
        finally:
            self._turns.pop(name, None)
            if not mine.done():
                mine.set_result(None)

    def lose(self, branches: list[Branch]) -> None:
        """A race is decided: what these branches wait for, and what their bodies bring, is dropped."""
        for branch in branches:
            branch.lost = True
        self._waits = [wait for wait in self._waits if not wait.stand.branch.is_lost]
        for body in [body for body in self._bodies if body.stand.branch.is_lost]:
            self._bodies.remove(body)
            body.abort()
        self.dirty()

    # What comes from outside

    def take_in(self, arrivals: list[Json]) -> None:
        """Takes in messages of the inbox."""
        for arrival in arrivals:
            number, message = arrival["number"], arrival["message"]
            if number <= self.seen:
                continue
            self.seen = number
            kind, of = next(iter(message.items()))
            match kind:
                case "delivery":
                    self._deliveries.setdefault(of["token"], []).append((number, of["payload"]))
                case "childEnded":
                    self._child_ends[of["child"]] = (number, of["run"], of["outcome"])
                case "onceSettled":
                    self._settled_onces.setdefault((of["scope"], of["label"]), []).append(number)
                case "keyReleased":
                    self._releases.append((number, of["by"]))
                case "cancelRequested":
                    self._cancels.append((number, of["reason"], of["by"]))
                case "parentCancelled":
                    self._cancels.append((number, f"its parent {of['parent']} was cancelled", of["parent"]))
        self._try_waits()
        self.dirty()

    def take_delivery(self, token: str) -> tuple[int, Json] | None:
        """The next payload for a token, out of the inbox."""
        waiting = self._deliveries.get(token)
        return waiting.pop(0) if waiting else None

    def take_child_end(self, child: str, run: str) -> tuple[int, Json] | None:
        ended = self._child_ends.get(child)
        if ended is None or ended[1] != run:
            return None
        del self._child_ends[child]
        return ended[0], ended[2]

    def take_settled_once(self, place: tuple[str, str]) -> int | None:
        waiting = self._settled_onces.get(place)
        return waiting.pop(0) if waiting else None

    def heard(self, arrivals: int) -> None:
        """So many messages have arrived: what is not read yet is read with the next turn."""
        if arrivals > max(self.seen, self._told):
            self._told = arrivals
            self.look()

    def look(self, start: int | None = None) -> None:
        """There are messages from this number on that are not read yet."""
        start = self.seen + 1 if start is None else start
        self._unread = start if self._unread is None else min(self._unread, start)
        self.dirty()

    def _read(self) -> None:
        if self._unread is None or self._reading or self.gone:
            return
        start, self._unread, self._reading = self._unread, None, True

        async def read() -> None:
            try:
                arrivals = await self.host.inbox(self.id, start)
            except Exception as refused:
                if not self.gone:
                    self.host.log("error", f"the inbox of {self.id} cannot be read, and the run is given up here: {refused}")
                return self.drop()
            self._reading = False
            if self.gone:
                return
            # A child that was attached may have ended long ago, under a number that was read already.
            for arrival in arrivals:
                ended = arrival["message"].get("childEnded")
                if arrival["number"] <= self.seen and ended is not None:
                    record = self.records.get(ended["child"])
                    if isinstance(record, dict) and "child" in record and record["child"].get("outcome") is None:
                        self._child_ends[ended["child"]] = (arrival["number"], ended["run"], ended["outcome"])
            self.take_in(arrivals)

        self._outer_task(read())

    def _note_operators(self) -> bool:
        """Records what operators have asked for; true if the code has something to do about it first."""
        if self.replaying or not self._may_act or not (self._cancels or self._releases):
            return False
        cancels, self._cancels = self._cancels, []
        for arrival, reason, by in cancels:
            if self.cancelling is not None:
                self.add("noted", arrival=arrival)
                continue
            self.cancelling = {"reason": reason, "by": by}
            self.add("cancelling", arrival=arrival, reason=reason, by=by)
            self._try_waits()
            for body in self._bodies:
                if not body.stand.shielded:
                    body.abort()
        releases, self._releases = self._releases, []
        for arrival, by in releases:
            self.add("keyReleased", by=by, arrival=arrival)
        return True

    # Turns of the driver

    def dirty(self) -> None:
        if not self.gone:
            self.host.schedule(self)

    def stop(self) -> None:
        """Gives the run back when its running bodies have ended."""
        self._stopping = True
        self.dirty()

    def drop(self) -> None:
        """Drops the run: it belongs to another worker, or the process ends. Nothing of it goes on."""
        if self.gone:
            return
        self.gone = True
        self.loop.drop()
        if self._alarm is not None:
            self._alarm.cancel()
        for body in list(self._bodies):
            body.abort()
        self._bodies.clear()
        self._waits.clear()
        self._parked.clear()
        self._barriers.clear()
        self._deferred.clear()
        self._turns.clear()
        self.losers.clear()
        self._task = None
        self.host.forget(self)

    def turn(self) -> None:
        """Lets the code go on as far as it can, and then decides what is next."""
        if self.gone:
            return
        self.loop.pump()
        if self.gone or (self.replaying and self._end_replay()):
            return
        self._read()
        if self._note_operators():
            return
        if self._in_flight:
            return
        if not self._leaving and all(version <= self._durable for version, _, _ in self._barriers):
            self._leave()
        if self._entries or self._drafts:
            self._send()
        else:
            self._set_alarm()

    def _end_replay(self) -> bool:
        if not self._missing:
            self.replaying = False
            parked, self._parked = self._parked, []
            for one in parked:
                if one[1].branch.is_lost:
                    self._parked.append(one)
                else:
                    _wake(one[2])
            deferred, self._deferred = self._deferred, []
            for act in deferred:
                act()
            self.dirty()
            return True
        if self._diverged is None:
            self._judge()
        self.replaying = False
        self.dirty()
        return True

    def _judge(self) -> None:
        missing = ", ".join(f"`{visit}`" for visit in sorted(self._missing)[:5])
        asked = ", ".join(sorted({f"`{asks}`" for asks, _, _ in self._parked if asks is not None}))
        instead = f"the code asks for {asked} instead" if asked else "the code ends without it"
        self.diverge(
            f"{missing} is in the ledger and {instead}: was a step renamed, removed or moved? Or does the code decide by something "
            "that is not recorded: a clock, chance, or something it awaits outside of a step?"
        )

    def _leave(self) -> None:
        now, deadline, idle = self.host.earliest(), self.claim.get("deadline"), not self._bodies
        if deadline is not None and deadline <= now:
            self._diverged = None
            return self._last("timedOut", limit=deadline)
        if self._diverged is not None:
            self._grace = self._grace or now + GRACE
            if idle or self._stopping or self._grace <= now:
                self.host.log("error", f"{self.id} does not fit its code and is paused: {self._diverged}")
                why, self._diverged = self._diverged, None
                self._last("paused", reason={"diverged": why})
            return None
        if self._end is not None:
            return self._finish(*self._end)
        if self._stopping and idle:
            return self._last("waiting", due=now)
        if self._is_in_doubt and idle:
            return self._last("paused", reason="inDoubt")
        if idle and self._waits and not self._reading and self._unread is None:
            due = self._next_due()
            if due is None or due > now + NOT_WORTH_A_REST:
                self._last("waiting", due=due)
        return None

    def _last(self, kind: str, **members: Json) -> None:
        self.add(kind, **members)
        self._leaving = True

    @property
    def _is_in_doubt(self) -> bool:
        return any(isinstance(record, dict) and "inDoubt" in record for record in self.records.values())

    def _finish(self, value: Json, fail: Fail | None) -> None:
        if fail is not None:
            if fail.kind == "cancelled" and self.cancelling is not None:
                return self._last("cancelled", **self.cancelling)
            return self._last("failed", error=fail.view())
        for step in sorted(self._intents):
            record = self.records.get(step)
            if isinstance(record, dict) and "started" in record:
                self.add("stepInDoubt", step=step, reason="the workflow went on without waiting for its end")
        if self._is_in_doubt:
            return self._last("paused", reason="inDoubt")
        try:
            self._last("completed", value=value)
        except Fail as refused:
            self._last("failed", error=refused.view())
        return None

    def _next_due(self) -> int | None:
        dues = [wait.due for wait in self._waits if wait.due is not None]
        if self.claim.get("deadline") is not None:
            dues.append(self.claim["deadline"])
        return min(dues, default=None)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        dues = [due for due in (self._next_due(), self._grace) if due is not None]
        if self._leaving or not dues:
            return

        def ring() -> None:
            self._try_waits()
            self.dirty()

        self._alarm = self.outer.call_later(max(min(dues) - self.host.earliest(), 0) / 1000 + 0.001, ring)

    def _send(self) -> None:
        expected = self._version - len(self._entries) - len(self._drafts)
        commit = Commit(self.id, expected, self.seen, *self._front())
        self._in_flight = True

        async def send() -> None:
            await self.host.probe(self.id, "before a commit")
            answer = await self.host.commit(commit)
            await self.host.probe(self.id, "after a commit")
            if self.gone:
                return
            self._in_flight = False
            if "ok" in answer:
                return self._saved(answer["ok"])
            # Another owner has the run: it is dropped without a word. What the server refuses is a fault of this SDK.
            if not isinstance(answer["error"], dict) or "concurrency" not in answer["error"]:
                self.host.log("error", f"the server has refused a commit of {self.id}: {answer['error']}")
            self.drop()

        self._outer_task(send())

    def _front(self) -> tuple[list[str], list[tuple[int, str]]]:
        """Takes from the front of what is to be recorded as much as fits into a commit."""
        n = d = size = 0
        while n < len(self._entries) or d < len(self._drafts):
            is_draft = d < len(self._drafts) and self._drafts[d][0] <= n
            length = len(self._drafts[d][1] if is_draft else self._entries[n])
            if size and size + length > COMMIT:
                break
            size += length
            n, d = (n, d + 1) if is_draft else (n + 1, d)
        front = self._entries[:n], self._drafts[:d]
        self._entries, self._drafts = self._entries[n:], [(after - n, text) for after, text in self._drafts[d:]]
        return front

    def _outer_task(self, coroutine: Any) -> None:
        task = self.outer.create_task(coroutine)
        _background.add(task)
        task.add_done_callback(_background.discard)

    def _saved(self, ok: dict[str, Json]) -> None:
        self._durable = ok["version"]
        for settled in ok.get("settled", []):
            self._settle(settled)
        if self._leaving and self._durable >= self._version:
            return self.drop()
        self.heard(ok.get("arrivals", 0))
        barriers, self._barriers = self._barriers, []
        for one in barriers:
            if one[0] > self._durable:
                self._barriers.append(one)
            elif not one[1].branch.is_lost:
                _wake(one[2])
        self._try_waits()
        self.dirty()

    def _settle(self, settled: dict[str, Json]) -> None:
        kind, of = next(iter(settled.items()))
        if kind == "hookOpened":
            self.records[of["hook"]]["hook"]["state"] = "open"
        elif kind == "hookConflicted":
            self.records[of["hook"]]["hook"].update(state="conflicted", owner=of["owner"])
        else:
            self.records[of["child"]] = {"child": {"run": of["run"]}}
            if of["attached"]:
                self.look(1)
        deferred, self._deferred = self._deferred, []
        for act in deferred:
            act()

    def close_hook(self, stand: Stand, visit: str) -> None:
        """Closes a hook: now, or as soon as the store has answered that it is open."""

        def act() -> None:
            state = (self.hook_at(visit) or {}).get("state")
            if state == "open":
                self.add("hookClosed", hook=visit)
            elif state == "opening":
                self._deferred.append(lambda: self.close_hook(stand, visit))

        self.defer(stand, act)

    def open_hook(self, stand: Stand, visit: str, token: str) -> None:
        """Opens a hook unless the ledger has it."""
        found = self.found(visit, "hook", "a hook")
        if found and found[0]["state"] != "released":
            if found[0]["token"] != token:
                self.diverge(f"`{visit}` is not the hook that the ledger has there")
            return
        self.defer(stand, lambda: self.draft("openHook", hook=visit, token=token))


_background: set[asyncio.Task[Any]] = set()


def _wake(future: asyncio.Future[None]) -> None:
    """Lets the code go on that waits, if it still does."""
    if not future.done():
        future.set_result(None)


def path_of(scope: str, name: str, key: str | None = None) -> str:
    """The path of a name in a scope, with its key."""
    path = name if scope == "" else f"{scope}/{name}"
    return path if key is None else f"{path}[{key}]"


def once_visit(name: str, label: str) -> str:
    """The visit under which the failure of a ``run_once`` is recorded."""
    return f"{name}[{path_key(label)}]"
