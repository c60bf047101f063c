"""The server's side of a connection over HTTP/1.1."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from .messages import Reply, Request

if TYPE_CHECKING:
    from .node import Connection


async def serve(connection: Connection, begun: bytes) -> None:
    """Answers requests until the client closes the connection. `begun` was read before."""
    request = await _read(connection, begun)
    while request is not None:
        following = asyncio.ensure_future(_read(connection, b""))
        try:
            reply = await connection.answer(request)
            if following.done() and not following.exception() and following.result():
                connection.complain("a request came over HTTP/1.1 before the last was answered")
            await _write(connection, reply)
            if reply.then == "close":
                return
            if reply.then == "stall":
                await following
                return
            request = await following
        finally:
            following.cancel()


async def _read(connection: Connection, begun: bytes) -> Request | None:
    head = begun + await connection.reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    try:
        method, target, version = lines[0].split(" ")
        pairs = (line.split(":", 1) for line in lines[1:] if line)
        headers = {name.lower(): value.strip() for name, value in pairs}
    except ValueError:
        connection.complain(f"not a request of HTTP/1.1: {lines[0]!r}")
        return None
    if version != "HTTP/1.1" or "host" not in headers:
        connection.complain(f"HTTP/1.1 wants its version and a Host: {lines[0]!r}")
    body = await connection.reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, connection.number)


async def _write(connection: Connection, reply: Reply) -> None:
    if not reply.status:
        return
    phrase = HTTPStatus(reply.status).phrase
    lines = [f"HTTP/1.1 {reply.status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    if reply.status != HTTPStatus.NO_CONTENT:
        length = len(reply.body) if reply.length is None else reply.length
        lines.append(f"Content-Length: {length}")
    connection.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)
    await connection.writer.drain()
