"""The event loop of one run.

Code of a workflow runs on a loop of its own, so that it is known exactly when nothing moves any more: its queue is empty and no
body is at work. ``gather``, ``TaskGroup`` and ``wait`` work on it. Bodies of steps run on the loop of the process.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

#: A run needs few of the many methods of a loop; all others fail, as the base class says.
_Base: Any = asyncio.AbstractEventLoop


class RunLoop(_Base):  # type: ignore[misc]
    """A queue of callbacks that is worked off on demand. It has no clock: a workflow sleeps by ``ctx.sleep``."""

    def __init__(self, woken: Callable[[], None]) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._woken = woken
        self._closed = False

    def pump(self) -> None:
        """Works the queue off."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready and not self._closed:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)

    def drop(self) -> None:
        """Nothing is called any more."""
        self._closed = True
        self._ready.clear()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append(handle)
            self._woken()
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: contextvars.Context | None = None, **_: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> NoReturn:
        raise RuntimeError("a workflow has no clock of its own: use `ctx.sleep`, or do this in the body of a step")

    call_at = call_later

    def time(self) -> float:
        raise RuntimeError("a workflow has no clock of its own: use `ctx.now`")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What is left behind when a run is out of memory is not an error; what fails is told by the run's end."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:
        raise RuntimeError("a workflow has no threads of its own: do this in the body of a step")
