"""Programs that a Rust test has drawn, played by ``programs.py``."""

import asyncio
import json
import os
from pathlib import Path

from programs import Program, play_programs
from psycopg_pool import AsyncConnectionPool

#: Those of the repository; ``make conformance`` has others drawn.
FILE = Path(os.environ.get("SEMEL_PROGRAMS_FILE") or Path(__file__).parents[2] / "programs.jsonl")


def read() -> list[Program]:
    return [json.loads(line) for line in FILE.read_text().splitlines()]


def test_drawn_programs_end_as_they_should_whatever_boundary_a_worker_dies_at() -> None:
    async def go() -> None:
        programs = read()
        async with AsyncConnectionPool(os.environ["SEMEL_TEST_POSTGRES"], open=False, max_size=10) as pool:
            crashes = await play_programs(pool, programs)
        print(f"{len(programs)} programs, {crashes} crashes, 0 wrong")
        assert crashes > len(programs) * 5

    asyncio.run(go())
