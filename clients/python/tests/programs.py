"""Plays programs of the language of crates/semel/tests/programs (``Act``), which a Rust test draws.

Each line of stdin is a program as JSON, ``{"key": "…", "place": "p", "acts": [{"Step": {"n": 1, "fails": 0}}, …]}``; each line of stdout
tells what happened, as it happens: ``{"ready": true}``, ``{"run": "…", "key": "…"}``, ``{"applied": "s1", "key": "e1…"}``,
``{"ended": "key", "status": "…", "result": […]}``. On the other side is a provider that recognises keys.
"""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from semel import AsyncSemel, Attempt, Cancelled, Ctx, Fail, Retry, RunFailed, fatal, workflow

FIXED = Retry(max_attempts=4, initial="1s", factor=1, jitter=0)
#: How often an effect took place, by key.
applied: Counter[str] = Counter()


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def apply(name: str, key: str) -> None:
    applied[key] += 1
    tell(applied=name, key=key)


def effect(name: str, value: Any) -> Callable[[Attempt], Any]:
    async def body(a: Attempt) -> Any:
        apply(name, a.key)
        return value

    return body


async def play_all(ctx: Ctx, place: str, acts: list[dict[str, Any]]) -> list[str]:
    values: list[str] = []
    for act in acts:
        for kind, of in act.items():
            values += await play(ctx, place, kind, of)
    return values


async def play(ctx: Ctx, place: str, kind: str, of: dict[str, Any]) -> list[str]:
    n = of["n"]

    async def body(a: Attempt) -> str:
        match kind:
            case "Step":
                if a.number <= of["fails"]:
                    raise RuntimeError("as planned")
                apply(f"s{n}", a.key)
                return f"s{n}"
            case "Fatal":
                apply(f"f{n}", a.key)
                raise fatal("as planned")
            case "Fails":
                before = applied[a.key]
                apply(f"x{n}", a.key)
                if before < of["times"]:
                    raise fatal("the run is to fail here")
                return f"x{n}"
            case "Asked":
                apply(f"a{n}", a.key)
                if of["lost"]:
                    raise RuntimeError("as planned")
                return f"a{n}"
        raise fatal(f"{kind} is no step")

    match kind:
        case "Step":
            return [await ctx.step(f"s{n}", body, retry=FIXED)]
        case "Fatal":
            try:
                await ctx.step(f"f{n}", body)
            except Cancelled:
                raise
            except Fail:
                return [f"f{n} failed"]
        case "Fails":
            return [await ctx.step(f"x{n}", body)]
        case "Letter":
            return [await ctx.step(f"m{n}", effect(f"m{n}", f"m{n}"), at_most_once=True)]
        case "Asked":
            return [await ctx.step(f"a{n}", body, retry=Retry(max_attempts=1), reconcile=lambda a: f"a{n}" if applied[a.key] else None)]
        case "Repeat":
            way = [{"indexed": True} if of["indexed"] else {"key": i} for i in range(of["times"])]
            return [f"r{n}.{await ctx.step(f'r{n}', effect(f'r{n}', i), **how)}" for i, how in enumerate(way)]
        case "Loop":
            parts = [f"l{n}-{i}" for i in range(of["times"])]
            return [value for part in parts for value in await play_all(ctx.scope(part), f"{place}/{part}", of["acts"])]
        case "Join":
            sides = {f"{side}{n}": lambda c, side=side: play_all(c, place, of[side]) for side in ("left", "right")}
            both = await ctx.all(**sides)
            return [*both[f"left{n}"], *both[f"right{n}"]]
        case "Race":

            async def part(c: Ctx) -> list[str]:
                values = await play_all(c, place, of["acts"])
                if of["late"]:
                    await c.sleep(f"too long {n}", of["limit"])
                    await c.step(f"never {n}", effect("never", None))
                return values

            won, values = await ctx.race(f"race{n}", part=part, limit=lambda c: c.sleep(f"limit{n}", of["limit"] / 1000))
            return list(values) if won == "part" else ["too late"]
        case "Close":
            time = of["millis"] / 1000
            won, _ = await ctx.race(f"close{n}", long=lambda c: c.sleep(f"long{n}", time * 2), short=lambda c: c.sleep(f"short{n}", time))
            await ctx.step(f"c{n} {won}", effect(f"c{n}", None))
            await ctx.sleep(f"after {n}", time * 2)
            return [won]
        case "Sleep":
            await ctx.sleep(f"sl{n}", of["millis"] / 1000)
            return ["slept"]
        case "Hook":
            hook = ctx.hook(f"{place}:h{n}", int)
            got = [str(await hook.recv()) for _ in range(of["recv"])]
            times = ["1h"] * of["recv_for"] + ([] if of["in_vain"] is None else [f"{of['in_vain']}ms"])
            late = [await hook.recv_for(time) for time in times]
            return got + ["None" if value is None else f"Some({value})" for value in late]
        case "Door":
            if await ctx.hook(f"door {n % 2}").conflict() is not None:
                return ["taken"]
            await ctx.sleep(f"d{n}", of["millis"] / 1000)
            return ["through"]
        case "Child":
            child = await ctx.child(execute, [f"{place}/c{n}", of["acts"]], key=n)
            return await child.result()
        case "Once":
            name = f"q{n % 2}" if of["shared"] else f"o{n}"
            label = name if of["shared"] else f"{place}/o{n}"

            async def make() -> str:
                apply(name, label)
                return f"{name} made by call {applied[label]}"

            return [(await ctx.run_once(label, make, scope="workspace" if of["shared"] else "run")).split(" ")[0]]
        case "Values":
            values = [(await ctx.now(f"v{n}")).timestamp(), str(await ctx.uuid(f"v{n}"))]
            noted = await ctx.step(f"v{n}", lambda a: values, inline=True)
            await ctx.sleep(f"v{n} later", "1s")
            if noted != values:
                raise fatal("a value has changed")
            return ["the same"]
    raise fatal(f"there is no act {kind}")


@workflow("execute")
async def execute(ctx: Ctx, program: list[Any]) -> list[str]:
    try:
        return await play_all(ctx, *program)
    except Cancelled:
        for part in ("one", "two"):
            await ctx.cleanup().step("clean up", effect("clean up", None), key=part)
            await ctx.cleanup().sleep(f"after {part}", "1s")
        raise


async def ended(run: Any, key: str) -> None:
    try:
        tell(ended=key, status="COMPLETED", result=await run.result())
    except RunFailed as failed:
        tell(ended=key, status=failed.run["status"], error=str(failed))


async def main() -> None:
    semel = AsyncSemel()
    async with semel.worker([execute], lease=os.environ.get("SEMEL_LEASE", "10s")), asyncio.TaskGroup() as ends:
        tell(ready=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            program = json.loads(line)
            run = await semel.start(execute, [program["place"], program["acts"]], key=program["key"])
            tell(run=run.id, key=program["key"])
            ends.create_task(ended(run, program["key"]))
    semel.close()


if __name__ == "__main__":
    asyncio.run(main())
