"""Transactional steps on real databases: rows and outcome are one commit, whatever boundary the worker dies at."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from semel import AsyncSemel, Attempt, Ctx, RunFailed, fatal, workflow
from semel.testing import CrashCase, TestServer, crash_everywhere
from semel.tx import Asyncpg, Psycopg, SqlAlchemy, Sqlite3, TxSource, postgres_table, sqlite_table

ACCOUNT = "CREATE TABLE IF NOT EXISTS py_account (owner TEXT PRIMARY KEY, cents BIGINT NOT NULL)"
DEBIT = "UPDATE py_account SET cents = cents - 1 WHERE owner = {} AND cents > 0 RETURNING cents"
#: A database: the source of steps, the debit of a body, and a statement for the test itself.
Database = tuple[TxSource[Any], Callable[[Any, str], Awaitable[int | None]], Callable[[str], Awaitable[Any]]]


def postgres() -> str:
    url = os.environ.get("SEMEL_TEST_POSTGRES")
    assert url is not None, "run this under scripts/with-postgres"
    return url


@contextlib.asynccontextmanager
async def of_sqlite(path: Path) -> AsyncIterator[Database]:
    file = str(path / "shop.db")
    connection = sqlite3.connect(file, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")

    async def debit(db: Any, owner: str) -> int | None:
        row = db.execute(DEBIT.format("?"), (owner,)).fetchone()
        return None if row is None else int(row[0])

    async def ask(statement: str) -> Any:
        return connection.execute(statement).fetchone()

    connection.execute(sqlite_table())
    yield Sqlite3(file), debit, ask
    connection.close()


@contextlib.asynccontextmanager
async def of_psycopg(_: Path) -> AsyncIterator[Database]:
    async with AsyncConnectionPool(postgres(), open=False, max_size=10) as pool:

        async def debit(db: Any, owner: str) -> int | None:
            row = await (await db.execute(DEBIT.format("%s"), (owner,))).fetchone()
            return None if row is None else int(row[0])

        async def ask(statement: str) -> Any:
            async with pool.connection() as connection:
                cursor = await connection.execute(statement)
                return await cursor.fetchone() if cursor.description else None

        await ask(postgres_table("py_fence"))
        yield Psycopg(pool, table="py_fence"), debit, ask


@contextlib.asynccontextmanager
async def of_asyncpg(_: Path) -> AsyncIterator[Database]:
    pool = await asyncpg.create_pool(postgres(), max_size=10)

    async def debit(db: Any, owner: str) -> int | None:
        value = await db.fetchval(DEBIT.format("$1"), owner)
        return None if value is None else int(value)

    await pool.execute(postgres_table("py_fence"))
    yield Asyncpg(pool, table="py_fence"), debit, pool.fetchrow
    await pool.close()


@contextlib.asynccontextmanager
async def of_sqlalchemy(_: Path) -> AsyncIterator[Database]:
    engine = create_async_engine(postgres().replace("postgres://", "postgresql+asyncpg://"))
    sessions = async_sessionmaker(engine)

    async def debit(db: Any, owner: str) -> int | None:
        row = (await db.execute(text(DEBIT.format(":owner")), {"owner": owner})).fetchone()
        return None if row is None else int(row[0])

    async def ask(statement: str) -> Any:
        async with sessions() as session:
            result: Any = await session.execute(text(statement))
            row = result.fetchone() if result.returns_rows else None
            await session.commit()
            return row

    await ask(postgres_table("py_fence"))
    yield SqlAlchemy(sessions, table="py_fence"), debit, ask
    await engine.dispose()


@pytest.mark.parametrize("database", [of_sqlite, of_psycopg, of_asyncpg, of_sqlalchemy])
def test_rows_and_outcome_are_one_commit(semel_server: TestServer, tmp_path: Path, database: Any) -> None:
    async def go() -> None:
        async with database(tmp_path) as (source, debit, ask):
            await ask(ACCOUNT)
            semel = AsyncSemel(semel_server.url)

            @workflow(f"py-debit-{database.__name__}")
            async def pay(ctx: Ctx, owner: str) -> int:
                async def body(db: Any, attempt: Attempt) -> int:
                    left = await debit(db, owner)
                    if left is None:
                        raise fatal("not enough money", code="POOR")
                    return int(left)

                return int(await ctx.tx("debit", source, body))

            async def start(name: str) -> Any:
                await ask(f"INSERT INTO py_account VALUES ('{name}', 100)")
                return await semel.start(pay, name, key=name)

            ended: list[str] = []

            def check(run: dict[str, Any], boundary: str) -> None:
                assert (run["status"], run["result"]) == ("COMPLETED", 99), f"{boundary}: {run}"
                ended.append(run["key"])

            case = CrashCase(semel, worker=lambda _: semel.worker([pay], lease=5), start=start, check=check)
            assert await crash_everywhere(case) >= 3
            for owner in ended:
                row = await ask(f"SELECT cents FROM py_account WHERE owner = '{owner}'")
                assert row[0] == 99, owner
            await ask(f"INSERT INTO py_account VALUES ('poor-{database.__name__}', 0)")
            async with semel.worker([pay]):
                run = await semel.start(pay, f"poor-{database.__name__}")
                with pytest.raises(RunFailed) as failed:
                    await run.result(20)
                assert failed.value.run["error"]["code"] == "POOR"
            semel.close()

    asyncio.run(asyncio.wait_for(go(), 120))


def test_a_body_that_is_given_up_while_its_outcome_is_written_leaves_no_transaction_open(semel_server: TestServer) -> None:
    async def go() -> None:
        writing, rolled_back = asyncio.Event(), asyncio.Event()

        class Slow:
            """A database that takes for ever to write an outcome."""

            db = None

            async def begin(self) -> Any:
                return self

            async def find(self, key: str) -> None:
                return None

            async def put(self, mark: Any, outcome: str | None) -> bool:
                writing.set()
                await asyncio.Event().wait()
                return True

            async def commit(self) -> None: ...

            async def rollback(self) -> None:
                rolled_back.set()

        @workflow("py-given-up")
        async def given_up(ctx: Ctx, _: None) -> Any:
            return await ctx.tx("pay", Slow(), lambda db: 1)

        semel = AsyncSemel(semel_server.url)
        worker = await semel.worker([given_up]).start()
        run = await semel.start(given_up, None)
        await writing.wait()
        await worker.kill()
        await asyncio.wait_for(rolled_back.wait(), 5)
        await run.cancel("a test")
        semel.close()

    asyncio.run(go())
