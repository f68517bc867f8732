# Copyright: gpuwright contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tell people what became of the node: by a webhook (HTTPS), by mail. No text of an error here has the webhook's address."""

from __future__ import annotations

import json
import os
import re
from typing import Callable, List, Optional, Protocol, Sequence, TypedDict

from ansible_collections.gpuwright.node.plugins.module_utils.base import versions
from ansible_collections.gpuwright.node.plugins.module_utils.base.run import Result, run

#: Seconds for one connection.
SECONDS = 15
SENDMAIL = "/usr/sbin/sendmail"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_PORT = 25
#: Mail servers of this machine.
_HERE = ("localhost", "127.0.0.1")


class Message(TypedDict):
    """What is told, and the JSON of the webhook. ``state``: proven or not proven; ``title``: what became of the node; ``text``: that with
    the reasons, as one sentence.
    """

    host: str
    time: str
    state: str
    title: str
    reasons: List[str]
    remedy: Optional[str]
    text: str


class UntoldError(Exception):
    """Nobody was told; the text says why and what to do."""


class Call(Protocol):
    """What runs a program: run.run."""

    def __call__(self, argv: Sequence[str], timeout: float = ..., *, stdin: Optional[bytes] = ...) -> Result:
        """Run it with a time limit, and hand it something to read."""


#: What sends a message, and raises UntoldError.
Sender = Callable[[Message], None]


def webhook(address: str, message: Message) -> None:
    """POST the message as JSON. Anything but an answer of 2xx raises UntoldError; a redirection is not followed."""
    # Here: only a turn that tells something needs them.
    import http.client
    import ssl
    import urllib.error
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        """Elsewhere is not where the address was given for."""

        def redirect_request(self, *_arguments: object) -> None:
            return None

    try:
        request = urllib.request.Request(  # noqa: S310 - https alone, see settings.py
            address,
            data=json.dumps(message).encode(),
            headers={"Content-Type": "application/json", "User-Agent": f"gpuwright/{versions.COLLECTION}"},
            method="POST",
        )
        secure = urllib.request.HTTPSHandler(context=ssl.create_default_context())
        with urllib.request.build_opener(secure, Stay).open(request, timeout=SECONDS) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        error.close()
        then = "; give the address that it leads to" if 300 <= error.code < 400 else ""
        raise UntoldError(f"the webhook answered with status {error.code}, expected 2xx{then}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        # Any text of theirs may have the address or a part of it.
        raise UntoldError(f"the webhook could not be reached: {_why(error)}") from None


def _why(error: BaseException) -> str:
    import socket
    import ssl

    inner = getattr(error, "reason", None)
    cause = inner if isinstance(inner, BaseException) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted (error {cause.verify_code}); put the CA that signed it among those of this machine"
    if isinstance(cause, ssl.SSLError):
        return "no TLS connection could be made; it has to speak TLS 1.2 or newer"
    if isinstance(cause, socket.gaierror):
        return "its name is not known here; look at the name and at the DNS of this machine"
    if isinstance(cause, (socket.timeout, TimeoutError)):
        return f"no answer within {SECONDS} s"
    if isinstance(cause, OSError) and cause.errno is not None:
        return os.strerror(cause.errno)
    return type(cause).__name__


def mail(to: str, smtp: Optional[str], message: Message, call: Call = run) -> None:
    """Send the message to a person: by an SMTP host, or by the sendmail of this machine. Raises UntoldError."""
    if smtp is None:
        _by_sendmail(to, _letter(to, message), call)
    else:
        _by_smtp(smtp, _from(message), to, _letter(to, message, by_smtp=True))


def _letter(to: str, message: Message, *, by_smtp: bool = False) -> bytes:
    from email import policy, utils
    from email.message import EmailMessage

    letter = EmailMessage()
    letter["Subject"] = _line(message["title"])[:200]
    letter["To"] = to
    letter["From"] = _from(message)
    letter["Date"] = utils.formatdate()
    letter["Message-ID"] = utils.make_msgid(domain=_name(message["host"]))
    letter["Auto-Submitted"] = "auto-generated"
    lines = [_line(message["text"]), "", f"time: {message['time']}"]
    lines += [f"- {_line(reason)}" for reason in message["reasons"]]
    lines += [f"What to do: {_line(message['remedy'])}"] if message["remedy"] else []
    letter.set_content("\n".join(lines) + "\n")
    # A server wants lines that end as SMTP has them, a program those of this system.
    return letter.as_bytes(policy=policy.SMTP if by_smtp else policy.default)


def _from(message: Message) -> str:
    return f"gpuwright@{_name(message['host'])}"


def _name(host: str) -> str:
    return host if re.match(r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?$", host) else "localhost"


def _line(value: str) -> str:
    return _CONTROL.sub(" ", value)


def _by_sendmail(to: str, letter: bytes, call: Call) -> None:
    if not os.access(SENDMAIL, os.X_OK):
        raise UntoldError(
            f"expected a mail server with {SENDMAIL}, found none; install one, or name a host in watch_smtp"
        )
    sent = call([SENDMAIL, "-i", "--", to], timeout=SECONDS, stdin=letter)
    if not sent.ok:
        said = _line(sent.error or sent.err.strip() or f"it ended with status {sent.rc}")[:200]
        raise UntoldError(f"{SENDMAIL} did not take the mail: {said}")


def _by_smtp(smtp: str, sender: str, to: str, letter: bytes) -> None:
    import smtplib
    import ssl

    host, _colon, port = smtp.partition(":")
    try:
        with smtplib.SMTP(host, int(port or _PORT), timeout=SECONDS) as server:
            server.ehlo()
            # What leaves this machine alone: the certificate of a server on it is mostly one that nobody signed.
            if host not in _HERE and server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
                server.ehlo()
            server.sendmail(sender, [to], letter)
    except smtplib.SMTPRecipientsRefused:
        raise UntoldError(f"the mail server {smtp} refuses {to}; correct watch_mail") from None
    except (OSError, smtplib.SMTPException, ValueError) as error:
        raise UntoldError(f"the mail server {smtp} did not take the mail: {_line(str(error))[:200]}") from None
