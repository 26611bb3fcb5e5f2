"""HTTP/1.1 to one server: connections that are kept for the worker, and a blocking one for other programs."""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import ssl
import time
import urllib.parse
from dataclasses import dataclass

from ._errors import SemelError
from ._json import decode

#: Version of the worker protocol that this SDK speaks.
PROTOCOL = "1"
#: How long an answer is waited for, in seconds.
TIMEOUT = 30.0


@dataclass
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes
    #: Whether an earlier try of the same call may have taken place.
    again: bool = False

    def raised(self) -> Answer:
        """The answer, unless it is a refusal."""
        if self.status < 400:
            return self
        try:
            said = decode(self.body)
        except ValueError:
            # A proxy in between answers with a text of its own.
            said = {"detail": self.body[:200].decode(errors="replace")}
        detail = said.get("detail") or said.get("title") or "the server has refused the call"
        # Worker routes name the error of the store: "unavailable" says that nothing was written.
        unsure = self.again or (self.status >= 500 and said.get("error") != "unavailable")
        raise SemelError(
            self.status, said.get("code", f"HTTP_{self.status}"), detail, owner=said.get("owner"), pointers=said.get("pointers"), unsure=unsure
        )


class Address:
    """Where the server is, and how it is called."""

    def __init__(self, url: str | None, token: str | None) -> None:
        self.url = (url or os.environ.get("SEMEL_URL") or "http://127.0.0.1:7700").rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        self.secure = parts.scheme == "https"
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if self.secure else 80)
        self.prefix = parts.path + "/api/v1"
        self.context = ssl.create_default_context() if self.secure else None
        token = token or os.environ.get("SEMEL_TOKEN")
        self.headers = {"content-type": "application/json", "semel-protocol": PROTOCOL}
        if token:
            self.headers["authorization"] = f"Bearer {token}"

    def no_answer(self, why: BaseException) -> SemelError:
        return SemelError(0, "NO_ANSWER", f"no answer from {self.url}: {why or type(why).__name__}", unsure=not isinstance(why, Unreached))


class Unreached(OSError):
    """There was no connection to the server: the call was not sent."""


def pause_of(tries: int) -> float:
    """Seconds before a call is repeated."""
    return min(0.05 * float(2**tries), 2.0) * (0.5 + random.random() / 2)


class AsyncHttp:
    """A pool of connections on asyncio streams."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def call(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None, timeout: float = TIMEOUT) -> Answer:
        """One call. A refusal, and no answer, is a ``SemelError``."""
        try:
            async with asyncio.timeout(timeout):
                return (await self._send(method, path, body, headers or {})).raised()
        except (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError, ValueError) as lost:
            raise self.address.no_answer(lost) from lost

    async def patiently(
        self,
        method: str,
        path: str,
        body: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = TIMEOUT,
        until: float = float("inf"),
    ) -> Answer:
        """The same call, again and again while the server cannot answer. Only for calls that may be repeated."""
        tries, again = 0, False
        while True:
            try:
                answer = await self.call(method, path, body, headers, timeout)
                answer.again |= again
                return answer
            except SemelError as error:
                again = error.unsure = error.unsure or again
                pause = pause_of(tries)
                if not error.retryable or time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
                tries = min(tries + 1, 10)

    def close(self) -> None:
        """Ends idle connections."""
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()

    async def _send(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answer:
        address, data = self.address, b"" if body is None else body.encode()
        lines = [f"{method} {address.prefix}{path} HTTP/1.1", f"host: {address.host}:{address.port}", f"content-length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in (address.headers | headers).items()]
        kept = bool(self._idle)
        reader, writer = self._idle.pop() if kept else await self._connect()
        answered = False
        try:
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            answered = True
            status, said = _head(head)
            answer = Answer(status, said, await _body(reader, said))
        except (OSError, EOFError, asyncio.IncompleteReadError):
            writer.close()
            # The server had ended an idle connection, or has died since: the call may have reached it.
            if kept and not answered:
                self.close()
                try:
                    answer = await self._send(method, path, body, headers)
                except Unreached as gone:
                    raise OSError(str(gone)) from gone
                answer.again = True
                return answer
            raise
        except BaseException:
            writer.close()
            raise
        if answer.headers.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return answer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self.address
        try:
            return await asyncio.open_connection(address.host, address.port, ssl=address.context)
        except OSError as refused:
            raise Unreached(str(refused) or type(refused).__name__) from refused


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = (line.partition(":") for line in lines if line)
    return int(first.split(" ")[1]), {name.strip().lower(): value.strip() for name, _, value in headers}


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") == "chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readuntil(b"\r\n")
        return b"".join(parts)
    return await reader.readexactly(int(headers.get("content-length", "0")))


class BlockingHttp:
    """One connection for a program without asyncio; made anew when it is lost."""

    def __init__(self, address: Address) -> None:
        self.address = address

    def call(self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None, timeout: float = TIMEOUT) -> Answer:
        """One call. A refusal, and no answer, is a ``SemelError``."""
        a = self.address
        connection = (
            http.client.HTTPSConnection(a.host, a.port, timeout=timeout, context=a.context)
            if a.secure
            else http.client.HTTPConnection(a.host, a.port, timeout=timeout)
        )
        try:
            connection.request(method, a.prefix + path, body=None if body is None else body.encode(), headers=a.headers | (headers or {}))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()).raised()
        except (OSError, http.client.HTTPException) as lost:
            raise a.no_answer(lost) from lost
        finally:
            connection.close()
