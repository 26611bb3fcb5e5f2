"""Transactional steps: the user's rows and the step's result in one commit of the user's database."""

from __future__ import annotations

import asyncio
import inspect
import re
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from ._ctx import Attempt, StepDriver
from ._errors import Fail, fail_of, fatal
from ._json import encode

Db = TypeVar("Db")

#: Name of the fence table in the user's database, if no other is given.
TABLE = "fenced_task_idempotency_lock"
#: Between two questions to a database that cannot be reached, in seconds.
PAUSE = 0.1


@dataclass(frozen=True)
class Mark:
    """Identity of one try: a later claim, or a later attempt under the same claim, supersedes it."""

    key: str
    run: str
    step: str
    fence: int
    attempt: int


@dataclass(frozen=True)
class FenceRow:
    """The row under an effect key; the outcome is JSON text, or None."""

    run: str
    fence: int
    attempt: int
    outcome: str | None


class OpenTx(Protocol[Db]):
    """One open transaction of the user's database."""

    db: Db

    async def find(self, key: str) -> FenceRow | None: ...

    async def put(self, mark: Mark, outcome: str | None) -> bool:
        """Writes the mark; false if a later mark or an outcome is there already."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class TxSource(Protocol[Db]):
    """A user's database, as ``ctx.tx`` needs it."""

    async def begin(self) -> OpenTx[Db]: ...


def _decide(mark: Mark, row: FenceRow | None) -> str | FenceRow:
    """What a try has to do, given the row under its key. An outcome counts, whichever run wrote it."""
    if row is None:
        return "run"
    if row.outcome is not None:
        return row
    return "superseded" if row.run == mark.run and (row.fence, row.attempt) > (mark.fence, mark.attempt) else "run"


async def perform_tx(step: StepDriver, source: TxSource[Any], number: int, body: Callable[..., Any]) -> None:
    """One attempt at a transactional step: the body's rows, the mark and the outcome in one commit, or nothing of it."""
    run = step.run
    active = await run.effect(step.stand, step.visit)
    began = run.host.earliest()
    attempt = Attempt(run, step.visit, number, active.cancelled)
    mark = Mark(attempt.key, run.id, step.visit, attempt.fence, number)
    arguments = 2 if len(inspect.signature(body).parameters) > 1 else 1

    def work(db: Any) -> Any:
        return body(*(db, attempt)[:arguments])

    await step.probe("before the body")

    async def whole() -> tuple[str | None, Fail | None]:
        return await _tried(step, source, mark, work)

    try:
        text, fail = await run.call(active, step.limit, whole, threaded=False)
    except Fail as raised:
        late = raised
        # The time is over, and the transaction is left alone: what became of it is asked.
        text, fail = await run.outside(None, lambda: _ask(step, source, replace(mark, attempt=number + 1), late))
    await step.probe("after the body")
    if not run.over(active) or (text is None and fail is None):
        await run.never()
    step.finish(number, {"attempt": number, "class": "tx", "at": began}, text, fail)


async def _tried(step: StepDriver, source: TxSource[Any], mark: Mark, work: Callable[[Any], Any]) -> tuple[str | None, Fail | None]:
    try:
        # An earlier owner may still be in its body: with our mark there, it can no longer commit.
        if step.run.claim["claims"] > 1:
            await _raise(source, mark)
        open_ = await source.begin()
    except Exception as refused:
        return None, fail_of(refused)
    try:
        held = _decide(mark, await open_.find(mark.key))
        if held != "run":
            await open_.rollback()
            return (held.outcome, None) if isinstance(held, FenceRow) else (None, None)
        value = work(open_.db)
        text = encode(await value if inspect.isawaitable(value) else value)
    except Exception as raised:
        await _quietly(open_.rollback())
        return None, fail_of(raised)
    except BaseException:
        await asyncio.shield(_quietly(open_.rollback()))
        raise
    try:
        if await open_.put(mark, text):
            await open_.commit()
            return text, None
        await open_.rollback()
        why = fatal("a later attempt has taken its place")
    except Exception as lost:
        await _quietly(open_.rollback())
        why = fail_of(lost)
    except BaseException:
        # Given up while the outcome was written: the next owner must not have to wait for this transaction.
        await asyncio.shield(_quietly(open_.rollback()))
        raise
    return await _ask(step, source, replace(mark, attempt=mark.attempt + 1), why)


async def _ask(step: StepDriver, source: TxSource[Any], following: Mark, why: Fail) -> tuple[str | None, Fail | None]:
    """Asks what became of a try: its mark is shut out first, so that the answer stays true."""
    while True:
        try:
            await _raise(source, following)
            open_ = await source.begin()
            try:
                held = _decide(following, await open_.find(following.key))
            finally:
                await open_.rollback()
            if held == "run":
                return None, why
            return (held.outcome, None) if isinstance(held, FenceRow) else (None, None)
        except Exception as unreachable:
            if step.run.gone:
                return None, None
            step.run.host.log("warning", f"it is unknown whether {step.visit} of {step.run.id} has committed; asking again: {unreachable}")
            await asyncio.sleep(PAUSE)


async def _raise(source: TxSource[Any], mark: Mark) -> None:
    open_ = await source.begin()
    try:
        await open_.put(mark, None)
        await open_.commit()
    except Exception:
        await _quietly(open_.rollback())
        raise


async def _quietly(rollback: Awaitable[None]) -> None:
    """A transaction that cannot be rolled back is over with its connection."""
    try:
        await rollback
    except Exception:
        return


_NAME = re.compile(r"^([A-Za-z_]\w*\.)?[A-Za-z_]\w*$", re.ASCII)
_SETTING = "'idle_in_transaction_session_timeout'"


def _checked(table: str) -> str:
    if not _NAME.match(table):
        raise ValueError(f"{table!r} is no name for a fence table: give letters, digits and _, perhaps with a schema and a dot")
    return table


def statements(table: str, place: Callable[[int], str], postgres: bool) -> tuple[str, str]:
    """The statements that read and write the fence table. ``place`` writes the n-th parameter."""
    table = _checked(table)
    key, run, step, fence, attempt, value = (place(n) for n in range(1, 7))
    outcome = f"CAST({value} AS text)"
    if postgres:
        # A transaction that its client has left alone is ended by the server, so that its locks do not outlive a dead worker.
        step = f"CASE WHEN current_setting({_SETTING}) = '0' AND set_config({_SETTING}, '10s', true) IS NULL THEN '' ELSE {step} END"
    return (
        f"SELECT run_id, fence, attempt, outcome FROM {table} WHERE effect_key = {key}",
        (f"INSERT INTO {table} AS held (effect_key, run_id, step, fence, attempt, outcome, settled) VALUES ({key}, {run}, {step}, {fence}, "
        f"{attempt}, {outcome}, CASE WHEN {outcome} IS NULL THEN NULL ELSE CURRENT_TIMESTAMP END) ON CONFLICT (effect_key) DO UPDATE SET "
        "run_id = excluded.run_id, step = excluded.step, fence = excluded.fence, attempt = excluded.attempt, outcome = excluded.outcome, "
        "settled = excluded.settled WHERE held.outcome IS NULL AND (held.run_id <> excluded.run_id OR held.fence < excluded.fence "
        "OR (held.fence = excluded.fence AND held.attempt <= excluded.attempt))"),
    )


def postgres_table(table: str = TABLE) -> str:
    """The statement that makes the fence table in PostgreSQL."""
    return (
        f"CREATE TABLE IF NOT EXISTS {_checked(table)} (effect_key text PRIMARY KEY, run_id text NOT NULL, step text NOT NULL, "
        "fence bigint NOT NULL, attempt bigint NOT NULL, outcome text, created timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, settled timestamptz)"
    )


def sqlite_table(table: str = TABLE) -> str:
    """The statement that makes the fence table in SQLite."""
    return (
        f"CREATE TABLE IF NOT EXISTS {_checked(table)} (effect_key TEXT PRIMARY KEY, run_id TEXT NOT NULL, step TEXT NOT NULL, "
        "fence INTEGER NOT NULL, attempt INTEGER NOT NULL, outcome TEXT, created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, settled TEXT) WITHOUT ROWID"
    )


def _row(found: Any) -> FenceRow | None:
    return None if found is None else FenceRow(found[0], int(found[1]), int(found[2]), found[3])


def _values(mark: Mark, outcome: str | None) -> tuple[Any, ...]:
    return (mark.key, mark.run, mark.step, mark.fence, mark.attempt, outcome)


class _Base(Generic[Db]):
    """An open transaction on a driver whose statements have these texts."""

    db: Db

    def __init__(self, db: Db, texts: tuple[str, str]) -> None:
        self.db, (self._find, self._put) = db, texts


class Sqlite3:
    """SQLite by the standard library: a connection for each try."""

    def __init__(self, path: str, *, table: str = TABLE) -> None:
        self._path, self._texts = path, statements(table, lambda n: f"?{n}", postgres=False)

    async def begin(self) -> OpenTx[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=30)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            connection.close()
            raise
        return _SqliteTx(connection, self._texts)


class _SqliteTx(_Base[sqlite3.Connection]):
    async def find(self, key: str) -> FenceRow | None:
        return _row(self.db.execute(self._find, (key,)).fetchone())

    async def put(self, mark: Mark, outcome: str | None) -> bool:
        return self.db.execute(self._put, _values(mark, outcome)).rowcount > 0

    async def commit(self) -> None:
        try:
            self.db.execute("COMMIT")
        finally:
            self.db.close()

    async def rollback(self) -> None:
        # What is not committed goes with its connection.
        self.db.close()


class Psycopg:
    """PostgreSQL by psycopg 3: an ``AsyncConnectionPool`` of psycopg_pool."""

    def __init__(self, pool: Any, *, table: str = TABLE) -> None:
        self._pool, self._texts = pool, statements(table, lambda n: f"%({'krsfao'[n - 1]})s", postgres=True)

    async def begin(self) -> OpenTx[Any]:
        connection = await self._pool.getconn()
        return _PsycopgTx(connection, self._texts, self._pool)


class _PsycopgTx(_Base[Any]):
    def __init__(self, db: Any, texts: tuple[str, str], pool: Any) -> None:
        super().__init__(db, texts)
        self._pool, self._over = pool, False

    async def find(self, key: str) -> FenceRow | None:
        return _row(await (await self.db.execute(self._find, {"k": key})).fetchone())

    async def put(self, mark: Mark, outcome: str | None) -> bool:
        cursor = await self.db.execute(self._put, dict(zip("krsfao", _values(mark, outcome), strict=True)))
        return bool(cursor.rowcount > 0)

    async def commit(self) -> None:
        await self._end(self.db.commit)

    async def rollback(self) -> None:
        await self._end(self.db.rollback)

    async def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        if self._over:
            return
        self._over = True
        try:
            await how()
        except BaseException:
            # Whether it took place is unknown: the connection is not used again.
            await self.db.close()
            raise
        finally:
            await self._pool.putconn(self.db)


class Asyncpg:
    """PostgreSQL by an asyncpg pool."""

    def __init__(self, pool: Any, *, table: str = TABLE) -> None:
        self._pool, self._texts = pool, statements(table, lambda n: f"${n}", postgres=True)

    async def begin(self) -> OpenTx[Any]:
        connection = await self._pool.acquire()
        try:
            transaction = connection.transaction()
            await transaction.start()
        except BaseException:
            await self._pool.release(connection)
            raise
        return _AsyncpgTx(connection, self._texts, self._pool, transaction)


class _AsyncpgTx(_Base[Any]):
    def __init__(self, db: Any, texts: tuple[str, str], pool: Any, transaction: Any) -> None:
        super().__init__(db, texts)
        self._pool, self._transaction, self._over = pool, transaction, False

    async def find(self, key: str) -> FenceRow | None:
        return _row(await self.db.fetchrow(self._find, key))

    async def put(self, mark: Mark, outcome: str | None) -> bool:
        status = await self.db.execute(self._put, *_values(mark, outcome))
        return str(status).endswith(" 1")

    async def commit(self) -> None:
        await self._end(self._transaction.commit)

    async def rollback(self) -> None:
        await self._end(self._transaction.rollback)

    async def _end(self, how: Callable[[], Awaitable[None]]) -> None:
        if self._over:
            return
        self._over = True
        try:
            await how()
        except BaseException:
            self.db.terminate()
            raise
        finally:
            await self._pool.release(self.db)


class SqlAlchemy:
    """PostgreSQL or SQLite by SQLAlchemy 2: a ``sessionmaker`` or ``async_sessionmaker``. The body gets the session."""

    def __init__(self, sessions: Callable[[], Any], *, table: str = TABLE, postgres: bool = True) -> None:
        self._sessions, self._texts = sessions, statements(table, lambda n: f":{'krsfao'[n - 1]}", postgres)

    async def begin(self) -> OpenTx[Any]:
        return _SqlAlchemyTx(self._sessions(), self._texts)


class _SqlAlchemyTx(_Base[Any]):
    def __init__(self, db: Any, texts: tuple[str, str]) -> None:
        super().__init__(db, texts)
        self._over = False

    async def find(self, key: str) -> FenceRow | None:
        return _row((await self._execute(self._find, {"k": key})).fetchone())

    async def put(self, mark: Mark, outcome: str | None) -> bool:
        result = await self._execute(self._put, dict(zip("krsfao", _values(mark, outcome), strict=True)))
        return bool(result.rowcount > 0)

    async def _execute(self, statement: str, values: dict[str, Any]) -> Any:
        from sqlalchemy import text

        result = self.db.execute(text(statement), values)
        return await result if inspect.isawaitable(result) else result

    async def commit(self) -> None:
        await self._end("commit")

    async def rollback(self) -> None:
        await self._end("rollback")

    async def _end(self, how: str) -> None:
        if self._over:
            return
        self._over = True
        try:
            for name in (how, "close"):
                ended = getattr(self.db, name)()
                if inspect.isawaitable(ended):
                    await ended
        except BaseException:
            invalidated = self.db.invalidate()
            if inspect.isawaitable(invalidated):
                await invalidated
            raise
