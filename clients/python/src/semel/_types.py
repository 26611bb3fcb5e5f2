"""Values as their type hints have them. What travels is JSON; a hint says what the code gets instead."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from ._errors import fatal

#: Hints that take any JSON value as it is. `None` says that there is no hint; the hint `None` is `NoneType`.
_ANY = (None, Any, object, inspect.Parameter.empty)
_PLAIN: dict[Any, tuple[type, ...]] = {
    str: (str,), int: (int,), float: (float, int), bool: (bool,), types.NoneType: (types.NoneType,), list: (list,), dict: (dict,)
}  # fmt: skip
_LISTS = {list: list, tuple: tuple, set: set, frozenset: frozenset, collections.abc.Sequence: list, collections.abc.Iterable: list}
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def read_as(type_: Any, value: Any, what: str) -> Any:
    """A JSON value as its type has it. What does not fit is a fatal failure."""
    try:
        return _read(type_, value)
    except (TypeError, ValueError) as refused:
        raise fatal(f"{what} does not fit its type: {refused}", code="INPUT_INVALID") from refused


def _read(type_: Any, value: Any) -> Any:
    if type_ in _ANY or isinstance(type_, typing.TypeVar):
        return value
    if type_ in _PLAIN:
        # True is an int in Python, and none in JSON.
        if isinstance(value, _PLAIN[type_]) and (type_ is bool or not isinstance(value, bool)):
            return value
        raise ValueError(f"{value!r} is no {getattr(type_, '__name__', type_)}")
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is not None:
        return _read_generic(type_, origin, arguments, value)
    if callable(validate := getattr(type_, "model_validate", None)):
        return validate(value)
    if typing.is_typeddict(type_):
        return _read_typed_dict(type_, value)
    if dataclasses.is_dataclass(type_):
        return _read_dataclass(type_, value)
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        return type_(value)
    if isinstance(type_, typing.NewType):
        return _read(type_.__supertype__, value)
    if type_ in _LISTS:
        return _LISTS[type_](_read(list, value))
    return _read_by_pydantic(type_, value)


def _read_generic(type_: Any, origin: Any, arguments: tuple[Any, ...], value: Any) -> Any:
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final):
        return _read(arguments[0], value)
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value)
    if origin is typing.Literal:
        if any(value == one and type(value) is type(one) for one in arguments):
            return value
        raise ValueError(f"{value!r} is none of {list(arguments)}")
    if origin is tuple and arguments[-1:] != (...,):
        items = _read(list, value)
        if len(items) != len(arguments):
            raise ValueError(f"{len(items)} items instead of {len(arguments)}")
        return tuple(_read(one, item) for one, item in zip(arguments, items, strict=True))
    if origin in _LISTS:
        return _LISTS[origin](_read(arguments[0], item) for item in _read(list, value))
    if origin in _DICTS:
        return {_read_key(arguments[0], name): _read(arguments[1], member) for name, member in _read(dict, value).items()}
    if dataclasses.is_dataclass(origin):
        return _read_dataclass(origin, value)
    return _read_by_pydantic(type_, value)


def _read_key(type_: Any, name: str) -> Any:
    """The name of a member: JSON has texts only."""
    return int(name) if type_ is int else float(name) if type_ is float else _read(type_, name)


def _read_union(members: tuple[Any, ...], value: Any) -> Any:
    refused = []
    for member in members:
        try:
            return _read(member, value)
        except (TypeError, ValueError) as no:
            refused.append(str(no))
    raise ValueError("; ".join(refused))


def _read_typed_dict(type_: Any, value: Any) -> Any:
    value, hints = _read(dict, value), typing.get_type_hints(type_)
    if missing := set(type_.__required_keys__) - set(value):
        raise ValueError(f"members {sorted(missing)} are missing")
    return {name: _read(hints.get(name, Any), member) for name, member in value.items()}


def _read_dataclass(type_: Any, value: Any) -> Any:
    value, hints = _read(dict, value), typing.get_type_hints(type_)
    if unknown := set(value) - {field.name for field in dataclasses.fields(type_)}:
        raise ValueError(f"unknown members {sorted(unknown)}")
    return type_(**{name: _read(hints[name], member) for name, member in value.items()})


def _read_by_pydantic(type_: Any, value: Any) -> Any:
    """Dates, decimals, paths and so on."""
    try:
        from pydantic import TypeAdapter
    except ImportError:
        if isinstance(type_, type) and isinstance(value, type_):
            return value
        raise ValueError(f"{value!r} can be read as {type_} only by pydantic: install it") from None
    return TypeAdapter(type_).validate_python(value)


def result_type(body: Callable[..., Any]) -> Any:
    """Type of what a function gives, as its hint says; `None` if it has none, or one that cannot be resolved."""
    hint = getattr(body, "__annotations__", {}).get("return", inspect.Parameter.empty)
    if isinstance(hint, str):
        try:
            hint = typing.get_type_hints(body).get("return")
        except NameError:
            return None
    if hint is inspect.Parameter.empty:
        return None
    if typing.get_origin(hint) in (collections.abc.Awaitable, collections.abc.Coroutine):
        hint = typing.get_args(hint)[-1]
    return types.NoneType if hint is None else None if hint in (typing.Never, typing.NoReturn) else hint


def expect_type(type_: Any, value: Any) -> None:
    """Refuses a value that would come back as something else, because nothing says what to make of the JSON."""
    of = type(value)
    if type_ is None and (dataclasses.is_dataclass(of) or hasattr(of, "model_dump")):
        raise fatal(f"{of.__name__} comes back as a dict: annotate what the body returns (-> {of.__name__}), or give `type_`")
