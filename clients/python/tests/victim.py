"""A worker process that is killed inside the body of a step: it writes the effect key of the step to its standard output, and never ends."""

import asyncio

from semel import AsyncSemel, Attempt, Ctx, workflow


@workflow("victim")
async def victim(ctx: Ctx, at_most_once: bool) -> str:
    async def charge(a: Attempt) -> str:
        print(a.key, flush=True)
        await asyncio.Event().wait()
        return "never"

    return await ctx.step("charge", charge, at_most_once=at_most_once)


if __name__ == "__main__":
    asyncio.run(AsyncSemel().worker([victim], lease=10).run())
