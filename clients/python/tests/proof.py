"""A worker of the proof in crates/semel-server/tests/proof: it plays the programs of execute.rs and worker.rs there, until it is killed."""

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from psycopg_pool import AsyncConnectionPool

from semel import AsyncSemel, Attempt, Cancelled, Ctx, Fail, QueueTask, Retry, fatal, workflow
from semel.tx import Psycopg

Told = list[list[Any]]

PLACE: dict[str, Any] = json.loads(os.environ["SEMEL_PROOF_PLACE"])
LEASE = PLACE["lease"]["secs"] + PLACE["lease"]["nanos"] / 1e9
#: How long an effect may take, in seconds; some answers of the recorder take longer. A look-up has longer: without an answer, its step is
#: in doubt.
PATIENCE, LOOK_UP, TX = 0.4, 20.0, 4.0
QUEUE = "elsewhere"
#: The database may be away for a while, and the recorder fails often: no step gives up.
STUBBORN = Retry(initial=0.04, factor=1, jitter=0, max_attempts=10_000)
POOL: AsyncConnectionPool[Any] = AsyncConnectionPool(PLACE["rows"], open=False, min_size=1, max_size=6, timeout=2)


async def post(path: str, body: Any, patience: float) -> Any:
    def send() -> Any:
        request = urllib.request.Request(f"{PLACE['recorder']}/{path}", json.dumps(body).encode(), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=patience) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            raise fatal(f"refused: {text}") if error.code == 409 else RuntimeError(f"{error.code}: {text}") from error

    return await asyncio.to_thread(send)


def ask(at: str, kind: str, a: Attempt) -> dict[str, Any]:
    return {"at": at, "run": a.run_id, "key": a.key, "fence": a.fence, "attempt": a.number, "kind": kind}


def effect(at: str, kind: str) -> Callable[[Attempt], Awaitable[Any]]:
    async def body(a: Attempt) -> Any:
        return await post("effects", ask(at, kind, a), PATIENCE)

    return body


class Player:
    """A program at work: at its place, and in a scope of its names, which ends with a slash."""

    def __init__(self, ctx: Ctx, place: str, scope: str = "") -> None:
        self.ctx, self.place, self.scope = ctx, place, scope

    async def all(self, acts: list[dict[str, Any]]) -> Told:
        told: Told = []
        for act in acts:
            for kind, of in act.items():
                told += await getattr(self, f"play_{kind}")(**of)
        return told

    def at(self, name: str) -> str:
        return f"{self.place} {self.scope}{name}"

    def below(self, name: str, ctx: Ctx | None = None) -> "Player":
        return Player(ctx or self.ctx.scope(name), self.place, f"{self.scope}{name}/")

    @property
    def dotted(self) -> str:
        return self.scope.replace("/", ".")

    async def step(self, name: str, at: str | None = None, **options: Any) -> list[Any]:
        where = self.at(at or name)
        return [where, await self.ctx.step(name, effect(where, "keyed"), retry=STUBBORN, timeout=PATIENCE, **options)]

    async def play_step(self, n: int) -> Told:
        return [await self.step(f"s{n}")]

    async def play_fatal(self, n: int) -> Told:
        async def body(a: Attempt) -> None:
            await effect(self.at(f"s{n}"), "keyed")(a)
            raise fatal("as planned")

        try:
            await self.ctx.step(f"s{n}", body, retry=STUBBORN, timeout=PATIENCE)
        except Fail as fail:
            if fail.kind == "fatal":
                return []
            raise
        raise fatal("a step that always fails has succeeded")

    async def play_letter(self, n: int) -> Told:
        at = self.at(f"s{n}")
        return [[at, await self.ctx.step(f"s{n}", effect(at, "blind"), at_most_once=True, timeout=PATIENCE)]]

    async def play_asked(self, n: int) -> Told:
        at = self.at(f"s{n}")

        async def look(a: Attempt) -> Any:
            return await post("look-ups", ask(at, "blind", a), LOOK_UP)

        return [[at, await self.ctx.step(f"s{n}", effect(at, "blind"), retry=STUBBORN, timeout=PATIENCE, reconcile=look)]]

    async def play_tx(self, n: int) -> Told:
        at = self.at(f"s{n}")

        async def insert(db: Any, a: Attempt) -> int:
            cursor = await db.execute("INSERT INTO effects (place, effect_key) VALUES (%s, %s) RETURNING number", (at, a.key))
            return int((await cursor.fetchone())[0])

        return [[at, await self.ctx.tx(f"s{n}", Psycopg(POOL), insert, retry=STUBBORN, timeout=TX)]]

    async def play_remote(self, n: int) -> Told:
        at = self.at(f"s{n}")
        given = {"at": at, "run": self.ctx.run_id}
        return [[at, await self.ctx.remote(f"s{n}", QUEUE, given, retry=STUBBORN, timeout=PATIENCE)]]

    async def play_repeat(self, n: int, times: int, indexed: bool) -> Told:
        told: Told = []
        for i in range(1, times + 1):
            if indexed:
                told.append(await self.step(f"s{n}", f"s{n}" if i == 1 else f"s{n}#{i}", indexed=True))
            else:
                told.append(await self.step(f"s{n}", f"s{n}[{i}]", key=i))
        return told

    async def play_loop(self, n: int, times: int, acts: list[Any]) -> Told:
        return [one for i in range(times) for one in await self.below(f"l{n}-{i}").all(acts)]

    async def play_join(self, n: int, left: list[Any], right: list[Any]) -> Told:
        sides = {f"left{n}": left, f"right{n}": right}
        both = await self.ctx.all(**{side: lambda c, side=side: self.below(side, c).all(sides[side]) for side in sides})
        return [*both[f"left{n}"], *both[f"right{n}"]]

    async def play_race(self, n: int, millis: int, acts: list[Any]) -> Told:
        def part(c: Ctx) -> Awaitable[Told]:
            # In this branch, with names as the programs of the proof have them: they do not know the names of branches.
            return self.below(f"race{n}", Ctx(c._run, c._stand, f"{self.scope}race{n}")).all(acts)

        won, told = await self.ctx.race(f"race{n}", part=part, limit=lambda c: c.sleep(f"limit{n}", millis / 1000))
        return list(told) if won == "part" else []

    async def play_nap(self, n: int, millis: int) -> Told:
        before = await self.step(f"b{n}")
        await self.ctx.sleep(f"nap{n}", millis / 1000)
        return [before, await self.step(f"a{n}")]

    async def play_hook(self, n: int, payloads: int) -> Told:
        token = f"{self.place}:{self.dotted}h{n}"
        hook = self.ctx.hook(token, int)
        return [[f"{token} {i}", await hook.recv()] for i in range(payloads)]

    async def play_once(self, label: int) -> Told:
        async def rate() -> Any:
            return await post("rates", label, LOOK_UP)

        return [[f"once {label}", await self.ctx.run_once(f"once {label}", rate, scope="workspace")]]

    async def play_child(self, n: int, acts: list[Any]) -> Told:
        name = f"{self.dotted}{n}"
        child = await self.ctx.child(program, {"place": f"{self.place}.{name}", "acts": acts}, key=name)
        return await child.result()


@workflow("program")
async def program(ctx: Ctx, given: dict[str, Any]) -> Told:
    place = given["place"]
    try:
        return await Player(ctx, place).all(given["acts"])
    except Cancelled:
        for part in ("one", "two"):
            await ctx.cleanup().step("clean up", effect(f"{place} clean up[{part}]", "keyed"), key=part, retry=STUBBORN, timeout=PATIENCE)
            await ctx.cleanup().sleep(f"after {part}", 0.02)
        raise


@workflow("letters")
async def letters(ctx: Ctx, given: dict[str, Any]) -> Told:
    """What the proof does while it restarts servers: letters that must not be written twice, each of which takes a while."""

    async def write(a: Attempt) -> Any:
        await asyncio.sleep(given["millis"] / 1000)
        while True:
            # The recorder loses answers, and absorbs what it knows.
            try:
                return await effect(f"{given['place']} {a.path}", "keyed")(a)
            except Exception as error:
                print(f"the recorder is asked again: {error}", flush=True)

    names = [f"letter{n}" for n in range(given["count"])]
    return [[name, await ctx.step(name, write, at_most_once=True, timeout=60)] for name in names]


async def elsewhere(given: Any, task: QueueTask) -> Any:
    return await post("effects", {**given, "key": task.key, "fence": task.fence, "attempt": task.attempt, "kind": "keyed"}, PATIENCE)


async def main() -> None:
    semel = AsyncSemel(PLACE["server"])
    await POOL.open()
    while True:
        try:
            # The nemesis knows workers by their process.
            return await semel.worker([program, letters], queues={QUEUE: elsewhere}, name=f"pid-{os.getpid()}", lease=LEASE).run()
        except Exception as error:
            print(f"there is no server yet: {error}", flush=True)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
