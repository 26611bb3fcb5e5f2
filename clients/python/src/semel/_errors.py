"""Failures of steps and workflows, and refusals of the server."""

from __future__ import annotations

from typing import Any

from ._duration import Duration, millis


class Fail(Exception):
    """A failure of a step or of a workflow. Any other error that a body raises is a retryable failure.

    ``kind`` is retryable, fatal, uncertain, panic, timeout or cancelled; ``code`` and ``data`` are recorded with it.
    """

    def __init__(self, kind: str, message: str, *, code: str | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.data = data
        #: Milliseconds until the next attempt, if the body has asked for a pause.
        self.retry_after_ms: int | None = None
        #: The step, hook or child at which the failure is recorded.
        self.at: str | None = None

    @staticmethod
    def recorded(at: str, failure: dict[str, Any]) -> Fail:
        """A failure that is recorded at this place."""
        message = f"{at}: {failure['message']}"
        fail: Fail
        if failure["kind"] == "cancelled":
            fail = Cancelled(message)
        else:
            fail = Fail(failure["kind"], message, code=failure.get("code"), data=failure.get("data"))
        fail.at = at
        return fail

    def view(self) -> dict[str, Any]:
        """The failure as the ledger records it."""
        from ._json import decode, encode

        view: dict[str, Any] = {"kind": self.kind, "message": _whole(self.message)}
        if self.code is not None:
            view["code"] = _whole(self.code)
        if self.data is not None:
            try:
                view["data"] = decode(encode(self.data))
            except Fail as unkept:
                # A failure is recorded in any case.
                view["message"] += f" (its data cannot be kept: {unkept.message})"
        return view


def _whole(text: str) -> str:
    """A text in which halves of characters are replaced."""
    return str(text).encode(errors="replace").decode()


class Cancelled(Fail):
    """The run was asked to end. Clean up by ``ctx.cleanup()`` and raise it again, or return a result."""

    def __init__(self, reason: str) -> None:
        super().__init__("cancelled", reason)


def fatal(message: str, *, code: str | None = None, data: Any = None) -> Fail:
    """A failure that no other attempt mends."""
    return Fail("fatal", message, code=code, data=data)


def uncertain(message: str, *, code: str | None = None, data: Any = None) -> Fail:
    """A failure of which it is not known whether the effect took place: the step is in doubt."""
    return Fail("uncertain", message, code=code, data=data)


def retry_after(message: str, pause: Duration, *, code: str | None = None, data: Any = None) -> Fail:
    """A failure that asks for a pause before the next attempt. It says that the effect did not take place."""
    fail = Fail("retryable", message, code=code, data=data)
    fail.retry_after_ms = millis(pause)
    return fail


def fail_of(raised: BaseException) -> Fail:
    """Any exception as a failure."""
    if isinstance(raised, Fail):
        return raised
    fail = Fail("retryable", str(raised) or type(raised).__name__)
    fail.__cause__ = raised
    return fail


class SemelError(Exception):
    """A call that the server refused, or did not answer in time (status 0)."""

    def __init__(
        self, status: int, code: str, detail: str, *, owner: str | None = None, pointers: list[str] | None = None, unsure: bool = False
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        #: Id of the run that owns the key or the token, if there is one.
        self.owner = owner
        #: JSON pointers to what is wrong, or to what differs from the first request under the key.
        self.pointers = pointers or []
        #: Whether the call may have taken place: it was sent and not answered, or it is unknown whether it was written.
        self.unsure = unsure

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status in (0, 429, 503)
