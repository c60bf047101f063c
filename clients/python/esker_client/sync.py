"""The client for threads: an `AsyncClient` on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from .aio import AsyncClient
from .errors import ClosedError
from .protocol import Answer, Timestamp, TimestampRange

_Result = TypeVar("_Result")


class Client:
    """A client that all threads may use. Its callers share requests.

    The options are those of `AsyncClient`.
    """

    def __init__(self, endpoints: Sequence[str], **options: Any) -> None:
        self._client = AsyncClient(endpoints, **options)
        self._lock, self._is_closed = threading.Lock(), False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="esker", daemon=True)
        self._thread.start()

    def timestamp(self, *, timeout: float | None = None) -> Timestamp:
        """Returns a timestamp. Raises `EskerError`."""
        return self.timestamps(1, timeout=timeout).first

    def timestamps(self, count: int, *, timeout: float | None = None) -> TimestampRange:
        """Returns consecutive timestamps. Raises `EskerError`, and `ValueError` for the count."""
        return self.submit(count, timeout=timeout).result()

    def timestamp_u64(self, *, timeout: float | None = None) -> int:
        """Returns a timestamp of 64 bits. Raises `EskerError`."""
        return self.timestamps_u64(1, timeout=timeout)[0]

    def timestamps_u64(self, count: int, *, timeout: float | None = None) -> range:
        """See `AsyncClient.timestamps_u64`."""
        return self.submit_u64(count, timeout=timeout).result()

    def submit(self, count: int = 1, *, timeout: float | None = None) -> Future[TimestampRange]:
        """Begins a call. Its future may be cancelled: its timestamps are lost then."""
        return self._run(self._client.timestamps(count, timeout=timeout))

    def submit_u64(self, count: int = 1, *, timeout: float | None = None) -> Future[range]:
        """Begins a call for timestamps of 64 bits, as `submit`."""
        return self._run(self._client.timestamps_u64(count, timeout=timeout))

    def change(self, path: str, body: bytes = b"{}", *, timeout: float | None = None) -> Answer:
        """See `AsyncClient.change`."""
        return self._run(self._client.change(path, body, timeout=timeout)).result()

    def close(self) -> None:
        """Closes the client. Calls that wait fail with `ClosedError`."""
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
        if not is_closed:
            asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        with self._lock:  # What is begun before the loop stops is ended by it.
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise ClosedError("the client is closed")
