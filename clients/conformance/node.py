"""A node that answers as a case wants it, over plain TCP or TLS, HTTP/1.1 or HTTP/2."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Callable

from . import http1, http2
from .messages import Reply, Request, Script, members
from .tls_stream import TlsSession, TlsWriter

HOST = "127.0.0.1"
TLS_HANDSHAKE_BYTE = 0x16
# A client that is broken may ask for ever: the lists of what came are bounded.
REQUESTS_MAX = 100_000


class Connection:
    """A connection of a client to a node."""

    def __init__(
        self, node: Node, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.node = node
        self.reader = reader
        self.writer: asyncio.StreamWriter | TlsWriter = writer
        self.number = len(node.connections)
        self.knows_members = False
        self.is_http2 = False

    async def run(self) -> None:
        begun = await self.reader.readexactly(4)
        await self.thawed()
        if begun == http2.PREFACE[:4]:
            self.is_http2 = True
            await self.reader.readexactly(len(http2.PREFACE) - 4)
            await http2.serve(self)
        elif begun[0] == TLS_HANDSHAKE_BYTE:
            self.node.tls_attempts += 1
            self.writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        else:
            await http1.serve(self, begun)

    async def answer(self, request: Request) -> Reply:
        await self.thawed()
        reply = await self.node.answer(self, request)
        await self.thawed()
        return reply

    async def thawed(self) -> None:
        """Never returns while the node is frozen."""
        if self.node.is_frozen:
            await asyncio.Event().wait()

    def pinged(self) -> None:
        self.node.pings += 1
        self.node.notify()

    def complain(self, what: str) -> None:
        self.node.complaints.append(f"{self.node.address}: {what}")

    def abort(self) -> None:
        self.writer.transport.abort()


class Node:
    """A scripted node. What a client may never send is kept in `complaints`."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.changes_script: Script = script
        self.address = ""
        self.members: Reply | None = None
        self.members_delay = 0.0
        # All requests for timestamps, changes and lists of members.
        self.asked: list[Request] = []
        self.changes: list[Request] = []
        self.members_asked = 0
        self.pings = 0
        self.connections: list[Connection] = []
        self.tls_attempts = 0
        self.complaints: list[str] = []
        self.is_frozen = False
        self._tls = tls
        self._arrival = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def start(self, host: str = HOST) -> None:
        self._server = await asyncio.start_server(self._accept, host, 0, backlog=1024)
        port = self._server.sockets[0].getsockname()[1]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(self, reader, writer)
        self.connections.append(connection)
        self.notify()
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        decrypting = None
        try:
            if self._tls:
                session = TlsSession(reader, writer, self._tls)
                await connection.thawed()
                await session.handshake()
                connection.reader, connection.writer = session.decrypted, TlsWriter(session)
                decrypting = asyncio.ensure_future(session.run())
            await connection.run()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # The client closed the connection, or does not trust it.
        finally:
            if decrypting:
                decrypting.cancel()
            self._tasks.discard(task)
            writer.close()

    async def answer(self, connection: Connection, request: Request) -> Reply:
        if request.path == "/members" and request.method == "GET":
            self._check_read(connection, request)
            self.members_asked += 1
            connection.knows_members = True
            await asyncio.sleep(self.members_delay)
            return self.members or members(None, [self.address])
        if request.path == "/timestamp" and request.method == "GET":
            self._check_read(connection, request)
            self._check_timestamp_request(connection, request)
            self.asked.append(request)
            self.notify()
            return await self.script(request)
        if request.path == "/up" and request.method == "GET":
            return Reply(200, b"ok")
        if request.path.startswith("/cluster/") and request.method == "POST":
            self.changes.append(request)
            self.notify()
            return await self.changes_script(request)
        connection.complain(f"an unknown request: {request.method} {request.target}")
        return Reply(404, b"no such path")

    def _check_read(self, connection: Connection, request: Request) -> None:
        if "authorization" in request.headers:
            connection.complain(f"the token was sent with {request.method} {request.target}")

    def _check_timestamp_request(self, connection: Connection, request: Request) -> None:
        if len(self.asked) >= REQUESTS_MAX:
            raise ConnectionError("too many requests")
        if not 1 <= request.n <= 65_536:
            connection.complain(f"n is out of bounds: {request.target}")
        if not connection.knows_members:
            connection.complain("a connection asked for timestamps before /members")

    def notify(self) -> None:
        self._arrival.set()
        self._arrival = asyncio.Event()

    async def wait_for_asked(self, count: int) -> None:
        """Waits until so many requests for timestamps have come."""
        await self.wait_until(lambda: len(self.asked) >= count)

    async def wait_for_connections(self, count: int) -> None:
        await self.wait_until(lambda: len(self.connections) >= count)

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Waits until something has come with which this holds."""
        while not holds():
            await self._arrival.wait()

    def counts(self) -> list[int]:
        return [request.n for request in self.asked]

    def cut(self) -> None:
        """Ends its connections."""
        for connection in self.connections:
            connection.abort()

    async def stop(self) -> None:
        """Ends the node and its connections."""
        if self._server:
            self._server.close()
            self._server = None
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class DeadPort:
    """An address where nothing listens, and that no other listener gets."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.bind((HOST, 0))
        self.address = "{}:{}".format(*self._socket.getsockname())

    def close(self) -> None:
        self._socket.close()


class FullBacklog:
    """An address that answers no SYN: its queue of connections is full."""

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind((HOST, 0))
        self._listener.listen(0)
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._waiting = []
        for _ in range(4):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(self._listener.getsockname())
            self._waiting.append(waiting)

    def close(self) -> None:
        for each in [*self._waiting, self._listener]:
            each.close()
