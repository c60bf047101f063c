"""A connection to a node: HTTP/1.1, plain or over TLS 1.3, one request at a time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine
from typing import Any, TypeVar

from .errors import AttemptError
from .protocol import Answer, read_members

_Result = TypeVar("_Result")
BODY_BYTES_MAX, HEAD_BYTES_MAX = 2 << 20, 16 << 10


class Tls:
    """The files of TLS, which new connections read again."""

    def __init__(self, ca_file: str | None, certificate: tuple[str, str] | None) -> None:
        self._ca_file, self._certificate = ca_file, certificate
        try:
            self._context = self._read()
        except OSError as error:
            raise ValueError(f"cannot use {ca_file}, {certificate}: {error}") from error

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if self._ca_file:
            context.load_verify_locations(self._ca_file)
        else:
            context.load_default_certs()
        if self._certificate:
            context.load_cert_chain(*self._certificate)
        return context

    def context(self) -> ssl.SSLContext:
        """Returns the context of the files; if one cannot be used, that of before."""
        with contextlib.suppress(OSError):  # Files are replaced one after the other.
            self._context = self._read()
        return self._context


class Connection:
    """A connection whose node has said which cluster it is of, and who its members are."""

    def __init__(self, address: str) -> None:
        self.address = address

    @classmethod
    async def open(cls, address: str, tls: Tls | None, timeout: float) -> Connection:
        self = cls(address)
        await _attempt(address, timeout, self._open(tls))
        return self

    async def _open(self, tls: Tls | None) -> None:
        host, port = self.address.rsplit(":", 1)
        host = host.strip("[]")
        self._reader, self._writer = await asyncio.open_connection(
            host, int(port), ssl=tls and tls.context(), server_hostname=host if tls else None,
            limit=HEAD_BYTES_MAX, happy_eyeballs_delay=0.25)  # fmt: skip
        try:
            answer = await self._send("GET", "/members")
            if answer.status != 200:
                raise AttemptError(self.address, "status", answer)
            self.cluster, self.leader, self.members = read_members(answer.body)
        except BaseException:
            self.close()
            raise

    def is_open(self) -> bool:
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.transport.abort()

    async def ask(self, method: str, path: str, timeout: float, *content: Any) -> Answer:
        """Sends a request, with headers and a body if `content` has them. If it raises
        `AttemptError`, the connection is of no more use."""
        return await _attempt(self.address, timeout, self._send(method, path, *content))

    async def _send(self, method: str, path: str, headers: str = "", body: bytes = b"") -> Answer:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.address}\r\n{headers}\r\n"
        self._writer.write(head.encode() + body)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = head.rstrip().split("\r\n")
        if not status.startswith("HTTP/1.1 "):
            raise ValueError("it does not speak HTTP/1.1")
        fields = {name.lower(): value.strip() for name, value in (it.split(":", 1) for it in lines)}
        length = int(fields.get("content-length", "0"))
        if not 0 <= length <= BODY_BYTES_MAX:
            raise ValueError("its answer is too long")
        answer = Answer(int(status[9:12]), fields, await self._reader.readexactly(length))
        if "content-length" not in fields or fields.get("connection", "").lower() == "close":
            self.close()
        return answer


async def _attempt(address: str, timeout: float, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Awaits `work`. What it raises becomes an `AttemptError`."""
    try:
        return await asyncio.wait_for(work, timeout)
    except asyncio.TimeoutError as error:
        raise AttemptError(address, "no_answer", f"no answer within {timeout:.3g} s") from error
    except ssl.SSLError as error:
        raise AttemptError(address, "tls", f"no TLS connection: {error}") from error
    except (OSError, EOFError) as error:
        raise AttemptError(address, "connection", str(error) or "the connection ended") from error
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise AttemptError(address, "not_a_node", f"no Esker node answers: {error}") from error
