"""Values as type hints have them: inputs, payloads, results of steps, children and runs."""

import enum
import sys
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NewType, NotRequired, TypedDict

import pytest
from pydantic import BaseModel
from test_workflows import play

from semel import AsyncSemel, Attempt, Ctx, Fail, RunFailed, Semel, workflow
from semel._types import read_as
from semel.testing import TestServer

Cents = NewType("Cents", int)


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Label(TypedDict):
    text: str
    copies: NotRequired[int]


@dataclass
class Item:
    name: str
    size: Size | None = None


class Order(BaseModel):
    id: str
    items: list[str]


@dataclass
class Parcel:
    items: list[Item]
    weights: dict[int, float]
    label: Label
    corner: tuple[int, int] = (0, 0)
    sent: date | None = None


PARCEL = {"items": [{"name": "ink", "size": "s"}], "weights": {"3": 1.5}, "label": {"text": "to Ada"}, "corner": [1, 2], "sent": "2026-11-19"}


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (Item, {"name": "ink"}, Item("ink")),
        (Item | None, None, None),
        (Item | None, {"name": "ink", "size": "l"}, Item("ink", Size.LARGE)),
        (list[Item], [{"name": "ink"}], [Item("ink")]),
        (dict[str, Item], {"a": {"name": "ink"}}, {"a": Item("ink")}),
        (dict[int, int], {"7": 1}, {7: 1}),
        (tuple[int, Item], [7, {"name": "ink"}], (7, Item("ink"))),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (set[int], [1, 2], {1, 2}),
        (int | str, "7", "7"),
        (Order | Item, {"name": "ink"}, Item("ink")),
        (Order | Item, {"id": "7", "items": []}, Order(id="7", items=[])),
        (Label, {"text": "a"}, {"text": "a"}),
        (Literal["a", 7], 7, 7),
        (Cents, 7, 7),
        (float, 7, 7),
        (Annotated[int, "cents"], 7, 7),
        (Parcel, PARCEL, Parcel([Item("ink", Size.SMALL)], {3: 1.5}, {"text": "to Ada"}, (1, 2), date(2026, 11, 19))),
        (date, "2026-11-19", date(2026, 11, 19)),
        (Any, {"a": 1}, {"a": 1}),
    ],
)
def test_a_value_is_read_as_its_hint_says(type_: Any, value: Any, expected: Any) -> None:
    assert read_as(type_, value, "it") == expected


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (int, "7", "'7' is no int"),
        (int, True, "True is no int"),
        (Item | None, 7, "7 is no dict; 7 is no NoneType"),
        (tuple[int, int], [1], "1 items instead of 2"),
        (Label, {"copies": 1}, "members ['text'] are missing"),
        (Item, {"name": "ink", "colour": "red"}, "unknown members ['colour']"),
        (Literal["a"], "b", "is none of"),
        (Size, "m", "'m' is not a valid Size"),
        (dict[str, int], {"a": "b"}, "'b' is no int"),
        (Order, {"id": 7}, "validation error"),
    ],
)
def test_a_value_that_does_not_fit_its_hint_is_refused(type_: Any, value: Any, why: str) -> None:
    with pytest.raises(Fail) as refused:
        read_as(type_, value, "it")
    assert why in str(refused.value) and refused.value.code == "INPUT_INVALID"


def test_without_pydantic_only_dates_and_their_like_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert read_as(Parcel, {**PARCEL, "sent": None}, "it").items == [Item("ink", Size.SMALL)]
    with pytest.raises(Fail, match="only by pydantic: install it"):
        read_as(date, "2026-11-19", "it")


def test_steps_children_and_runs_give_what_their_types_say(semel_server: TestServer) -> None:
    seen: list[Any] = []

    @workflow("py-typed-price")
    async def price(ctx: Ctx, item: Item) -> Label:
        return {"text": item.name}

    @workflow("py-typed")
    async def typed(ctx: Ctx, parcel: Parcel | None) -> Parcel:
        async def pack(a: Attempt) -> tuple[Item, int]:
            return Item("ink", Size.SMALL), 1

        packed = await ctx.step("pack", pack)
        order = await ctx.step("order", lambda a: Order(id="7", items=[]), type_=Order)
        rate = await ctx.run_once("rate", today)
        label = await (await ctx.child(price, packed[0])).result()
        seen[:] = [packed, order, rate, label, parcel]
        assert parcel is not None
        return parcel

    def today() -> Item:
        return Item("rate")

    parcel = read_as(Parcel, PARCEL, "it")

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([typed, price]):
            run = await semel.start(typed, parcel, key="py-typed")
            assert await run.result(20) == parcel
            assert seen == [(Item("ink", Size.SMALL), 1), Order(id="7", items=[]), Item("rate"), {"text": "ink"}, parcel]
        semel.close()

    play(go())
    assert Semel(semel_server.url).start(typed, parcel, key="py-typed").result(20) == parcel


def test_a_result_that_would_come_back_as_something_else_is_refused(semel_server: TestServer) -> None:
    @workflow("py-untyped")
    async def untyped(ctx: Ctx, _: None) -> str:
        return (await ctx.step("item", lambda a: Item("ink"))).name

    async def go() -> None:
        semel = AsyncSemel(semel_server.url)
        async with semel.worker([untyped]):
            with pytest.raises(RunFailed, match=r"Item comes back as a dict: annotate what the body returns \(-> Item\), or give `type_`"):
                await (await semel.start(untyped, None)).result(20)
        semel.close()

    play(go())
