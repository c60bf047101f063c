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
            self._fail(list(self._waiting), UnknownOutcomeError("the request failed", error))

    right = replace(AsyncClient, "_request", request)


def repeats_what_was_refused() -> None:
    def read(self: AsyncClient, address: str, answer: Any, *rest: Any) -> Any:
        if answer.status == 400:
            raise AttemptError(address, "status", answer)
        return right(self, address, answer, *rest)

    right = replace(AsyncClient, "_read", read)


def follows_names_for_ever() -> None:
    def follow(self: Route, by: str, leader: str | None) -> None:
        if leader is None:
            right(self, by, leader)
        else:
            self.named, self._failed = leader, None

    right = replace(Route, "follow", follow)


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
    async def opened(cls: Any, *arguments: Any) -> Connection:
        link: Connection = await right(*arguments)
        link.cluster = ""
        return link

    right = replace(Connection, "open", classmethod(opened))


def accepts_malformed_answers() -> None:
    def read(body: bytes, count: int, form: str) -> TimestampRange:
        if form == protocol.U64_FORM:
            number = int.from_bytes(body.ljust(8, b"\x01")[:8], "big")
            return TimestampRange(Timestamp.from_u64(number % (1 << 62)), count)
        return TimestampRange(Timestamp.from_bytes(body.ljust(16, b"\x01")[:16]), count)

    replace(protocol, "read_timestamps", read)


def accepts_what_went_backwards() -> None:
    def read(self: AsyncClient, *arguments: Any) -> Any:
        self._highest = (Timestamp(0, 0), protocol.RANGE_FORM)
        return right(self, *arguments)

    right = replace(AsyncClient, "_read", read)


def has_an_order_for_each_width() -> None:
    highest: dict[str, Any] = {}

    def read(self: AsyncClient, address: str, answer: Any, count: int, form: str) -> Any:
        self._highest = highest.get(form, (Timestamp(0, 0), form))
        found = right(self, address, answer, count, form)
        highest[form] = (found.last, form)
        return found

    right = replace(AsyncClient, "_read", read)


def shares_requests_between_widths() -> None:
    async def request(self: AsyncClient, link: Connection) -> None:
        forms = [form for _, form in self._waiting.values()]
        self._waiting = {each: (size, forms[0]) for each, (size, _) in self._waiting.items()}
        await right(self, link)

    right = replace(AsyncClient, "_request", request)


def _ask_ahead() -> None:
    """Asks for more than callers want."""

    async def ask(self: Connection, method: str, path: str, *rest: Any) -> Any:
        if path.startswith("/timestamp?n="):
            count = int(path[len("/timestamp?n=") :].partition("&")[0])
            path = path.replace(f"n={count}", f"n={count + SURPLUS}")
        return await right_ask(self, method, path, *rest)

    def read(self: AsyncClient, address: str, answer: Any, count: int, form: str) -> Any:
        return right_read(self, address, answer, count + SURPLUS, form)

    right_ask = replace(Connection, "ask", ask)
    right_read = replace(AsyncClient, "_read", read)


def joins_a_sent_request() -> None:
    _ask_ahead()

    def finish(self: AsyncClient, found: TimestampRange, form: str) -> None:
        # Those who came while it was in flight, too.
        self._in_flight.update(self._waiting)
        self._waiting.clear()
        right(self, found, form)

    right = replace(AsyncClient, "_finish", finish)


def keeps_left_over_timestamps() -> None:
    _ask_ahead()
    left: list[Timestamp] = []

    def finish(self: AsyncClient, found: TimestampRange, form: str) -> None:
        right_finish(self, found, form)
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
        others = dict(list(self._waiting.items())[1:])
        for caller in others:
            del self._waiting[caller]
        work = asyncio.ensure_future(right(self, link))
        await asyncio.sleep(0)
        self._waiting.update(others)
        await work

    right = replace(AsyncClient, "_request", request)


def queues_without_a_bound() -> None:
    async def timestamps(self: AsyncClient, *arguments: Any, **options: Any) -> Any:
        self._queue = 1 << 30
        return await right(self, *arguments, **options)

    right = replace(AsyncClient, "timestamps", timestamps)


def cancels_the_callers_of_a_request() -> None:
    def finish(self: AsyncClient, found: TimestampRange, form: str) -> None:
        if any(caller.done() for caller in self._in_flight):
            self._fail(self._in_flight, UnknownOutcomeError("a caller has left"))
        right(self, found, form)

    right = replace(AsyncClient, "_finish", finish)


def asks_after_the_deadline() -> None:
    def begin(self: AsyncClient, timeout: float | None) -> float:
        return right(self, timeout or None)

    right = replace(AsyncClient, "_begin", begin)


def goes_back_to_a_failed_leader() -> None:
    def follow(self: Route, by: str, leader: str | None) -> None:
        right(self, by, leader)
        self.named = leader

    right = replace(Route, "follow", follow)


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
