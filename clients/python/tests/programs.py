"""Plays programs of the language of crates/semel/tests/programs (``Act``), with a crash at every boundary.

A Rust test has drawn them, and has written beside each what is expected of it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from psycopg_pool import AsyncConnectionPool

from semel import AsyncSemel, Attempt, Cancelled, Ctx, Fail, Retry, SemelError, Worker, Workflow, fatal
from semel.testing import CrashCase, TestServer, crash_everywhere
from semel.tx import Psycopg, postgres_table

Program = dict[str, Any]
Pool = AsyncConnectionPool[Any]

RETRY = Retry(max_attempts=4, initial=0.025, factor=1, jitter=0)
LATER = 25
#: The clocks of workers and server are known to a millisecond.
ROUNDING = 2
#: No play takes this long, in seconds.
PATIENCE = 30
#: Programs that are played at the same time.
LANES = 6
FENCE = "py_programs_fence"


async def install(pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute(postgres_table(FENCE))
        await connection.execute("CREATE TABLE IF NOT EXISTS py_programs_paid (play text NOT NULL, name text NOT NULL)")


class Town:
    """The world outside of one play: a provider that recognises keys, and what went wrong."""

    def __init__(self, play: str, semel: AsyncSemel, pool: Pool) -> None:
        self.name, self.semel, self.pool = play, semel, pool
        #: The worker at work: 1 before a crash, 2 after it.
        self.life = 0
        self.over = False
        #: Name, key and life of every call.
        self.calls: list[tuple[str, str, int]] = []
        self.wrong: list[str] = []
        #: Deliveries by token.
        self.brought: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, float] = {}
        #: The loop of the process: the code of a workflow has one of its own.
        self._loop = asyncio.get_running_loop()

        async def execute(ctx: Ctx, program: list[Any]) -> list[str]:
            return await self.play_all(ctx, *program)

        # A version of its own: workers of other plays do not take its runs.
        self.execute: Workflow[list[Any], list[str]] = Workflow("programs", play, execute)

    def apply(self, name: str, key: str) -> int:
        self.calls.append((name, key, self.life))
        return self.called(key)

    def called(self, key: str) -> int:
        return sum(1 for _, known, _ in self.calls if known == key)

    def effect(self, name: str, value: Any) -> Callable[[Attempt], Any]:
        async def body(a: Attempt) -> Any:
            self.apply(name, a.key)
            return value

        return body

    async def nap(self, ctx: Ctx, place: str, name: str, ms: int) -> None:
        """A wait, measured from when it was first asked for."""
        at = f"{place}/{name}"
        asked = self._asked.setdefault(at, time.monotonic())
        await ctx.sleep(name, ms / 1000)
        slept = (time.monotonic() - asked) * 1000
        if slept + ROUNDING < ms:
            self.wrong.append(f"the timer {at} of {ms} ms has fired after {slept} ms")

    async def bring(self, token: str, payloads: int) -> None:
        """Brings a hook its payloads as soon as it is open."""
        while not self.over and await self.semel.hook(token) is None:
            await asyncio.sleep(0.005)
        try:
            for i in range(payloads):
                await self.semel.deliver(token, i, id=f"{token} {i}")
        except SemelError as closed:
            # The hook's branch has lost meanwhile, or the run has ended. A run that still waits for it never ends, which is noticed.
            if closed.status != 404:
                raise

    async def play_all(self, ctx: Ctx, place: str, acts: list[dict[str, Any]]) -> list[str]:
        values: list[str] = []
        for act in acts:
            for kind, of in act.items():
                values += await self.play(ctx, place, kind, of)
        return values

    async def play(self, ctx: Ctx, place: str, kind: str, of: dict[str, Any]) -> list[str]:
        n = of["n"]

        async def body(a: Attempt) -> str:
            match kind:
                case "Step":
                    if a.number <= of["fails"]:
                        raise RuntimeError("as planned")
                    self.apply(f"s{n}", a.key)
                    return f"s{n}"
                case "Fatal":
                    self.apply(f"f{n}", a.key)
                    raise fatal("as planned")
                case "Asked":
                    self.apply(f"a{n}", a.key)
                    if of["lost"]:
                        raise RuntimeError("as planned")
                    return f"a{n}"
            raise fatal(f"{kind} is no step")

        match kind:
            case "Step":
                return [await ctx.step(f"s{n}", body, retry=RETRY)]
            case "Fatal":
                try:
                    await ctx.step(f"f{n}", body)
                except Cancelled:
                    raise
                except Fail:
                    return [f"f{n} failed"]
            case "Letter":
                return [await ctx.step(f"m{n}", self.effect(f"m{n}", f"m{n}"), at_most_once=True)]
            case "Asked":

                async def found(a: Attempt) -> str | None:
                    return f"a{n}" if self.called(a.key) else None

                return [await ctx.step(f"a{n}", body, retry=Retry(max_attempts=1), reconcile=found)]
            case "Pay":

                async def pay(db: Any) -> str:
                    await db.execute("INSERT INTO py_programs_paid VALUES (%s, %s)", (self.name, f"t{n}"))
                    return f"t{n}"

                return [await ctx.tx(f"t{n}", Psycopg(self.pool, table=FENCE), pay)]
            case "Repeat":
                way: list[dict[str, Any]] = [{"indexed": True} if of["indexed"] else {"key": i} for i in range(of["times"])]
                return [f"r{n}.{await ctx.step(f'r{n}', self.effect(f'r{n}', i), **how)}" for i, how in enumerate(way)]
            case "Loop":
                parts = [f"l{n}-{i}" for i in range(of["times"])]
                return [value for part in parts for value in await self.play_all(ctx.scope(part), f"{place}/{part}", of["acts"])]
            case "Join":
                sides = {f"{side}{n}": lambda c, side=side: self.play_all(c, place, of[side]) for side in ("left", "right")}
                both = await ctx.all(**sides)
                return [*both[f"left{n}"], *both[f"right{n}"]]
            case "Race":

                async def part(c: Ctx) -> list[str]:
                    values = await self.play_all(c, place, of["acts"])
                    if of["late"]:
                        await c.sleep(f"too long {n}", of["limit"])
                        await c.step(f"never {n}", self.effect("never", None))
                    return values

                won, values = await ctx.race(f"race{n}", part=part, limit=lambda c: self.nap(c, place, f"limit{n}", of["limit"]))
                return list(values) if won == "part" else ["too late"]
            case "Close":
                ms = of["millis"]
                # The longer one is asked first: when both are over, it would win.
                won, _ = await ctx.race(
                    f"close{n}",
                    long=lambda c: self.nap(c, place, f"long{n}", ms * 2),
                    short=lambda c: self.nap(c, place, f"short{n}", ms),
                )
                await ctx.step(f"c{n} {won}", self.effect(f"c{n}", None))
                await self.nap(ctx, place, f"after {n}", ms * 2)
                return [won]
            case "Sleep":
                await self.nap(ctx, place, f"sl{n}", of["millis"])
                return ["slept"]
            case "Hook":
                return await self.hook(ctx, f"{place}:h{n}", of)
            case "Child":
                child = await ctx.child(self.execute, [f"{place}/c{n}", of["acts"]], name="part", key=n)
                return await child.result()
            case "Once":
                name = f"q{n % 2}" if of["shared"] else f"o{n}"
                label = f"{self.name} {name}" if of["shared"] else f"{place}/o{n}"

                async def make() -> str:
                    return f"{name} made by call {self.apply(name, label)}"

                return [(await ctx.run_once(label, make, scope="workspace" if of["shared"] else "run")).split(" ")[0]]
            case "Values":
                noted = [(await ctx.now(f"v{n}")).timestamp(), str(await ctx.uuid(f"v{n}"))]
                kept = await ctx.step(f"v{n}", lambda a: noted, inline=True)
                await self.nap(ctx, place, f"v{n} later", LATER)
                if kept != noted:
                    raise fatal("a value has changed")
                return ["the same"]
        raise fatal(f"there is no act {kind}")

    async def hook(self, ctx: Ctx, token: str, of: dict[str, Any]) -> list[str]:
        hook, payloads = ctx.hook(token, int), of["recv"] + of["recv_for"]
        if token not in self.brought:
            self.brought[token] = self._loop.create_task(self.bring(token, payloads))
        got = [str(await hook.recv()) for _ in range(of["recv"])]
        times = ["1h"] * of["recv_for"] + ([] if of["in_vain"] is None else [f"{of['in_vain']}ms"])
        late = [await hook.recv_for(time) for time in times]
        return got + ["None" if value is None else f"Some({value})" for value in late]

    async def operate(self, run: Any, every: float, patience: float) -> None:
        """Does what a person would do: says what became of steps in doubt. A run that is paused for another reason is wrong."""
        ended = asyncio.create_task(run.result(patience))
        while not (await asyncio.wait([ended], timeout=every))[0]:
            async for paused in self.semel.list(workflow="programs", status="PAUSED"):
                if paused["workflowVersion"] == self.name:
                    await self.settle(paused["id"])
        if isinstance(ended.exception(), SemelError):
            view = await run.get()
            self.wrong.append(f"it is still {view['status']}: {view['steps']}")
            await run.cancel("it can never end")
        self.over = True

    async def settle(self, id: str) -> None:
        run = self.semel.run(id)
        seen = await run.get()
        doubts = [step for step in seen["steps"] if step["status"] == "IN_DOUBT"]
        for step in doubts:
            if self.called(step["effectKey"]):
                await run.resolve(step["path"], happened=step["path"].split("/")[-1])
            else:
                await run.resolve(step["path"], did_not_happen=True)
        if seen["status"] == "PAUSED" and not doubts:
            self.wrong.append(f"{id} is paused: {seen.get('pauseReason')}")
            await run.cancel("it can never end")

    async def judge(self, program: Program, run: dict[str, Any], crashed: bool) -> list[str]:
        """What is not as it should be at the end."""
        wrong, values, wanted = list(self.wrong), run.get("result"), program["values"]
        fits = values is not None and len(values) == len(wanted) and all(want in (None, value) for want, value in zip(wanted, values, strict=True))
        if run["status"] != "COMPLETED" or not fits:
            wrong.append(f"it is {run['status']} with {values or run.get('error')}, not {wanted}")
        known = {effect["name"] for effect in program["effects"]}
        wrong += [f"nothing asks for {name}" for name, _, _ in self.calls if name not in known]
        for effect in program["effects"]:
            name = effect["name"]
            keys = {key for known, key, _ in self.calls if known == name}
            times = await self.paid(name) if effect["calls"] == "rows" else len(keys)
            if not effect["least"] <= times <= effect["most"]:
                wrong.append(f"{name} took place {times} times, not {effect['least']} to {effect['most']} times")
            allowed = 1 if effect["calls"] == "one" or not crashed else 2
            wrong += [f"{name} was asked for {self.called(key)} times under {key}" for key in keys if self.called(key) > allowed]
        first, second = ({key for _, key, life in self.calls if life == number} for number in (1, 2))
        if len(first & second) > program["atOnce"]:
            wrong.append(f"the crash has repeated {len(first & second)} effects, of which {program['atOnce']} can be at work at once")
        return wrong

    async def paid(self, name: str) -> int:
        async with self.pool.connection() as connection:
            counted = await connection.execute("SELECT count(*) FROM py_programs_paid WHERE play = %s AND name = %s", (self.name, name))
            return int((await counted.fetchone())[0])


async def play_program(semel: AsyncSemel, pool: Pool, program: Program, patience: float) -> int:
    """Plays a program with a crash at every boundary, and gives their number. What is wrong is raised."""
    towns: dict[str, Town] = {}

    def town(play: str) -> Town:
        if play not in towns:
            towns[play] = Town(play, semel, pool)
        return towns[play]

    def worker(play: str) -> Worker:
        town(play).life += 1
        return semel.worker([town(play).execute], lease=30)

    async def check(run: dict[str, Any], boundary: str) -> None:
        played = towns.pop(run["key"])
        await asyncio.gather(*played.brought.values())
        wrong = await played.judge(program, run, boundary != "nowhere")
        assert not wrong, f"program {program['seed']}, a crash {boundary} ({played.name}, {run['id']}): {'; '.join(wrong)}"

    every = 0.03 if any(effect["calls"] == "one" for effect in program["effects"]) else 0.3
    case = CrashCase(
        semel,
        worker=worker,
        start=lambda play: semel.start(town(play).execute, [play, program["acts"]], key=play),
        during=lambda play, run: town(play).operate(run, every, patience),
        check=check,
    )
    return await crash_everywhere(case)


async def play_programs(pool: Pool, programs: list[Program], lanes: int = LANES, patience: float = PATIENCE) -> int:
    """Plays programs, several at the same time, until all are played or one is wrong. Gives the number of crashes.

    Each lane has a server of its own: a run that is due wakes one waiting claim at once, and that should be one that can take it.
    """
    left, crashes = list(programs), 0
    await install(pool)

    async def lane() -> None:
        nonlocal crashes
        with await asyncio.to_thread(TestServer) as server:
            semel = AsyncSemel(server.url)
            try:
                while left:
                    count = await play_program(semel, pool, left.pop(0), patience)
                    crashes += count
            finally:
                left.clear()
                semel.close()

    for failed in await asyncio.gather(*(lane() for _ in range(min(lanes, len(programs)))), return_exceptions=True):
        if isinstance(failed, BaseException):
            raise failed
    return crashes
