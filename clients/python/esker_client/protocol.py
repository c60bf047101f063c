"""Timestamps, addresses, and what answers say. No I/O."""

from __future__ import annotations

import ipaddress
import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COUNT_MAX = 65_536
NODES_MAX = 64
ADDRESS = re.compile(r"(\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")


class Timestamp(NamedTuple):
    """A timestamp; they compare in the order of time. `epoch` is in nanoseconds of Unix time, and
    `index` counts within it, from 1."""

    epoch: int
    index: int  # type: ignore[assignment]

    @classmethod
    def from_bytes(cls, data: bytes) -> Timestamp:
        return cls(*struct.unpack(">QQ", data))

    def __bytes__(self) -> bytes:
        return struct.pack(">QQ", *self)

    def __str__(self) -> str:
        return bytes(self).hex()


@dataclass(frozen=True)
class TimestampRange:
    """Consecutive timestamps of one epoch: iterate over it."""

    first: Timestamp
    count: int

    @property
    def last(self) -> Timestamp:
        return Timestamp(self.first.epoch, self.first.index + self.count - 1)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Timestamp]:
        epoch, index = self.first
        return (Timestamp(epoch, each) for each in range(index, index + self.count))


class Answer(NamedTuple):
    """An answer over HTTP. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        text = " ".join(self.body[:800].decode("utf-8", "replace").split())
        return f"status {self.status}: {text[:200]}"

    @property
    def leader(self) -> str | None:
        return node_address(self.headers.get("esker-leader"))

    @property
    def retry_after(self) -> float:
        text = self.headers.get("retry-after", "")
        return min(int(text), 1.0) if re.fullmatch("[0-9]{1,9}", text) else 0.0


def _is_address(text: str, allows_unspecified: bool) -> bool:
    found = ADDRESS.fullmatch(text)
    if not found or not 0 < int(found[2]) < 65_536:
        return False
    try:
        return allows_unspecified or not ipaddress.ip_address(found[1].strip("[]")).is_unspecified
    except ValueError:
        return re.search("[A-Za-z]", found[1]) is not None and "[" not in text


def node_address(text: object) -> str | None:
    """Returns the address that a node names for another, if it is one host and a port."""
    return text if isinstance(text, str) and _is_address(text, False) else None


def read_endpoints(endpoints: Sequence[str]) -> tuple[bool, list[str]]:
    """Returns whether endpoints use TLS, and their addresses. Raises `ValueError`."""
    found = [re.fullmatch("(?:(https?)://)?([^/]*)/?", endpoint) for endpoint in endpoints]
    addresses = [each[2] for each in found if each and _is_address(each[2], True)]
    schemes = {each[1] or "http" for each in found if each}
    if not 0 < len(addresses) == len(found) <= NODES_MAX or len(schemes) > 1:
        raise ValueError(f"1 to {NODES_MAX} endpoints of one scheme, like http://10.0.0.1:8080")
    return schemes == {"https"}, addresses


def read_members(body: bytes) -> tuple[str, str | None, list[str]]:
    """Reads an answer of /members: the cluster, the leader, all addresses. Raises `ValueError`."""
    try:
        parsed = json.loads(body)
        leader = node_address((parsed.get("leader") or {}).get("addr"))
        named = [node_address(each.get("addr")) for each in parsed["members"][:NODES_MAX]]
        return str(parsed.get("cluster") or ""), leader, [each for each in named if each]
    except (KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("its answer is no list of members") from None


def read_timestamps(body: bytes, count: int, as_range: bool) -> TimestampRange:
    """Reads the body of a 200. Raises `ValueError`."""
    if len(body) != (24 if as_range else 16 * count):
        raise ValueError("the answer has another length")
    found = TimestampRange(Timestamp.from_bytes(body[:16]), count)
    if found.first.index == 0 or found.last.index >= 1 << 64:
        raise ValueError("an index is out of bounds")
    rest = struct.pack(">Q", count) if as_range else b"".join(map(bytes, found))[16:]
    if body[16:] != rest:
        raise ValueError("the timestamps are not those of the request")
    return found
