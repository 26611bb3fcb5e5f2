"""A mail server that keeps what it accepts, and breaks off where its plan says. Started by scripts/smtp-sink.

A line of the plan is one of
  greeting, ehlo, mail, rcpt, data   the connection is closed when this stage is reached, and nothing is accepted
  body     closed in the middle of the mail, which is not accepted
  lost     closed after the mail, which is not accepted
  dot      closed after the mail, which is accepted
  refuse-mail:CODE, refuse-rcpt:CODE, refuse-dot:CODE   answered with this code
  ok       nothing of this kind
"""

import argparse
import asyncio
import base64
import json
import ssl
import sys
import threading
from pathlib import Path

from aiosmtpd.smtp import SMTP, AuthResult

PARSER = argparse.ArgumentParser()
PARSER.add_argument("folder", type=Path)
PARSER.add_argument("port", type=int, nargs="?", default=0)
PARSER.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
PARSER.add_argument("--implicit", action="store_true", help="encrypted from the first byte on, without STARTTLS")
PARSER.add_argument("--user", metavar="USER:PASSWORD")
OPTIONS = PARSER.parse_args()
FOLDER = OPTIONS.folder


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
        # After STARTTLS it is the same connection.
        if self._original_transport is None:
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


def is_known(server, session, envelope, mechanism, given):
    """Whether the user and the password are those that were told."""
    known = OPTIONS.user.encode() == given.login + b":" + given.password
    return AuthResult(success=known, handled=False)


async def main():
    loop = asyncio.get_running_loop()
    keeper = Keeper()
    tls = None
    if OPTIONS.tls:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*OPTIONS.tls)
    by_command = tls if not OPTIONS.implicit else None
    settings = {
        "hostname": "sink.example",
        "loop": loop,
        "data_size_limit": None,
        "tls_context": by_command,
        "require_starttls": by_command is not None,
        "auth_required": OPTIONS.user is not None,
        "auth_require_tls": by_command is not None,
        "authenticator": is_known if OPTIONS.user else None,
    }
    server = await loop.create_server(
        lambda: Sink(keeper, **settings), "127.0.0.1", OPTIONS.port, ssl=tls if OPTIONS.implicit else None
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    done = asyncio.Event()

    def ends():
        sys.stdin.read()
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=ends, daemon=True).start()
    await done.wait()


asyncio.run(main())
