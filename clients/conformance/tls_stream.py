"""The server's side of TLS over plain streams. That of `asyncio` closes the connection without the
alert that says why."""

from __future__ import annotations

import asyncio
import ssl

CHUNK_BYTES = 64 << 10


class TlsWriter:
    """What of `asyncio.StreamWriter` a connection uses."""

    def __init__(self, session: TlsSession) -> None:
        self._session = session
        self.transport = session.writer.transport

    def write(self, data: bytes) -> None:
        self._session.tls.write(data)
        self._session.flush()

    async def drain(self) -> None:
        await self._session.writer.drain()

    def close(self) -> None:
        self._session.writer.close()


class TlsSession:
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
    ) -> None:
        self._reader = reader
        self.writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.decrypted = asyncio.StreamReader()

    async def handshake(self) -> None:
        """Raises `ssl.SSLError`, after the client got the alert, and `EOFError`."""
        while True:
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:
                self.flush()
            if not await self._receive():
                raise EOFError("the client left the handshake")

    async def run(self) -> None:
        """Decrypts what comes, until the connection ends."""
        try:
            while True:
                try:
                    while data := self.tls.read(CHUNK_BYTES):
                        self.decrypted.feed_data(data)
                    return
                except ssl.SSLWantReadError:
                    pass
                finally:
                    self.flush()
                if not await self._receive():
                    return
        except OSError:
            pass  # The client sent an alert, or closed the connection.
        finally:
            self.decrypted.feed_eof()

    async def _receive(self) -> bool:
        data = await self._reader.read(CHUNK_BYTES)
        self._incoming.write(data)
        return bool(data)

    def flush(self) -> None:
        if self._outgoing.pending:
            self.writer.write(self._outgoing.read())
