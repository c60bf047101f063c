"""Requests as a node gets them, and the answers that it is told to give."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Callable
from urllib.parse import parse_qs, urlsplit

CLUSTER = "0123456789abcdef0123456789abcdef"
EPOCH = 1_700_000_000_000_000_000
NANOS_PER_MILLISECOND = 1_000_000
# The bits of the index in a timestamp of 64 bits.
INDEX_BITS = 18

Timestamp = tuple[int, int]


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    connection: int = 0
    arrived: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.target).query)

    @property
    def n(self) -> int:
        """The number of timestamps, 0 if it is none."""
        values = self.query.get("n", ["1"])
        return int(values[-1]) if values[-1].isdigit() else 0

    @property
    def is_range(self) -> bool:
        return self.query.get("format") == ["range"]

    @property
    def is_u64_range(self) -> bool:
        return self.query.get("format") == ["u64-range"]


@dataclass
class Reply:
    """An answer. `length` is the length that it claims, where that is not the body's. After it the
    connection is kept, closed, or stalls: nothing more comes, and it stays open. Without a status
    nothing is sent."""

    status: int = 0
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    then: str = "keep"


LOST = Reply(then="close")
SILENCE = Reply(then="stall")

Script = Callable[[Request], Awaitable[Reply]]


def not_leader(leader: str | None, status: int = 409) -> Reply:
    headers = {} if leader is None else {"Esker-Leader": leader}
    return Reply(status, b"node (1) is not the leader (2)", headers)


def number(timestamp: Timestamp) -> int:
    """The timestamp in 64 bits."""
    epoch, index = timestamp
    return (epoch // NANOS_PER_MILLISECOND << INDEX_BITS) + index


def from_number(bits: int) -> Timestamp:
    """The timestamp of 64 bits, with the beginning of its millisecond as epoch."""
    return (bits >> INDEX_BITS) * NANOS_PER_MILLISECOND, bits & ((1 << INDEX_BITS) - 1)


def range_body(epoch: int, index: int, count: int) -> bytes:
    return struct.pack(">QQQ", epoch, index, count)


def timestamps(request: Request, epoch: int, index: int) -> Reply:
    """The answer with the timestamps from this index on, in the format that was asked for."""
    if request.is_range:
        return Reply(200, range_body(epoch, index, request.n))
    if request.is_u64_range:
        return Reply(200, struct.pack(">QQ", number((epoch, index)), request.n))
    indexes = range(index, index + request.n)
    return Reply(200, b"".join(struct.pack(">QQ", epoch, each) for each in indexes))


def members(leader: str | None, addresses: list[str], cluster: str = CLUSTER) -> Reply:
    def named(address: str) -> dict[str, object]:
        return {"nodeID": 1, "addr": address, "voter": True}

    body = {
        "cluster": cluster,
        "leader": leader and named(leader),
        "members": [named(address) for address in addresses],
    }
    return Reply(200, json.dumps(body).encode())


class Issuer:
    """The timestamps of one cluster: indexes of one epoch, in the order of the requests."""

    def __init__(self, first: int = 1) -> None:
        self.next = first

    def take(self, count: int) -> int:
        index = self.next
        self.next += count
        return index

    async def __call__(self, request: Request) -> Reply:
        return timestamps(request, EPOCH, self.take(request.n))


def always(reply: Reply) -> Script:
    async def script(_: Request) -> Reply:
        return reply

    return script


def first(replies: list[Reply], after: Script) -> Script:
    """Gives these answers, one to each request, and then those of `after`."""
    left = list(replies)

    async def script(request: Request) -> Reply:
        return left.pop(0) if left else await after(request)

    return script


class Held:
    """An issuer whose answers wait until they are released. They are decided before."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self._released = asyncio.Semaphore(0)
        self._open = False

    async def __call__(self, request: Request) -> Reply:
        reply = await self.issuer(request)
        if not self._open:
            await self._released.acquire()
        return reply

    def release(self, requests: int) -> None:
        for _ in range(requests):
            self._released.release()

    def release_all(self) -> None:
        self._open = True
        self.release(1000)
