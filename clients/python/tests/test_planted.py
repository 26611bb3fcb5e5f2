"""Bugs that are planted in this SDK: the drawn programs find each of them. A planted text that is not there any more is a failure."""

import asyncio
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from programs import play_programs
from psycopg_pool import AsyncConnectionPool
from test_programs import read
from tie import play_tie

from semel import _ctx, _run

#: How long a run may take that a bug has stopped, in seconds.
PATIENCE = 10
#: A run whose worker has given it up, because the server refuses what it records.
STUCK = "it is still RUNNING"


@dataclass
class Bug:
    """A text of a function, and what stands there instead."""

    owner: Any
    function: str
    old: str
    new: str
    #: Programs in which it can show; the race that both branches end, if there is nothing.
    shows: Callable[[str], object] | None
    found: str


BUGS = {
    "a body begins before what came earlier is durable": Bug(
        _run.Run,
        "effect",
        "await self.written(stand)\n    # What has changed since",
        "# What has changed since",
        lambda line: re.search(r"'times': [23]", line) and "'atOnce': 1" in line and "'Repeat'" in line,
        "the crash has repeated 2 effects, of which 1 can be at work at once",
    ),
    "an attempt with a hidden end is made again, whatever its class": Bug(
        _ctx.StepDriver,
        "_find_out",
        'if of in ("keyed", "tx"):',
        "if of:",
        lambda line: "'Letter'" in line,
        STUCK,
    ),
    "the winner of a race is not recorded": Bug(
        _ctx.Ctx,
        "race",
        "if recorded is None:",
        "if False:",
        None,
        "the race is (CANCELLED|COMPLETED)",
    ),
    "a timer fires early": Bug(
        _ctx,
        "_fire",
        "if now < due:",
        "if now < due - 60_000:",
        lambda line: "'Sleep'" in line,
        "the timer .* has fired after",
    ),
    "the key of a counted step is without its count": Bug(
        _ctx.Attempt,
        "_effect",
        "path, tick, label)",
        "path, 1, label)",
        lambda line: re.search(r"'times': [23], 'indexed': True", line),
        r"r\d+ took place 1 times",
    ),
}


def planted(bug: Bug) -> Any:
    """The function with the bug in it."""
    function = getattr(bug.owner, bug.function)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(bug.old) == 1, f"{bug.function} has not {bug.old!r} in one place"
    made: dict[str, Any] = {}
    # The text is this SDK's own.
    exec(compile(source.replace(bug.old, bug.new), f"planted {bug.function}", "exec", dont_inherit=True), vars(sys.modules[function.__module__]), made)  # noqa: S102
    return made[bug.function]


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    bug = BUGS[name]
    monkeypatch.setattr(bug.owner, bug.function, planted(bug))

    async def go() -> None:
        if bug.shows is None:
            await play_tie()
            return
        programs = [program for program in read() if bug.shows(str(program))]
        assert programs, "no program has what shows it"
        async with AsyncConnectionPool(os.environ["SEMEL_TEST_POSTGRES"], open=False, max_size=10) as pool:
            await play_programs(pool, programs, lanes=2, patience=PATIENCE)

    with pytest.raises(AssertionError, match=bug.found):
        asyncio.run(go())
    if bug.found == STUCK:
        assert "the server has refused a commit" in caplog.text
