"""Definitions of workflows, and conversion of their inputs by type hints."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, TypeVar

from ._errors import fatal

In = TypeVar("In")
Out = TypeVar("Out")
P = ParamSpec("P")


class Workflow(Generic[In, Out]):
    """A workflow: its name, version and code. It can still be called as the function that it is."""

    def __init__(self, name: str, version: str, code: Callable[..., Awaitable[Out]]) -> None:
        self.name = name
        self.version = version
        self.code = code
        self.__doc__ = code.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Out]:
        return self.code(*args, **kwargs)

    def input_type(self) -> Any:
        """Type of the input, as the hints say."""
        parameters = list(inspect.signature(self.code).parameters)
        hints = typing.get_type_hints(self.code)
        return hints.get(parameters[1], Any) if len(parameters) > 1 else None


def workflow(name: str, *, version: str = "1") -> Callable[[Callable[[Any, In], Awaitable[Out]]], Workflow[In, Out]]:
    """Names an async function as a workflow. Open runs keep the version that they were started with."""

    def named(code: Callable[[Any, In], Awaitable[Out]]) -> Workflow[In, Out]:
        return Workflow(name, version, code)

    return named


def read_as(type_: Any, value: Any, what: str) -> Any:
    """A value as its type has it: a pydantic model, a dataclass, or plain JSON. What does not fit is a fatal failure."""
    try:
        if type_ is None or type_ is Any or type_ is inspect.Parameter.empty:
            return value
        validate = getattr(type_, "model_validate", None)
        if callable(validate):
            return validate(value)
        if dataclasses.is_dataclass(type_) and isinstance(value, dict):
            hints = typing.get_type_hints(type_)
            members = {f.name for f in dataclasses.fields(type_)}
            if unknown := set(value) - members:
                raise ValueError(f"unknown members {sorted(unknown)}")
            return typing.cast(Any, type_)(**{name: read_as(hints[name], member, name) for name, member in value.items()})
        origin, arguments = typing.get_origin(type_), typing.get_args(type_)
        if origin is list and isinstance(value, list) and arguments:
            return [read_as(arguments[0], item, what) for item in value]
        return value
    except (TypeError, ValueError) as refused:
        raise fatal(f"{what} does not fit its type: {refused}", code="INPUT_INVALID") from refused
