"""An order, from the charge to the parcel. Run it against ``semel dev``: ``python order.py``. It makes the file ``shop.db``."""

import asyncio
import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from semel import AsyncSemel, Attempt, Ctx, Retry, fatal, workflow
from semel.tx import Sqlite3, sqlite_table


@dataclass
class Order:
    id: str
    items: list[str]
    amount: int


@dataclass
class Approval:
    by: str
    ok: bool


# The world outside: providers that recognise a key, as Stripe and many others do.
charges: dict[str, str] = {}
letters: dict[str, str] = {}
shop = Sqlite3("shop.db")


def send(order: str, key: str) -> str:
    return letters.setdefault(key, f"letter for {order}")


@workflow("price")
async def price(ctx: Ctx, sku: str) -> int:
    return len(sku) * 100


async def ship(ctx: Ctx, what: str) -> str:
    return await ctx.step("ship", lambda a: f"{what} shipped")


@workflow("order", version="1")
async def order(ctx: Ctx, o: Order) -> dict[str, Any]:
    def charge(a: Attempt) -> str:  # a plain function: it runs in a thread
        return charges.setdefault(a.key, f"{o.amount} cents")

    async def debit(db: sqlite3.Connection) -> int:  # its rows and its outcome are one COMMIT
        row = db.execute("UPDATE account SET cents = cents - ? WHERE cents >= ? RETURNING cents", (o.amount, o.amount)).fetchone()
        if row is None:
            raise fatal("not enough money")
        return int(row[0])

    charged = await ctx.step("charge", charge, retry=Retry(max_attempts=5), timeout=10)
    balance = await ctx.tx("debit", shop, debit)
    letter = await ctx.step("letter", lambda a: send(o.id, a.key), reconcile=lambda a: letters.get(a.key))
    for item in o.items:
        await ctx.step("pack", lambda a: f"{a.path} packed", key=item)  # pack[ink], pack[pens]
    rate = await ctx.run_once("rate", lambda: 0.94, scope="workspace", ttl="1h")
    async with ctx.hook(f"approve-{o.id}", Approval) as approval:
        if other := await approval.conflict():
            raise fatal(f"{other.run_id} asks for this order already")
        who, said = await ctx.race("gate", answer=lambda c: approval.recv(), patience=lambda c: c.sleep("patience", "7d"))
    if who == "patience" or not said.ok:
        raise fatal("not approved")
    both = await ctx.all(left=lambda c: ship(c, "ink"), right=lambda c: ship(c, "pens"))
    total = await (await ctx.child(price, o.items[0])).result()
    return {"charge": charged, "balance": balance, "letter": letter, "rate": rate, "by": said.by, **both, "total": total}


async def main() -> None:
    with sqlite3.connect("shop.db") as db:
        db.execute(sqlite_table())
        db.execute("CREATE TABLE IF NOT EXISTS account (cents INTEGER NOT NULL)")
        db.execute("INSERT INTO account SELECT 5000 WHERE NOT EXISTS (SELECT 1 FROM account)")
    semel = AsyncSemel()  # SEMEL_URL and SEMEL_TOKEN
    async with semel.worker([order, price]):
        given = Order("7", ["ink", "pens"], 1999)
        run = await semel.start(order, given, key="order-7")
        while await semel.hook("approve-7") is None:
            await asyncio.sleep(0.05)
        await semel.deliver("approve-7", {"by": "Ada", "ok": True}, id="click-1")
        print(json.dumps(await run.result(30)))
        print((await semel.start(order, given, key="order-7")).verdict)
    semel.close()


asyncio.run(main())
