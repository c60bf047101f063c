"""The client for asyncio: callers share requests, and follow the leader together."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Sequence

from . import errors
from .connection import Connection, Tls
from .errors import AttemptError
from .protocol import COUNT_MAX, Answer, Timestamp, TimestampRange, read_endpoints, read_timestamps
from .route import Route

ANSWER_TIMEOUT = 1.5
_Caller = tuple["asyncio.Future[TimestampRange]", int]


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
        self, endpoints: Sequence[str], *, ca_file: str | None = None,
        client_certificate: tuple[str, str] | None = None, token: str | None = None,
        cluster: str | None = None, timeout: float = 5.0, connect_timeout: float = 1.0,
        queue: int = 65_536, max_timestamps: int = COUNT_MAX, as_range: bool = True,
    ) -> None:  # fmt: skip
        is_tls, addresses = read_endpoints(endpoints)
        if not is_tls and (ca_file or client_certificate):
            raise ValueError("there are options of TLS, and no endpoint is https://")
        if token is not None and not re.fullmatch("[!-~]+", token):
            raise ValueError("a token has printable ASCII characters, and no space")
        if min(timeout, connect_timeout) <= 0 or queue < 1 or not 1 <= max_timestamps <= COUNT_MAX:
            raise ValueError(f"options are above 0, and max_timestamps is at most {COUNT_MAX}")
        self._tls = Tls(ca_file, client_certificate) if is_tls else None
        self._token, self._cluster, self._as_range = token, cluster, as_range
        self._timeout, self._connect_timeout = timeout, connect_timeout
        self._queue, self._count_max = queue, max_timestamps
        self._route = Route(addresses)
        self._waiting: deque[_Caller] = deque()
        self._in_flight: list[_Caller] = []
        self._connection: Connection | None = None
        self._highest = Timestamp(0, 0)
        self._last: AttemptError | None = None
        self._worker: asyncio.Task[None] | None = None
        self._pause = 0.0  # Before the next attempt.
        self._is_closed = False

    async def timestamp(self, *, timeout: float | None = None) -> Timestamp:
        """Returns a timestamp. Raises `EskerError`."""
        return (await self.timestamps(1, timeout=timeout)).first

    async def timestamps(self, count: int, *, timeout: float | None = None) -> TimestampRange:
        """Returns consecutive timestamps. Raises `EskerError`, and `ValueError` for the count."""
        if not 1 <= count <= self._count_max:
            raise ValueError(f"a call is for 1 to {self._count_max} timestamps, not {count}")
        if self._is_closed:
            raise errors.ClosedError("the client is closed")
        if len(self._waiting) >= self._queue:
            self._waiting = deque(each for each in self._waiting if not each[0].done())
            if len(self._waiting) >= self._queue:
                raise errors.QueueFullError(f"{self._queue} callers wait already")
        loop = asyncio.get_running_loop()
        caller: _Caller = (loop.create_future(), count)
        self._waiting.append(caller)
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        seconds = self._timeout if timeout is None else timeout
        expiry = loop.call_later(seconds, self._expire, caller)
        try:
            return await caller[0]
        finally:
            expiry.cancel()

    async def change(
        self, path: str, body: bytes = b"{}", *, timeout: float | None = None
    ) -> Answer:
        """Has the leader make a change (`POST /cluster/...`), with the token. It is sent again only
        after an answer that says that it was not made. Raises `EskerError`."""
        if not re.fullmatch("/[!-~]*", path):
            raise ValueError("a path begins with / and has printable ASCII characters")
        now, route = asyncio.get_running_loop().time, Route(self._route.known)
        last, wait = None, 0.0
        deadline = now() + (self._timeout if timeout is None else timeout)
        headers = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        headers += f"Authorization: Bearer {self._token}\r\n" if self._token else ""
        while now() + wait < deadline:
            await asyncio.sleep(wait)
            address = route.next()
            try:
                connection = await self._open(address, route, deadline - now())
            except AttemptError as error:
                last = error
                route.failed(address)
                wait = route.delay()
                continue
            try:
                answer = await connection.ask("POST", path, deadline - now(), headers, body)
            except AttemptError as error:
                raise errors.UnknownOutcomeError("the change may have been made", error) from error
            finally:
                connection.close()
            last = AttemptError(address, "status", answer)
            if answer.status in (401, 403):
                raise errors.DeniedError("the change was denied", last)
            if answer.status >= 500 and answer.status != 503:
                raise errors.UnknownOutcomeError("the change may have been made", last)
            if answer.status == 503:
                route.failed(address)
            elif answer.status in (307, 409) and answer.leader:
                route.follow(address, answer.leader)
            else:
                return answer
            wait = answer.retry_after + route.delay()
        raise errors.DeadlineError("the change was not made in time", last)

    async def close(self) -> None:
        """Closes the client. Calls that wait fail with `ClosedError`."""
        self._is_closed = True
        self._fail([*self._in_flight, *self._waiting], errors.ClosedError("the client is closed"))
        if self._worker:
            self._worker.cancel()
            await asyncio.wait([self._worker])
        self._disconnect()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _fail(self, callers: Iterable[_Caller], error: errors.EskerError) -> None:
        for future, _ in callers:
            if not future.done():
                future.set_exception(error)

    def _expire(self, caller: _Caller) -> None:
        self._fail([caller], errors.DeadlineError("no timestamps by the deadline", self._last))

    async def _work(self) -> None:
        """Makes attempts while there are callers. Their deadlines interrupt none, and no pause."""
        try:
            while self._has_callers():
                # Callers that the last answer has woken join the next request, without a pause too.
                await asyncio.sleep(self._pause)
                self._pause = 0.0
                try:
                    connection = await self._connect()
                    if connection:
                        await self._request(connection)
                except AttemptError as error:
                    # That a node does not lead says less than what the leader answered.
                    if error.kind != "not_leader" or not self._last:
                        self._last = error
                    self._pause += self._route.delay()
        finally:
            self._worker = None

    def _has_callers(self) -> bool:
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        return bool(self._waiting)

    async def _connect(self) -> Connection | None:
        """Returns the connection, or one to the next node; `None` if that names another leader."""
        if self._connection and self._connection.is_open():
            return self._connection
        if self._connection:
            # Nodes close idle connections: that is no failure.
            self._route.named = self._connection.address
            self._disconnect()
        address = self._route.next()
        try:
            opened = await self._open(address, self._route, self._connect_timeout)
        except AttemptError:
            self._route.failed(address)
            raise
        if opened.leader not in (None, address) and self._route.follow_list(opened.leader):
            opened.close()
            return None
        self._connection = opened
        return opened

    async def _open(self, address: str, route: Route, timeout: float) -> Connection:
        timeout = min(timeout, self._connect_timeout)
        opened = await Connection.open(address, self._tls, timeout)
        self._cluster = self._cluster or opened.cluster
        if opened.cluster and opened.cluster != self._cluster:
            opened.close()
            raise AttemptError(address, "other_cluster", f"of another cluster, {opened.cluster}")
        route.set_members(opened.members)
        return opened

    def _disconnect(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    async def _request(self, connection: Connection) -> None:
        """Sends one request for the callers that wait. Those without an answer wait again."""
        count, address = 0, connection.address
        while self._has_callers() and count + self._waiting[0][1] <= self._count_max:
            self._in_flight.append(self._waiting.popleft())
            count += self._in_flight[-1][1]
        if not count:
            return
        path, answer = f"/timestamp?n={count}" + "&format=range" * self._as_range, None
        try:
            answer = await connection.ask("GET", path, ANSWER_TIMEOUT)
            self._finish(self._read(address, answer, count))
        except errors.EskerError as error:
            self._fail(self._in_flight, error)
        except AttemptError as error:
            if answer and answer.status == 503:
                self._pause = answer.retry_after
            else:
                self._disconnect()
            if error.kind == "not_leader" and answer and answer.leader:
                self._route.follow(address, answer.leader)
            else:
                self._route.failed(address)
            raise
        finally:
            self._waiting.extendleft(reversed(self._in_flight))
            self._in_flight.clear()

    def _finish(self, found: TimestampRange) -> None:
        """Gives each caller of the request its part."""
        epoch, index = found.first
        for future, size in self._in_flight:
            if not future.done():
                future.set_result(TimestampRange(Timestamp(epoch, index), size))
            index += size
        self._highest, self._last = found.last, None
        self._route.succeeded()

    def _read(self, address: str, answer: Answer, count: int) -> TimestampRange:
        if answer.status == 200:
            try:
                found = read_timestamps(answer.body, count, self._as_range)
            except ValueError as error:
                raise AttemptError(address, "malformed", error) from error
            if found.first <= self._highest:
                message = f"{address}: {found.first} is not above {self._highest}"
                raise errors.WentBackwardsError(message)
            return found
        kinds = {307: "not_leader", 409: "not_leader", 503: "overloaded"}
        last = AttemptError(address, kinds.get(answer.status, "status"), answer)
        raise errors.RefusedError("the request is refused", last) if answer.status == 400 else last
