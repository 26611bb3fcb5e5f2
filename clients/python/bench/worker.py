"""A worker for the benchmark of workers (make bench-workers), which starts the server and, for ``steps``, the runs.

python worker.py steps       how many steps a second this worker executes, of runs that are there already
python worker.py latency     how long one run of ten steps takes, and a sleep of 50 ms

Prints one line of JSON.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from typing import Any

from semel import AsyncSemel, Attempt, Ctx, Workflow, workflow

SECONDS = float(os.environ.get("SEMEL_BENCH_SECONDS", "6"))
RUNS = 50
STEPS_OF_TEN = 10
steps = 0


@workflow("ten")
async def ten(ctx: Ctx, given: int) -> int:
    total = given
    for n in range(1, STEPS_OF_TEN + 1):

        async def step(a: Attempt, n: int = n) -> int:
            global steps
            steps += 1
            return n

        total += await ctx.step(f"step-{n}", step)
    return total


@workflow("nap")
async def nap(ctx: Ctx, _: int) -> None:
    await ctx.sleep("nap", 0.05)


async def took(semel: AsyncSemel, flow: Workflow[int, Any]) -> float:
    begun = time.perf_counter()
    await (await semel.start(flow, 0)).result(30)
    return (time.perf_counter() - begun) * 1000


async def main() -> None:
    semel = AsyncSemel()
    worker = await semel.worker([ten, nap]).start()
    if sys.argv[1] == "steps":
        while steps == 0:
            await asyncio.sleep(0.001)
        before, since = steps, time.perf_counter()
        await asyncio.sleep(SECONDS)
        print(json.dumps({"stepsPerSecond": (steps - before) / (time.perf_counter() - since)}))
    else:
        # The first runs warm everything up.
        for _ in range(RUNS):
            await took(semel, ten)
        runs = [await took(semel, ten) for _ in range(RUNS)]
        naps = [await took(semel, nap) for _ in range(RUNS)]
        print(json.dumps({"runMs": statistics.median(runs), "napMs": statistics.median(naps)}))
    await worker.kill()
    semel.close()


asyncio.run(main())
