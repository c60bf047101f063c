"""The driver of the Python client with one mistake, the name of a function below.

Run as `python3 driver.py MISTAKE`. The functions replace parts of the client in this process.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))

from conformance_driver import Driver
from esker_client import aio, protocol
from esker_client.aio import AsyncClient
from esker_client.connection import Connection, Tls
from esker_client.errors import AttemptError, UnknownOutcomeError
from esker_client.protocol import Timestamp, TimestampRange
from esker_client.route import Route

SURPLUS = 64


def replace(owner: Any, name: str, value: Any) -> Any:
    """Replaces something that is there, and returns it."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before


def ignores_deadlines() -> None:
    replace(AsyncClient, "_expire", lambda self, caller: None)


def retries_without_a_wait() -> None:
    replace(Route, "delay", lambda self: 0.0)


def gives_up_after_a_failure() -> None:
    async def request(self: AsyncClient, link: Connection) -> None:
        try:
            await right(self, link)
        except AttemptError as error:
            callers = list(self._waiting)
            self._waiting.clear()
            self._fail(callers, UnknownOutcomeError("the request failed", error))

    right = replace(AsyncClient, "_request", request)


def repeats_what_was_refused() -> None:
    def read(self: AsyncClient, address: str, answer: Any, count: int) -> Any:
        if answer.status == 400:
            raise AttemptError(address, "status", answer)
        return right(self, address, answer, count)

    right = replace(AsyncClient, "_read", read)


def follows_names_for_ever() -> None:
    def follow(self: Route, by: str, leader: str) -> None:
        self.named = leader
        self._failed = None

    replace(Route, "follow", follow)


def follows_urls() -> None:
    def address(text: object) -> Any:
        if not isinstance(text, str):
            return None
        return right(text.replace("http://", "").split("@")[-1].split("/")[0])

    right = replace(protocol, "node_address", address)


def waits_for_an_answer_for_ever() -> None:
    replace(aio, "ANSWER_TIMEOUT", 1e6)


def interrupts_connecting() -> None:
    def expire(self: AsyncClient, caller: Any) -> None:
        right(self, caller)
        if self._worker and self._connection is None:
            self._worker.cancel()

    right = replace(AsyncClient, "_expire", expire)


def mixes_two_clusters() -> None:
    async def opened(self: AsyncClient, address: str, path: Route, timeout: float) -> Connection:
        link = await Connection.open(address, self._tls, min(timeout, self._connect_timeout))
        path.set_members(link.members)
        return link

    replace(AsyncClient, "_open", opened)


def accepts_malformed_answers() -> None:
    def read(body: bytes, count: int, as_range: bool) -> TimestampRange:
        return TimestampRange(Timestamp.from_bytes(body.ljust(16, b"\x01")[:16]), count)

    replace(aio, "read_timestamps", read)


def accepts_what_went_backwards() -> None:
    def read(self: AsyncClient, address: str, answer: Any, count: int) -> Any:
        self._highest = Timestamp(0, 0)
        return right(self, address, answer, count)

    right = replace(AsyncClient, "_read", read)


def _ask_ahead() -> None:
    """Asks for more than callers want."""

    async def ask(self: Connection, method: str, path: str, *rest: Any) -> Any:
        if path.startswith("/timestamp?n="):
            count = int(path[len("/timestamp?n=") :].partition("&")[0])
            path = path.replace(f"n={count}", f"n={count + SURPLUS}")
        return await right_ask(self, method, path, *rest)

    def read(self: AsyncClient, address: str, answer: Any, count: int) -> Any:
        return right_read(self, address, answer, count + SURPLUS)

    right_ask = replace(Connection, "ask", ask)
    right_read = replace(AsyncClient, "_read", read)


def joins_a_sent_request() -> None:
    _ask_ahead()

    def finish(self: AsyncClient, found: TimestampRange) -> None:
        # Those who came while it was in flight, too.
        self._in_flight.extend(self._waiting)
        self._waiting.clear()
        right(self, found)

    right = replace(AsyncClient, "_finish", finish)


def keeps_left_over_timestamps() -> None:
    _ask_ahead()
    left: list[Timestamp] = []

    def finish(self: AsyncClient, found: TimestampRange) -> None:
        right_finish(self, found)
        left[:] = list(found)[-SURPLUS:]

    async def timestamps(self: AsyncClient, count: int, **options: Any) -> Any:
        if len(left) < count:
            return await right_timestamps(self, count, **options)
        first = left[0]
        del left[:count]
        return TimestampRange(first, count)

    right_finish = replace(AsyncClient, "_finish", finish)
    right_timestamps = replace(AsyncClient, "timestamps", timestamps)


def sends_a_request_for_each_caller() -> None:
    async def request(self: AsyncClient, link: Connection) -> None:
        others = [self._waiting.pop() for _ in range(len(self._waiting) - 1)]
        work = right(self, link)
        work_task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        self._waiting.extend(reversed(others))
        await work_task

    right = replace(AsyncClient, "_request", request)


def queues_without_a_bound() -> None:
    async def timestamps(self: AsyncClient, *arguments: Any, **options: Any) -> Any:
        self._queue = 1 << 30
        return await right(self, *arguments, **options)

    right = replace(AsyncClient, "timestamps", timestamps)


def cancels_the_callers_of_a_request() -> None:
    def finish(self: AsyncClient, found: TimestampRange) -> None:
        if any(future.done() for future, _ in self._in_flight):
            self._fail(self._in_flight, UnknownOutcomeError("a caller has left"))
        right(self, found)

    right = replace(AsyncClient, "_finish", finish)


def sends_the_token_along() -> None:
    async def ask(self: Connection, method: str, path: str, timeout: float, *rest: Any) -> Any:
        rest = rest or ("Authorization: Bearer 0123456789abcdef\r\n",)
        return await right(self, method, path, timeout, *rest)

    right = replace(Connection, "ask", ask)


def repeats_changes() -> None:
    async def change(self: AsyncClient, *arguments: Any, **options: Any) -> Any:
        try:
            return await right(self, *arguments, **options)
        except UnknownOutcomeError:
            return await right(self, *arguments, **options)

    right = replace(AsyncClient, "change", change)


def does_not_verify_hosts() -> None:
    def read(self: Tls) -> ssl.SSLContext:
        context: ssl.SSLContext = right(self)
        context.check_hostname = False
        return context

    right = replace(Tls, "_read", read)


def does_not_verify_certificates() -> None:
    def read(self: Tls) -> ssl.SSLContext:
        context: ssl.SSLContext = right(self)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context

    right = replace(Tls, "_read", read)


def falls_back_to_plain() -> None:
    async def opened(cls: Any, address: str, tls: Any, timeout: float) -> Connection:
        try:
            link: Connection = await right(address, tls, timeout)
        except AttemptError:
            link = await right(address, None, timeout)
        return link

    right = replace(Connection, "open", classmethod(opened))


def reads_files_once() -> None:
    replace(Tls, "context", lambda self: self._context)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    asyncio.run(Driver(with_threads=False).run())
