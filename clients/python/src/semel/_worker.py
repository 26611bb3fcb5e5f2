"""Workers: processes that execute runs of a server, with one lease for all of them."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, Self

from ._ctx import Ctx, is_plain
from ._duration import Duration, millis
from ._errors import SemelError, fail_of
from ._http import PROTOCOL, TIMEOUT, AsyncHttp
from ._json import decode, encode
from ._keys import id_of, uuid7
from ._run import Branch, Commit, Run, Stand
from ._workflow import Workflow

#: Maximum number of commits in one request, and of requests under way.
COMMITS = 1_000
REQUESTS = 2
#: Maximum length of a request in characters, if it has more than one commit; the server takes 16 MiB.
REQUEST = 4 * 1024 * 1024
#: How long a claim waits at the server, in milliseconds.
WAIT = 20_000
#: Pause after a call that failed for a reason that time may mend, in seconds.
PAUSE = 0.5
#: Pause after a look or a claim that has found nothing, in seconds: a server that stops answers them at once.
EMPTY = 0.02

_log = logging.getLogger("semel")


class QueueTask:
    """A step of a queue, as its function sees it."""

    def __init__(self, assignment: dict[str, Any]) -> None:
        #: The effect key: the same on every attempt.
        self.key: str = assignment["key"]
        self.attempt: int = assignment["attempt"]
        self.fence: int = assignment["fence"]
        #: Set when the step should stop.
        self.cancelled = asyncio.Event()


class Worker:
    """Claims due runs and drives them."""

    def __init__(
        self,
        http: AsyncHttp,
        workflows: list[Workflow[Any, Any]],
        *,
        queues: dict[str, Callable[[Any, QueueTask], Any]] | None = None,
        name: str | None = None,
        lease: Duration = 10.0,
        slots: int = 1_000,
    ) -> None:
        if not workflows and not queues:
            raise ValueError("a worker without workflows and queues has nothing to do")
        self._http, self._workflows, self._queues = http, workflows, queues or {}
        self._by_version = {(w.name, w.version): w for w in workflows}
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._lease, self._slots = millis(lease), slots
        self._runs: dict[str, Run] = {}
        self._tasks: dict[str, tuple[int, QueueTask]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._node = ""
        #: Set while the node is registered, or is not known not to be.
        self._joined = asyncio.Event()
        self._joined.set()
        self._clock = (int(time.time() * 1000), time.monotonic(), time.monotonic())
        self._due: dict[Run, None] = {}
        self._commits: list[tuple[str, asyncio.Future[dict[str, Any]]]] = []
        self._requests = 0
        self._turning = self._stopping = False
        self._stopped = asyncio.Event()
        self._room = asyncio.Event()
        #: For tests: called before and after each commit, and at both ends of each body.
        self.on_moment: Callable[[str, str], Any] | None = None

    # The life of a worker

    async def start(self) -> Self:
        """Registers the worker and begins to claim."""
        await self._join()
        self._loops.append(asyncio.create_task(self._beat()))
        if self._workflows:
            self._loops.append(asyncio.create_task(self._claim_runs()))
        if self._queues:
            self._loops.append(asyncio.create_task(self._claim_tasks()))
        return self

    async def run(self) -> None:
        """Works until the process is asked to stop, by SIGINT or SIGTERM, or until ``stop()``."""
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, asked.set)
        waits: list[asyncio.Task[Any]] = []
        try:
            await self.start()
            waits += [asyncio.create_task(asked.wait()), asyncio.create_task(self._stopped.wait())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            await self.stop()
        finally:
            for wait in waits:
                wait.cancel()
            # A second signal ends the process, as it did before.
            for number in signals:
                loop.remove_signal_handler(number)

    async def stop(self) -> None:
        """Claims nothing more, lets running bodies end, and gives the runs back."""
        if self._stopping:
            return
        self._stopping = True
        for run in list(self._runs.values()):
            run.stop()
        while self._runs or self._tasks:
            self._room.clear()
            await self._room.wait()
        await self._leave()

    async def kill(self) -> None:
        """Ends at once, as if the process had died, except that the runs are due for others without delay."""
        self._stopping = True
        self._drop_all()
        await self._leave()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _leave(self) -> None:
        self._stopped.set()
        for loop in self._loops:
            loop.cancel()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._loops, *self._background, return_exceptions=True)
        try:
            await self._http.call("POST", "/workers/release", encode({"node": self._node}))
        except SemelError as error:
            _log.warning("the worker's runs are due when its lease ends: %s", error)

    async def _join(self) -> None:
        self._node = id_of("node", uuid7())
        serves = [f"{w.name}@{w.version}" for w in self._workflows] + [f"queue:{queue}" for queue in self._queues]
        await self._timed("/workers", {"node": self._node, "name": self._name, "serves": serves, "leaseMs": self._lease})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3000)
            await self._joined.wait()
            node = self._node
            runs = [{"run": r.id, "fence": r.claim["fence"], "seen": r.seen} for r in list(self._runs.values())[:COMMITS]]
            steps = [{"run": run, "fence": fence} for run, (fence, _) in list(self._tasks.items())[:COMMITS]]
            try:
                leased = await self._timed("/workers/heartbeat", {"node": node, "leaseMs": self._lease, "runs": runs, "steps": steps}, self._lease / 3000)
                for news in leased.get("news", []):
                    run = self._runs.get(news["run"])
                    if run is not None and news.get("taken"):
                        run.drop()
                    elif run is not None:
                        run.heard(news.get("arrived", 0))
                for stop in leased.get("stop", []):
                    if stop["run"] in self._tasks:
                        self._tasks[stop["run"]][1].cancelled.set()
            except Exception as error:
                await self._lost(error, node)

    async def _lost(self, error: Exception, node: str, claimed: bool = False) -> None:
        """After an error. A lease that has ended means a new node; so does a claim that may have taken place and was not answered,
        because the node may own runs that no worker drives. Anything else is tried again.
        """
        if node != self._node:
            return
        status = error.status if isinstance(error, SemelError) else None
        ended = status in (404, 409)
        if ended or (claimed and isinstance(error, SemelError) and error.unsure):
            why = "the lease has ended: the runs belong to other workers" if ended else f"a claim was not answered: {error}"
            _log.warning("%s; this worker joins anew", why)
            self._drop_all()
            self._joined.clear()
            try:
                await self._join()
                if not ended:
                    await self._http.call("POST", "/workers/release", encode({"node": node}))
                return
            except SemelError as again:
                error = again
            finally:
                self._joined.set()
        _log.warning("%s", error)
        await asyncio.sleep(PAUSE)

    def _drop_all(self) -> None:
        for run in list(self._runs.values()):
            run.drop()
        for _, task in self._tasks.values():
            task.cancelled.set()
        self._tasks.clear()

    # Claims

    async def _claim_runs(self) -> None:
        workflows = [{"workflow": w.name, "workflowVersion": w.version} for w in self._workflows]
        while not self._stopping:
            await self._joined.wait()
            node, free = self._node, self._slots - len(self._runs)
            if free <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            path, call = "/workers/claim", {"node": node, "workflows": workflows, "folded": True}
            try:
                told = await self._look(path, call)
                claims: dict[str, Any] = {"runs": []}
                if node == self._node and not self._stopping and told["nextDue"] is not None and told["nextDue"] <= told["now"]:
                    claims = await self._claim(path, {**call, "limit": min(free, COMMITS)})
                for claimed in claims["runs"]:
                    self._drive(claimed, node)
                for run in claims.get("leftOut", []):
                    for claimed in (await self._claim(path, {**call, "limit": 1, "run": run}))["runs"]:
                        self._drive(claimed, node)
                if not claims["runs"]:
                    await asyncio.sleep(EMPTY)
            except Exception as error:
                await self._lost(error, node, claimed=True)

    async def _look(self, path: str, body: dict[str, Any]) -> Any:
        """Waits until something is due. It claims nothing, so that no answer is missed if the server is restarted meanwhile."""
        text = encode({**body, "limit": 1, "waitMs": WAIT, "look": True})
        try:
            return decode((await self._http.patiently("POST", path, text, timeout=WAIT / 1000 + 10)).body)
        except SemelError as error:
            # Whatever became of it, it has claimed nothing.
            error.unsure = False
            raise

    async def _claim(self, path: str, body: dict[str, Any]) -> Any:
        """A claim under an id: if its answer is lost, the repetition gets the same runs. A server that does not know the id any
        more answers it as a new claim; what the lost answer had is then driven by no worker, which is an error.
        """
        text, headers = encode(body), {"idempotency-key": str(uuid7())}
        while True:
            try:
                answer = await self._http.patiently("POST", path, text, headers, until=time.monotonic() + self._lease / 2000)
                claims = decode(answer.body)
                if not answer.again or claims.get("repeated"):
                    return claims
                raise SemelError(0, "NO_ANSWER", "the server was restarted before it answered", unsure=True)
            except SemelError as error:
                # A server that was not reached has claimed nothing: leases continue, and it is asked until it is back.
                if not error.retryable or error.unsure:
                    raise

    def _drive(self, claimed: dict[str, Any], node: str) -> None:
        workflow = self._by_version.get((claimed["workflow"], claimed["workflowVersion"]))
        if workflow is None or self._stopping or node != self._node:
            return
        if (before := self._runs.get(claimed["run"])) is not None:
            before.drop()
        run = Run(self, claimed)
        self._runs[claimed["run"]] = run
        ctx = Ctx(run, Stand(Branch()), "")

        async def execute() -> Any:
            return await workflow.code(ctx, workflow.read_input(claimed["input"]))

        run.begin(execute)

    # What runs ask for

    def earliest(self) -> int:
        now, _, received = self._clock
        return now + int((time.monotonic() - received) * 1000)

    def latest(self) -> int:
        now, sent, _ = self._clock
        return now + int((time.monotonic() - sent) * 1000) + 1

    def random(self) -> float:
        return random.random()

    def log(self, level: str, message: str) -> None:
        _log.log(logging.getLevelNamesMapping()[level.upper()], "%s", message)

    async def probe(self, run: str, moment: str) -> None:
        if self.on_moment is not None:
            await self.on_moment(run, moment)

    def forget(self, run: Run) -> None:
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
        self._room.set()

    def schedule(self, run: Run) -> None:
        self._due[run] = None
        if not self._turning:
            self._turning = True
            run.outer.call_soon(self._turn)

    def _turn(self) -> None:
        """All runs in which something moved have a turn; then what they have recorded is sent."""
        while self._due:
            due, self._due = self._due, {}
            for run in due:
                try:
                    run.turn()
                except Exception:
                    # A fault in one run does not touch the others.
                    _log.exception("%s is given up here", run.id)
                    run.drop()
        self._turning = False
        self._flush()

    async def commit(self, commit: Commit) -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        drafts = ",".join(f'{{"after":{after},"draft":{draft}}}' for after, draft in commit.drafts)
        head = f'"run":"{commit.run}","node":"{self._node}","expected":{commit.expected},"seen":{commit.seen}'
        text = f'{{{head},"entries":[{",".join(commit.entries)}]' + (f',"drafts":[{drafts}]}}' if drafts else "}")
        self._commits.append((text, future))
        if not self._turning:
            self._flush()
        return await future

    def _flush(self) -> None:
        while self._requests < REQUESTS and self._commits:
            count = size = 0
            for text, _ in self._commits[:COMMITS]:
                if count and size + len(text) > REQUEST:
                    break
                count, size = count + 1, size + len(text)
            batch, self._commits = self._commits[:count], self._commits[count:]
            self._requests += 1
            self._spawn(self._request(batch))

    async def _request(self, batch: list[tuple[str, asyncio.Future[dict[str, Any]]]]) -> None:
        try:
            await self._send(batch)
        finally:
            self._requests -= 1
            self._flush()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _send(self, batch: list[tuple[str, asyncio.Future[dict[str, Any]]]]) -> None:
        try:
            sent = time.monotonic()
            answer = await self._http.patiently("POST", "/workers/commit", f'{{"commits":[{",".join(text for text, _ in batch)}]}}')
            told = decode(answer.body)
            answers = told["answers"]
            if (now := told.get("now")) is not None:
                self._learn(now, sent)
        except Exception as error:
            # The server refuses the call as a whole: only the run that is at fault cannot go on here.
            if len(batch) > 1:
                for queued in batch:
                    await self._send([queued])
                return
            answers = [{"error": {"refused": str(error)}}] * len(batch)
        again = []
        for queued, one in zip(batch, answers, strict=True):
            if isinstance(one.get("error"), str):
                again.append(queued)
            elif not queued[1].done():
                queued[1].set_result(one)
        if again:
            await asyncio.sleep(PAUSE)
            self._commits.extend(again)

    async def inbox(self, run: str, start: int) -> list[Any]:
        arrivals: list[Any] = []
        while True:
            answer = await self._http.patiently("POST", "/workers/inbox", encode({"run": run, "from": start, "maxBytes": 8 * 1024 * 1024}))
            page = decode(answer.body)
            arrivals.extend(page)
            if not page or len(answer.body) < 4 * 1024 * 1024:
                return arrivals
            start = page[-1]["number"] + 1

    async def once(self, call: dict[str, Any]) -> dict[str, Any]:
        answer = await self._http.patiently("POST", "/workers/once", encode(call))
        said = decode(answer.body)
        return {said: None} if isinstance(said, str) else said

    # Steps of queues

    async def _claim_tasks(self) -> None:
        while not self._stopping:
            await self._joined.wait()
            node, free = self._node, min(self._slots - len(self._tasks), 100)
            if free <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            path, call = "/workers/steps/claim", {"node": node, "queues": list(self._queues)}
            try:
                told, steps = await self._look(path, call), []
                if node == self._node and not self._stopping and told.get("due"):
                    steps = (await self._claim(path, {**call, "limit": free}))["steps"]
                for assignment in steps:
                    if node == self._node and not self._stopping:
                        self._spawn(self._execute(assignment))
                if not steps:
                    await asyncio.sleep(EMPTY)
            except Exception as error:
                await self._lost(error, node, claimed=True)

    async def _execute(self, assignment: dict[str, Any]) -> None:
        task, node, work = QueueTask(assignment), self._node, self._queues[assignment["queue"]]
        self._tasks[assignment["run"]] = (task.fence, task)
        report: dict[str, Any] = {"run": assignment["run"], "fence": task.fence}
        path = "/workers/steps/complete"
        try:
            value = await asyncio.to_thread(work, assignment["input"], task) if is_plain(work) else work(assignment["input"], task)
            report["value"] = decode(encode(await value if isinstance(value, Awaitable) else value))
        except Exception as raised:
            fail, path = fail_of(raised), "/workers/steps/fail"
            report |= fail.view()
            if fail.retry_after_ms is not None:
                report["retryAfterMs"] = fail.retry_after_ms
        try:
            await self._http.patiently("POST", path, encode({"node": node, "steps": [report]}))
        except SemelError as error:
            _log.error("the report of %s was refused: %s", assignment["run"], error)
        if self._tasks.get(assignment["run"], (0, None))[1] is task:
            del self._tasks[assignment["run"]]
        self._room.set()

    async def _timed(self, path: str, body: dict[str, Any], timeout: float = TIMEOUT) -> Any:
        """A call whose answer tells the store's time."""
        sent = time.monotonic()
        answer = await self._http.call("POST", path, encode(body), timeout=timeout)
        spoken = answer.headers.get("semel-protocol", PROTOCOL)
        if spoken != PROTOCOL:
            raise RuntimeError(
                f"the server speaks version {spoken} of the worker protocol, and this SDK version {PROTOCOL}: install the SDK of the server's release"
            )
        told = decode(answer.body)
        self._clock = (told["now"], sent, time.monotonic())
        return told

    def _learn(self, now: int, sent: float) -> None:
        """The store's time of a commit, if it says more than what is known: the answer came sooner, or the clock was set forward."""
        received, (_, sent_before, received_before) = time.monotonic(), self._clock
        if received - sent < received_before - sent_before or now > self.latest():
            self._clock = (now, sent, received)
