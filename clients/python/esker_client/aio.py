"""The client for asyncio: callers share requests, and follow the leader together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Any

from . import errors, protocol
from .connection import Connection, Tls
from .protocol import COUNT_MAX, U64_FORM, Answer, Timestamp, TimestampRange, sort_key
from .route import Route

ANSWER_TIMEOUT = 1.5
_Caller = asyncio.Future[TimestampRange]


class AsyncClient:
    """A client of the timestamp service, for one event loop.

    Concurrent callers share requests. A timestamp comes from a request that was sent after its
    call began. A call may be cancelled at any moment; its timestamps are lost then.

    `ca_file` (default: the system's authorities) and `client_certificate`, the files of a
    certificate and of its key, are for `https://` endpoints; `token` is for changes. `cluster` is
    the id of the only cluster to use. Timeouts are in seconds. `queue` is the most callers that
    wait, `max_timestamps` the most of a request. With `as_range=False` nodes send 16 bytes for
    each timestamp. Raises `ValueError` for invalid options.
    """

    def __init__(
        self, endpoints: Sequence[str], *, ca_file: str | None = None, token: str | None = None,
        client_certificate: tuple[str, str] | None = None, cluster: str | None = None,
        timeout: float = 5.0, connect_timeout: float = 1.0, queue: int = 65_536,
        max_timestamps: int = COUNT_MAX, as_range: bool = True) -> None:  # fmt: skip
        is_tls, addresses = protocol.read_endpoints(endpoints)
        if not is_tls and (ca_file or client_certificate):
            raise ValueError("there are options of TLS, and no endpoint is https://")
        if token is not None and not re.fullmatch("[!-~]+", token):
            raise ValueError("a token has printable ASCII characters, and no space")
        if min(timeout, connect_timeout) <= 0 or queue < 1 or not 1 <= max_timestamps <= COUNT_MAX:
            raise ValueError(f"options are above 0, and max_timestamps is at most {COUNT_MAX}")
        self._tls = Tls(ca_file, client_certificate) if is_tls else None
        self._timeout, self._connect_timeout, self._queue = timeout, connect_timeout, queue
        self._token, self._cluster, self._route = token, cluster, Route(addresses)
        self._form = protocol.RANGE_FORM if as_range else protocol.LIST_FORM
        # How many timestamps callers want, and in which form.
        self._waiting: dict[_Caller, tuple[int, str]] = {}
        self._in_flight: dict[_Caller, tuple[int, str]] = {}
        self._changes: set[asyncio.Future[Any]] = set()
        self._connection: Connection | None = None
        self._highest = (Timestamp(0, 0), self._form)
        self._last: errors.AttemptError | None = None
        self._worker: asyncio.Task[None] | None = None
        # The pause is before the next attempt.
        self._pause, self._is_closed, self._count_max = 0.0, False, max_timestamps

    async def timestamp(self, *, timeout: float | None = None) -> Timestamp:
        """Returns a timestamp. Raises `EskerError`."""
        return (await self._call(1, self._form, timeout)).first

    async def timestamps(self, count: int, *, timeout: float | None = None) -> TimestampRange:
        """Returns consecutive timestamps. Raises `EskerError`, and `ValueError` for the count."""
        return await self._call(count, self._form, timeout)

    async def timestamp_u64(self, *, timeout: float | None = None) -> int:
        """Returns a timestamp of 64 bits. Raises `EskerError`."""
        return (await self.timestamps_u64(1, timeout=timeout))[0]

    async def timestamps_u64(self, count: int, *, timeout: float | None = None) -> range:
        """Returns consecutive timestamps of 64 bits, in one order with those of 16 bytes. An epoch
        has 262,143 of them: after these a call waits for the next epoch. Raises as `timestamps`."""
        epoch, index = (await self._call(count, U64_FORM, timeout)).first
        first = (epoch // protocol.NANOS_PER_MILLISECOND << protocol.U64_INDEX_BITS) + index
        return range(first, first + count)

    async def _call(self, count: int, form: str, timeout: float | None) -> TimestampRange:
        if not 1 <= count <= self._count_max:
            raise ValueError(f"a call is for 1 to {self._count_max} timestamps, not {count}")
        seconds = self._begin(timeout)
        if len(self._waiting) >= self._queue:
            raise errors.QueueFullError(f"{self._queue} callers wait already")
        loop = asyncio.get_running_loop()
        caller: _Caller = loop.create_future()
        self._waiting[caller] = (count, form)
        if self._worker is None or self._worker.done():
            self._worker = loop.create_task(self._work())
        expiry = loop.call_later(seconds, self._expire, caller)
        try:
            return await caller
        finally:
            expiry.cancel()
            self._waiting.pop(caller, None)

    def _begin(self, timeout: float | None) -> float:
        """Begins a call, and returns its time in seconds."""
        seconds = self._timeout if timeout is None else timeout
        if self._is_closed:
            raise errors.ClosedError("the client is closed")
        if not seconds > 0:
            raise errors.DeadlineError("the deadline has passed", self._last)
        return seconds

    async def change(self, path: str, body: bytes = b"{}", *,
                     timeout: float | None = None) -> Answer:  # fmt: skip
        """Has the leader make a change (`POST /cluster/...`), with the token. It is sent again only
        after an answer that says that it was not made. Raises `EskerError`."""
        if not re.fullmatch("/[!-~]*", path):
            raise ValueError("a path begins with / and has printable ASCII characters")
        work = asyncio.ensure_future(self._change(path, body, self._begin(timeout)))
        self._changes.add(work)
        work.add_done_callback(self._changes.discard)
        try:
            return await work
        except asyncio.CancelledError as error:
            raise (errors.ClosedError("the client closed") if self._is_closed else error) from None

    async def _change(self, path: str, body: bytes, seconds: float) -> Answer:
        now, route = asyncio.get_running_loop().time, Route(self._route.known)
        last, wait, deadline = None, 0.0, now() + seconds
        headers = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        headers += f"Authorization: Bearer {self._token}\r\n" if self._token else ""
        while now() + wait < deadline:
            await asyncio.sleep(wait)
            try:
                connection = await self._open(route, deadline - now())
            except errors.AttemptError as error:
                last, wait = error, route.delay()
                continue
            try:
                answer = await connection.ask("POST", path, deadline - now(), headers, body)
            except errors.AttemptError as error:
                raise errors.UnknownOutcomeError("the change may have been made", error) from error
            finally:
                connection.close()
            last = errors.AttemptError(connection.address, "status", answer)
            if answer.status in (401, 403):
                raise errors.DeniedError("the change was denied", last)
            if answer.status >= 500 and answer.status != 503:
                raise errors.UnknownOutcomeError("the change may have been made", last)
            if answer.status != 503 and not answer.leader:
                return answer
            route.follow(connection.address, answer.leader)
            wait = answer.retry_after + route.delay()
        raise errors.DeadlineError("the change was not made in time", last)

    async def close(self) -> None:
        """Closes the client. Calls that wait fail with `ClosedError`."""
        self._is_closed = True
        self._fail([*self._in_flight, *self._waiting], errors.ClosedError("the client is closed"))
        tasks = [*self._changes, *([self._worker] if self._worker else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disconnect()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _fail(self, callers: Iterable[_Caller], error: errors.EskerError) -> None:
        for caller in callers:
            if not caller.done():
                caller.set_exception(error)

    def _expire(self, caller: _Caller) -> None:
        self._fail([caller], errors.DeadlineError("no timestamps by the deadline", self._last))

    async def _work(self) -> None:
        """Makes attempts while there are callers. Their deadlines interrupt none, and no pause."""
        while self._waiting:
            # Callers that the last answer has woken join the next request, without a pause too.
            await asyncio.sleep(self._pause)
            self._pause = 0.0
            try:
                if connection := await self._connect():
                    await self._request(connection)
            except errors.AttemptError as error:
                # That a node does not lead says less than what the leader answered.
                if error.kind != "not_leader" or not self._last:
                    self._last = error
                self._pause += self._route.delay()

    async def _connect(self) -> Connection | None:
        """Returns the connection, or one to the next node; `None` if that names another leader."""
        if self._connection and self._connection.is_open():
            return self._connection
        if self._connection:
            # Nodes close idle connections: that is no failure.
            self._route.named = self._connection.address
            self._disconnect()
        opened = await self._open(self._route, self._connect_timeout)
        if opened.leader not in (None, opened.address) and self._route.follow_list(opened.leader):
            opened.close()
            return None
        self._connection = opened
        return opened

    async def _open(self, route: Route, timeout: float) -> Connection:
        """Connects to the next node. Raises `AttemptError`."""
        address = route.next()
        try:
            opened = await Connection.open(address, self._tls, min(timeout, self._connect_timeout))
            self._cluster = self._cluster or opened.cluster
            if opened.cluster and opened.cluster != self._cluster:
                opened.close()
                raise errors.AttemptError(address, "other_cluster", f"cluster {opened.cluster}")
        except errors.AttemptError:
            route.failed(address)
            raise
        route.set_members(opened.members)
        return opened

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    async def _request(self, connection: Connection) -> None:
        """Sends one request for the callers that wait, of one width. Those without an answer wait
        again."""
        count, form, answer = 0, None, None
        for caller, (size, its_form) in list(self._waiting.items()):
            if form in (None, its_form) and count + size <= self._count_max and not caller.done():
                form, count = its_form, count + size
                self._in_flight[caller] = self._waiting.pop(caller)
        if form is None:
            return
        try:
            answer = await connection.ask("GET", f"/timestamp?n={count}{form}", ANSWER_TIMEOUT)
            self._finish(self._read(connection.address, answer, count, form), form)
        except errors.EskerError as error:
            self._fail(self._in_flight, error)
        except errors.AttemptError as error:
            if answer and answer.status == 503:
                self._pause = answer.retry_after
            else:
                self._disconnect()
            self._route.follow(error.address, answer.leader if answer else None)
            raise
        finally:
            left = {each: want for each, want in self._in_flight.items() if not each.done()}
            self._waiting, self._in_flight = {**left, **self._waiting}, {}

    def _finish(self, found: TimestampRange, form: str) -> None:
        """Gives each caller of the request its part."""
        epoch, index = found.first
        for caller, (size, _) in self._in_flight.items():
            if not caller.done():
                caller.set_result(TimestampRange(Timestamp(epoch, index), size))
            index += size
        self._highest, self._last = (found.last, form), None
        self._route.succeeded()

    def _read(self, address: str, answer: Answer, count: int, form: str) -> TimestampRange:
        if answer.status == 200:
            try:
                found = protocol.read_timestamps(answer.body, count, form)
            except ValueError as error:
                raise errors.AttemptError(address, "malformed", error) from error
            highest, is_mixed = self._highest[0], self._highest[1] != form
            if sort_key(found.first, is_mixed) <= sort_key(highest, is_mixed):
                raise errors.WentBackwardsError(f"{address}: {found.first} is not above {highest}")
            return found
        kinds = {307: "not_leader", 409: "not_leader", 503: "overloaded"}
        last = errors.AttemptError(address, kinds.get(answer.status, "status"), answer)
        raise errors.RefusedError("the request is refused", last) if answer.status == 400 else last
