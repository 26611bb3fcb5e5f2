"""A mail server that keeps what it accepts, and breaks off where its plan says. Started by scripts/smtp-sink.

A line of the plan is one of
  greeting, ehlo, mail, rcpt, data   the connection is closed when this stage is reached, and nothing is accepted
  body     closed in the middle of the mail, which is not accepted
  lost     closed after the mail, which is not accepted
  dot      closed after the mail, which is accepted
  refuse-mail:CODE, refuse-rcpt:CODE, refuse-dot:CODE   answered with this code
  ok       nothing of this kind
"""

import asyncio
import base64
import json
import sys
import threading
from pathlib import Path

from aiosmtpd.smtp import SMTP

FOLDER = Path(sys.argv[1])
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def planned():
    """The first line of the plan, which is taken out."""
    plan = FOLDER / "plan"
    lines = plan.read_text().split("\n") if plan.exists() else []
    plan.write_text("\n".join(lines[1:]))
    return lines[0].strip() if lines and lines[0].strip() else "ok"


class Keeper:
    async def handle_DATA(self, server, session, envelope):
        action, _, code = server.plan.partition(":")
        if action == "lost":
            server.leave()
            return "250 unheard"
        if action == "refuse-dot":
            return f"{code} not this mail"
        mail = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "bytes": base64.b64encode(envelope.original_content).decode(),
        }
        with (FOLDER / "mails").open("a") as mails:
            mails.write(json.dumps(mail) + "\n")
        if action == "dot":
            server.leave()
        return "250 2.0.0 queued as 7"


class Sink(SMTP):
    plan = "ok"

    def connection_made(self, transport):
        self.plan = planned()
        if self.plan == "greeting":
            transport.abort()
            return
        super().connection_made(transport)

    def leave(self):
        self.transport.abort()

    async def stage(self, name):
        """Whether the dialogue breaks off, or is refused, here."""
        action, _, code = self.plan.partition(":")
        if action == name:
            self.leave()
            return True
        if action == f"refuse-{name}":
            await self.push(f"{code} not here")
            return True
        return False

    async def smtp_EHLO(self, arg):
        if not await self.stage("ehlo"):
            await super().smtp_EHLO(arg)

    async def smtp_MAIL(self, arg):
        if not await self.stage("mail"):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg):
        if not await self.stage("rcpt"):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg):
        if await self.stage("data"):
            return
        if self.plan == "body":
            await self.push("354 go on")
            await self._reader.readexactly(16)
            self.leave()
            return
        await super().smtp_DATA(arg)


async def main():
    loop = asyncio.get_running_loop()
    keeper = Keeper()
    server = await loop.create_server(
        lambda: Sink(keeper, hostname="sink.example", loop=loop, data_size_limit=None), "127.0.0.1", PORT
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    done = asyncio.Event()

    def ends():
        sys.stdin.read()
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=ends, daemon=True).start()
    await done.wait()


asyncio.run(main())
