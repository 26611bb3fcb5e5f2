"""Clients: start, deliver, look up and control runs, with asyncio or without."""

from __future__ import annotations

import builtins
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from ._duration import Duration, millis
from ._errors import SemelError
from ._http import Address, AsyncHttp, BlockingHttp, pause_of
from ._json import decode, encode
from ._keys import uuid7
from ._types import read_as
from ._worker import Worker
from ._workflow import Workflow

In = TypeVar("In")
Out = TypeVar("Out")
T = TypeVar("T")

_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT")


class RunFailed(Exception):
    """A run that ended otherwise than by a result. ``run`` is the run as the server shows it."""

    def __init__(self, run: dict[str, Any]) -> None:
        why = (run.get("error") or {}).get("message") or run.get("cancelReason")
        super().__init__(f"{run['id']} has ended as {run['status']}" + (f": {why}" if why else ""))
        self.run = run


@dataclass(frozen=True)
class _Call:
    """A call to the server: what is sent, and what is made of the answer."""

    method: str
    path: str
    body: Any = None
    key: str | None = None
    timeout: float = 30.0

    def headers(self) -> dict[str, str]:
        if self.key is None:
            return {}
        if not self.key.isascii():
            if self.path == "/workflow-runs":
                return {}
            raise ValueError(f"{self.key!r} has other characters than those of ASCII: give another id")
        return {"idempotency-key": '"' + self.key.replace("\\", "\\\\").replace('"', '\\"') + '"'}

    def text(self) -> str | None:
        return None if self.method == "GET" else encode(self.body)


def _write(path: str, body: Any, key: str | None = None) -> _Call:
    if key == "":
        raise ValueError("the key is empty")
    return _Call("POST", path, body, key or str(uuid7()))


def _period(duration: Duration) -> str:
    return duration if isinstance(duration, str) else f"{millis(duration)}ms"


def _start_body(workflow: Workflow[Any, Any] | str, input: Any, definition: bool, options: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"input": input}
    if isinstance(workflow, Workflow):
        body |= {"workflow": workflow.name, "workflowVersion": workflow.version}
    else:
        body["definitionId" if definition else "workflow"] = workflow
    for name, value in options.items():
        if value is not None:
            body["onConflict" if name == "on_conflict" else name] = _period(value) if name in ("delay", "timeout") else value
    if "retention" in body:
        body["retention"] = {name: _period(period) for name, period in body["retention"].items()}
    return body


def _start(workflow: Workflow[Any, Any] | str, input: Any, key: str | None, definition: bool, options: dict[str, Any]) -> _Call:
    body = _start_body(workflow, input, definition, options)
    # A header has only ASCII characters; a key may have others.
    if key is not None and not key.isascii():
        body["idempotencyKey"] = key
    return _write("/workflow-runs", body, key)


def _start_many(workflow: Workflow[Any, Any] | str, starts: list[dict[str, Any]], id: str | None, definition: bool) -> _Call:
    runs = []
    for start in starts:
        options = {name: value for name, value in start.items() if name not in ("input", "key")}
        body = _start_body(workflow, start.get("input"), definition, options)
        runs.append(body | ({"idempotencyKey": start["key"]} if start.get("key") is not None else {}))
    return _write("/workflow-runs/batch", {"runs": runs}, id)


def _refused(result: dict[str, Any]) -> SemelError:
    said = result["problem"]
    return SemelError(said["status"], said["code"], said["detail"], owner=said.get("owner"), pointers=said.get("pointers"))


def _output_of(workflow: Workflow[Any, Any] | str) -> Any:
    return workflow.output_type() if isinstance(workflow, Workflow) else None


def _steps(generator: Generator[_Call, Any, T], send: Callable[[_Call], Any]) -> T:
    """Plays a conversation of several calls."""
    try:
        call = next(generator)
        while True:
            call = generator.send(send(call))
    except StopIteration as over:
        return cast(T, over.value)


def _result(run: str, limit: float | None) -> Generator[_Call, Any, Any]:
    until = time.monotonic() + (float("inf") if limit is None else limit)
    while True:
        wait = int(max(0.0, min(30.0, until - time.monotonic() + 0.999)))
        view = yield _Call("GET", f"/workflow-runs/{run}?wait={wait}", timeout=wait + 30.0)
        if view["status"] == "COMPLETED" and not view.get("purged"):
            return view.get("result")
        if view["status"] in _ENDED:
            raise RunFailed(view)
        if time.monotonic() >= until:
            raise SemelError(0, "TIMEOUT", f"{run} is {view['status']}: it has not ended in time")


def _resolution(happened: Any, give_up: str | None, absent: bool) -> dict[str, Any]:
    if absent:
        return {"resolution": "did-not-happen"}
    return {"resolution": "give-up", "message": give_up} if give_up is not None else {"resolution": "happened", "value": happened}


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def _query(options: dict[str, Any]) -> dict[str, str]:
    texts = {name: value.isoformat() if isinstance(value, datetime) else str(value) for name, value in options.items() if value is not None}
    return {"limit": "100", **texts}


class _Started(Generic[Out]):
    """What a start has answered."""

    def __init__(self, answer: dict[str, Any]) -> None:
        #: What the start turned out to be: created, attached, replayed, restarted, superseded or rejected.
        self.verdict: str = answer["verdict"]
        #: Whether the run is new.
        self.created: bool = answer["created"]
        #: The run at that moment.
        self.run: dict[str, Any] = answer["run"]


class AsyncRun(Generic[Out]):
    """A run on the server."""

    def __init__(self, semel: AsyncSemel, run: str, type_: Any = None) -> None:
        self._semel, self._type = semel, type_
        #: Id of the run.
        self.id = run

    async def get(self) -> dict[str, Any]:
        """The run as it is now."""
        return cast(dict[str, Any], await self._semel._send(_Call("GET", f"/workflow-runs/{self.id}")))

    async def result(self, timeout: Duration | None = None) -> Out:
        """The result, when the run has ended. Any other end is raised as ``RunFailed``; a time that is over as ``SemelError``."""
        talk = _result(self.id, None if timeout is None else millis(timeout) / 1000)
        try:
            call = next(talk)
            while True:
                call = talk.send(await self._semel._send(call))
        except StopIteration as over:
            return cast(Out, read_as(self._type, over.value, f"the result of {self.id}"))

    async def cancel(self, reason: str = "", *, graceful: bool = False) -> dict[str, Any]:
        """Ends the run. With ``graceful``, its code is asked to end and may clean up."""
        return await self._control("cancel", {"reason": reason, "graceful": graceful})

    async def pause(self) -> dict[str, Any]:
        return await self._control("pause", {})

    async def resume(self) -> dict[str, Any]:
        return await self._control("resume", {})

    async def retry(self) -> dict[str, Any]:
        """Tries a failed run again from where it failed, with the same effect keys."""
        return await self._control("retry", {})

    async def restart(self, *, from_: Literal["failure", "beginning"] = "failure") -> dict[str, Any]:
        """Starts a run again that has failed or timed out, where it failed or from the beginning. Its effects keep their keys."""
        return await self._control("restart", {"from": from_})

    async def fork(self, *, at: int | None = None, key: str | None = None, fresh_keys: bool = False) -> AsyncRun[Out]:
        """A new run with the first ``at`` entries of this one, or all of them. It has the same effect keys, unless they are to be fresh."""
        forked = await self._control("fork", {"at": at, "key": key, "freshKeys": fresh_keys})
        return AsyncRun(self._semel, forked["id"], self._type)

    async def resolve(self, step: str, *, happened: Any = None, give_up: str | None = None, did_not_happen: bool = False) -> None:
        """Settles a step in doubt: it happened with this value, it did not, or the run gives up."""
        await self._semel._send(_write(f"/workflow-runs/{self.id}/steps/{_quoted(step)}/resolve", _resolution(happened, give_up, did_not_happen)))

    async def _control(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._semel._send(_write(f"/workflow-runs/{self.id}/{action}", body))
        return cast(dict[str, Any], answer["run"])


class AsyncStarted(AsyncRun[Out], _Started[Out]):
    """A run that was just started, or found under its key."""

    def __init__(self, semel: AsyncSemel, answer: dict[str, Any], type_: Any) -> None:
        AsyncRun.__init__(self, semel, answer["run"]["id"], type_)
        _Started.__init__(self, answer)


class AsyncSemel:
    """A client of a Semel server. Every call is repeated after a lost answer, under the same key."""

    def __init__(self, url: str | None = None, token: str | None = None, *, patience: Duration = 30.0) -> None:
        self.http = AsyncHttp(Address(url, token))
        self._patience = millis(patience) / 1000

    async def start(
        self,
        workflow: Workflow[In, Out] | str,
        input: In,
        *,
        key: str | None = None,
        scope: str | None = None,
        on_conflict: str | None = None,
        delay: Duration | None = None,
        timeout: Duration | None = None,
        retention: dict[str, Duration] | None = None,
        deliver: dict[str, Any] | None = None,
        exclude: builtins.list[str] | None = None,
        definition: bool = False,
    ) -> AsyncStarted[Out]:
        """Starts a run, or finds the one that has the key. With ``definition``, ``workflow`` names a definition."""
        options = {"scope": scope, "on_conflict": on_conflict, "delay": delay, "timeout": timeout, "retention": retention, "deliver": deliver, "exclude": exclude}
        return AsyncStarted(self, await self._send(_start(workflow, input, key, definition, options)), _output_of(workflow))

    async def start_many(
        self, workflow: Workflow[In, Out] | str, starts: builtins.list[dict[str, Any]], *, id: str | None = None, definition: bool = False
    ) -> builtins.list[AsyncStarted[Out] | SemelError]:
        """Starts up to 1,000 runs by one call: each of ``starts`` has ``input`` and, if wanted, the options of ``start``. Each is decided by
        itself: a refused one is a ``SemelError`` at its place. One without a key gets a key of the call, which can be repeated under the
        same ``id``.
        """
        results, type_ = (await self._send(_start_many(workflow, starts, id, definition)))["results"], _output_of(workflow)
        return [AsyncStarted(self, one["start"], type_) if "start" in one else _refused(one) for one in results]

    def run(self, id: str) -> AsyncRun[Any]:
        """A run by its id."""
        return AsyncRun(self, id)

    async def deliver(self, token: str, payload: Any, *, id: str | None = None) -> dict[str, Any]:
        """Puts a payload into the hook that has this token. The same id twice is consumed once."""
        return cast(dict[str, Any], await self._send(_write(f"/hooks/{_quoted(token)}", payload, id)))

    async def hook(self, token: str) -> dict[str, Any] | None:
        """What owns a token, if anything does."""
        return await self._find(f"/hooks/{_quoted(token)}")

    async def key(self, key: str, scope: str = "*") -> dict[str, Any] | None:
        """What a key points at."""
        return await self._find(f"/keys/{_quoted(key)}?scope={_quoted(scope)}")

    async def release_key(self, key: str, scope: str = "*") -> dict[str, Any]:
        """Frees a key: its run goes on, and the next start with the key makes a new run. Gives the run that had it."""
        answer = await self._send(_write(f"/keys/{_quoted(key)}/release?scope={_quoted(scope)}", {}))
        return cast(dict[str, Any], answer["run"])

    async def list(self, *, status: str | None = None, workflow: str | None = None, key: str | None = None, since: datetime | None = None) -> AsyncIterator[dict[str, Any]]:
        """Runs, newest first, page by page."""
        query = _query({"status": status, "workflow": workflow, "key": key, "since": since})
        while True:
            page = await self._send(_Call("GET", "/workflow-runs?" + urllib.parse.urlencode(query)))
            for run in page["runs"]:
                yield run
            if not page.get("next"):
                return
            query["cursor"] = page["next"]

    def worker(self, workflows: builtins.list[Workflow[Any, Any]] | None = None, **options: Any) -> Worker:
        """A worker that executes workflows and steps of queues. ``await worker.run()`` ends when the process is asked to stop."""
        return Worker(self.http, workflows or [], **options)

    def lifespan(self, workflows: builtins.list[Workflow[Any, Any]], **options: Any) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """The lifespan of a FastAPI or Starlette application: a worker as long as the application lives."""

        @asynccontextmanager
        async def lives(_: Any) -> AsyncIterator[None]:
            async with self.worker(workflows, **options):
                yield
            self.close()

        return lives

    def close(self) -> None:
        """Ends idle connections."""
        self.http.close()

    async def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return cast(dict[str, Any], await self._send(_Call("GET", path)))
        except SemelError as error:
            if error.status == 404:
                return None
            raise

    async def _send(self, call: _Call) -> Any:
        until = time.monotonic() + self._patience
        answer = await self.http.patiently(call.method, call.path, call.text(), call.headers(), call.timeout, until)
        return decode(answer.body)


class SyncRun(Generic[Out]):
    """A run on the server, for programs without asyncio."""

    def __init__(self, semel: Semel, run: str, type_: Any = None) -> None:
        self._semel, self._type = semel, type_
        #: Id of the run.
        self.id = run

    def get(self) -> dict[str, Any]:
        """The run as it is now."""
        return cast(dict[str, Any], self._semel._send(_Call("GET", f"/workflow-runs/{self.id}")))

    def result(self, timeout: Duration | None = None) -> Out:
        """The result, when the run has ended. Any other end is raised as ``RunFailed``; a time that is over as ``SemelError``."""
        value = _steps(_result(self.id, None if timeout is None else millis(timeout) / 1000), self._semel._send)
        return cast(Out, read_as(self._type, value, f"the result of {self.id}"))

    def cancel(self, reason: str = "", *, graceful: bool = False) -> dict[str, Any]:
        """Ends the run. With ``graceful``, its code is asked to end and may clean up."""
        return self._control("cancel", {"reason": reason, "graceful": graceful})

    def pause(self) -> dict[str, Any]:
        return self._control("pause", {})

    def resume(self) -> dict[str, Any]:
        return self._control("resume", {})

    def retry(self) -> dict[str, Any]:
        """Tries a failed run again from where it failed, with the same effect keys."""
        return self._control("retry", {})

    def restart(self, *, from_: Literal["failure", "beginning"] = "failure") -> dict[str, Any]:
        """Starts a run again that has failed or timed out, where it failed or from the beginning. Its effects keep their keys."""
        return self._control("restart", {"from": from_})

    def fork(self, *, at: int | None = None, key: str | None = None, fresh_keys: bool = False) -> SyncRun[Out]:
        """A new run with the first ``at`` entries of this one, or all of them. It has the same effect keys, unless they are to be fresh."""
        forked = self._control("fork", {"at": at, "key": key, "freshKeys": fresh_keys})
        return SyncRun(self._semel, forked["id"], self._type)

    def resolve(self, step: str, *, happened: Any = None, give_up: str | None = None, did_not_happen: bool = False) -> None:
        """Settles a step in doubt: it happened with this value, it did not, or the run gives up."""
        self._semel._send(_write(f"/workflow-runs/{self.id}/steps/{_quoted(step)}/resolve", _resolution(happened, give_up, did_not_happen)))

    def _control(self, action: str, body: dict[str, Any]) -> dict[str, Any]:
        return cast(dict[str, Any], self._semel._send(_write(f"/workflow-runs/{self.id}/{action}", body))["run"])


class SyncStarted(SyncRun[Out], _Started[Out]):
    """A run that was just started, or found under its key."""

    def __init__(self, semel: Semel, answer: dict[str, Any], type_: Any) -> None:
        SyncRun.__init__(self, semel, answer["run"]["id"], type_)
        _Started.__init__(self, answer)


class Semel:
    """A client of a Semel server that blocks. Every call is repeated after a lost answer, under the same key."""

    def __init__(self, url: str | None = None, token: str | None = None, *, patience: Duration = 30.0) -> None:
        self._http = BlockingHttp(Address(url, token))
        self._patience = millis(patience) / 1000

    def start(
        self,
        workflow: Workflow[In, Out] | str,
        input: In,
        *,
        key: str | None = None,
        scope: str | None = None,
        on_conflict: str | None = None,
        delay: Duration | None = None,
        timeout: Duration | None = None,
        retention: dict[str, Duration] | None = None,
        deliver: dict[str, Any] | None = None,
        exclude: builtins.list[str] | None = None,
        definition: bool = False,
    ) -> SyncStarted[Out]:
        """Starts a run, or finds the one that has the key. With ``definition``, ``workflow`` names a definition."""
        options = {"scope": scope, "on_conflict": on_conflict, "delay": delay, "timeout": timeout, "retention": retention, "deliver": deliver, "exclude": exclude}
        return SyncStarted(self, self._send(_start(workflow, input, key, definition, options)), _output_of(workflow))

    def start_many(
        self, workflow: Workflow[In, Out] | str, starts: builtins.list[dict[str, Any]], *, id: str | None = None, definition: bool = False
    ) -> builtins.list[SyncStarted[Out] | SemelError]:
        """Starts up to 1,000 runs by one call: each of ``starts`` has ``input`` and, if wanted, the options of ``start``. Each is decided by
        itself: a refused one is a ``SemelError`` at its place. One without a key gets a key of the call, which can be repeated under the
        same ``id``.
        """
        results, type_ = (self._send(_start_many(workflow, starts, id, definition)))["results"], _output_of(workflow)
        return [SyncStarted(self, one["start"], type_) if "start" in one else _refused(one) for one in results]

    def run(self, id: str) -> SyncRun[Any]:
        """A run by its id."""
        return SyncRun(self, id)

    def deliver(self, token: str, payload: Any, *, id: str | None = None) -> dict[str, Any]:
        """Puts a payload into the hook that has this token. The same id twice is consumed once."""
        return cast(dict[str, Any], self._send(_write(f"/hooks/{_quoted(token)}", payload, id)))

    def hook(self, token: str) -> dict[str, Any] | None:
        """What owns a token, if anything does."""
        return self._find(f"/hooks/{_quoted(token)}")

    def key(self, key: str, scope: str = "*") -> dict[str, Any] | None:
        """What a key points at."""
        return self._find(f"/keys/{_quoted(key)}?scope={_quoted(scope)}")

    def release_key(self, key: str, scope: str = "*") -> dict[str, Any]:
        """Frees a key: its run goes on, and the next start with the key makes a new run. Gives the run that had it."""
        answer = self._send(_write(f"/keys/{_quoted(key)}/release?scope={_quoted(scope)}", {}))
        return cast(dict[str, Any], answer["run"])

    def list(self, *, status: str | None = None, workflow: str | None = None, key: str | None = None, since: datetime | None = None) -> Iterator[dict[str, Any]]:
        """Runs, newest first, page by page."""
        query = _query({"status": status, "workflow": workflow, "key": key, "since": since})
        while True:
            page = self._send(_Call("GET", "/workflow-runs?" + urllib.parse.urlencode(query)))
            yield from page["runs"]
            if not page.get("next"):
                return
            query["cursor"] = page["next"]

    def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return cast(dict[str, Any], self._send(_Call("GET", path)))
        except SemelError as error:
            if error.status == 404:
                return None
            raise

    def _send(self, call: _Call) -> Any:
        until, tries = time.monotonic() + self._patience, 0
        while True:
            try:
                return decode(self._http.call(call.method, call.path, call.text(), call.headers(), call.timeout).body)
            except SemelError as error:
                pause = pause_of(tries)
                if not error.retryable or time.monotonic() + pause > until:
                    raise
                time.sleep(pause)
                tries = min(tries + 1, 10)

