"""Definitions of workflows."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, TypeVar

from ._errors import Fail
from ._types import read_as, result_type

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

    def read_input(self, value: Any) -> Any:
        """An input as its hint has it. A start without an input, or with None, has an empty object."""
        type_ = self.input_type()
        try:
            return read_as(type_, value, "the input")
        except Fail as refused:
            if value != {}:
                raise
            try:
                return read_as(type_, None, "the input")
            except Fail:
                raise refused from None

    def output_type(self) -> Any:
        """Type of the result, as the hints say."""
        return result_type(self.code)


def workflow(name: str, *, version: str = "1") -> Callable[[Callable[[Any, In], Awaitable[Out]]], Workflow[In, Out]]:
    """Names an async function as a workflow. Open runs keep the version that they were started with."""

    def named(code: Callable[[Any, In], Awaitable[Out]]) -> Workflow[In, Out]:
        return Workflow(name, version, code)

    return named
