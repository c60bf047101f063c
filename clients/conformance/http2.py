"""The server's side of a connection over HTTP/2 (RFC 9113), as far as clients of the service need
it: no priorities, no push, no trailers."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

from . import hpack
from .messages import Reply, Request

if TYPE_CHECKING:
    from .node import Connection

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
ACK = END_STREAM = 0x1
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20
INITIAL_WINDOW_SIZE = 4
WINDOW_BYTES = 65_535
FRAME_BYTES_MAX = 16_384


async def serve(connection: Connection) -> None:
    """Answers requests until the client closes the connection. Its preface was read before."""
    await _Session(connection).run()


class _Session:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._decoder = hpack.Decoder()
        self._streams: dict[int, tuple[dict[str, str], bytearray]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ended: set[int] = set()
        # What may be sent: on the connection (0) and on each stream.
        self._windows: dict[int, int] = {0: WINDOW_BYTES}
        self._initial_window = WINDOW_BYTES
        self._window_changed = asyncio.Event()

    async def run(self) -> None:
        self._send(SETTINGS, 0, 0)
        try:
            while True:
                await self._receive(*await self._frame())
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _frame(self) -> tuple[int, int, int, bytes]:
        head = await self._connection.reader.readexactly(9)
        await self._connection.thawed()
        high, low, kind, flags, stream = struct.unpack(">BHBBL", head)
        payload = await self._connection.reader.readexactly(high << 16 | low)
        return kind, flags, stream & 0x7FFFFFFF, payload

    async def _receive(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack_from(">HL", payload, at)
                if name == INITIAL_WINDOW_SIZE:
                    self._resize_windows(value)
            self._send(SETTINGS, ACK, 0)
        elif kind == PING and not flags & ACK:
            self._connection.pinged()
            self._send(PING, ACK, 0, payload)
        elif kind == WINDOW_UPDATE:
            self._windows[stream] = self._window(stream) + struct.unpack(">L", payload)[0]
            self._window_changed.set()
        elif kind == RST_STREAM:
            self._end(stream)
        elif kind == HEADERS:
            await self._headers(flags, stream, _unpadded(flags, payload))
        elif kind == DATA:
            if payload:
                for each in (0, stream):
                    self._send(WINDOW_UPDATE, 0, each, struct.pack(">L", len(payload)))
            if stream in self._streams:
                self._streams[stream][1].extend(_unpadded(flags, payload))
                self._finish(flags, stream)

    async def _headers(self, flags: int, stream: int, block: bytes) -> None:
        if flags & PRIORITY:
            block = block[5:]
        end = flags
        while not end & END_HEADERS:
            _, end, _, more = await self._frame()
            block += more
        self._streams[stream] = (dict(self._decoder.decode(block)), bytearray())
        self._finish(flags, stream)

    def _finish(self, flags: int, stream: int) -> None:
        if flags & END_STREAM:
            headers, body = self._streams.pop(stream)
            method, path = headers.pop(":method", ""), headers.pop(":path", "")
            request = Request(method, path, headers, bytes(body), self._connection.number)
            self._tasks[stream] = asyncio.ensure_future(self._answer(stream, request))

    async def _answer(self, stream: int, request: Request) -> None:
        try:
            reply = await self._connection.answer(request)
            await self._write(stream, reply)
            if reply.then == "close":
                self._connection.abort()
        finally:
            self._end(stream, cancel=False)

    async def _write(self, stream: int, reply: Reply) -> None:
        if not reply.status:
            return
        length = len(reply.body) if reply.length is None else reply.length
        fields: list[tuple[str, str]] = [(":status", str(reply.status))]
        fields += [(name.lower(), value) for name, value in reply.headers.items()]
        if reply.status != 204:
            fields.append(("content-length", str(length)))
        is_whole = length == len(reply.body) and reply.then == "keep"
        ends = END_STREAM if is_whole and not reply.body else 0
        self._send(HEADERS, END_HEADERS | ends, stream, hpack.encode(fields))
        left = reply.body
        while left and stream not in self._ended:
            room = min(self._window(0), self._window(stream), FRAME_BYTES_MAX)
            if room <= 0:
                self._window_changed.clear()
                await self._window_changed.wait()
                continue
            part, left = left[:room], left[room:]
            self._windows[0] = self._window(0) - len(part)
            self._windows[stream] = self._window(stream) - len(part)
            self._send(DATA, END_STREAM if is_whole and not left else 0, stream, part)
        await self._connection.writer.drain()

    def _end(self, stream: int, cancel: bool = True) -> None:
        self._ended.add(stream)
        self._streams.pop(stream, None)
        self._windows.pop(stream, None)
        task = self._tasks.pop(stream, None)
        if task and cancel:
            task.cancel()

    def _window(self, stream: int) -> int:
        return self._windows.get(stream, self._initial_window)

    def _resize_windows(self, size: int) -> None:
        for stream in self._windows:
            if stream:
                self._windows[stream] += size - self._initial_window
        self._initial_window = size
        self._window_changed.set()

    def _send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        length = len(payload)
        head = struct.pack(">BHBBL", length >> 16, length & 0xFFFF, kind, flags, stream)
        self._connection.writer.write(head + payload)


def _unpadded(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
