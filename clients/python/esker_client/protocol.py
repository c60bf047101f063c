"""Timestamps, addresses, and what answers say. No I/O."""

from __future__ import annotations

import ipaddress
import json
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COUNT_MAX, NODES_MAX = 65_536, 64
U64_INDEX_BITS, U64_MAX, NANOS_PER_MILLISECOND = 18, (1 << 64) - 1, 1_000_000
# What a request says of the form of its answer. A list has 16 bytes for each timestamp.
LIST_FORM, RANGE_FORM, U64_FORM = "", "&format=range", "&format=u64-range"
ADDRESS = re.compile(r"(\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")


class Timestamp(NamedTuple):
    """A timestamp; they compare in the order of time. `epoch` is in nanoseconds of Unix time, and
    `index` counts within it, from 1."""

    epoch: int
    index: int  # type: ignore[assignment]

    @classmethod
    def from_bytes(cls, data: bytes) -> Timestamp:
        return cls(*struct.unpack(">QQ", data))

    @classmethod
    def from_u64(cls, number: int) -> Timestamp:
        """Decodes a timestamp of 64 bits, which has the first nanosecond of its millisecond as
        epoch. Raises `ValueError` for a number that is none."""
        if not 0 <= number >> U64_INDEX_BITS <= U64_MAX // NANOS_PER_MILLISECOND:
            raise ValueError(f"{number} is no timestamp of 64 bits")
        epoch = (number >> U64_INDEX_BITS) * NANOS_PER_MILLISECOND
        return cls(epoch, number & ((1 << U64_INDEX_BITS) - 1))

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
        return (Timestamp(self.first.epoch, self.first.index + at) for at in range(self.count))


class Answer(NamedTuple):
    """An answer over HTTP. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        words = self.body[:800].decode("utf-8", "replace").split()
        return f"status {self.status}: {' '.join(words)[:200]}"

    @property
    def leader(self) -> str | None:
        return node_address(self.headers.get("esker-leader")) if self.status in (307, 409) else None

    @property
    def retry_after(self) -> float:
        text = self.headers.get("retry-after", "")
        return min(int(text), 1.0) if re.fullmatch("[0-9]{1,9}", text) else 0.0


def _is_address(text: str, allows_unspecified: bool) -> bool:
    found = ADDRESS.fullmatch(text)
    if not found or not 0 < int(found[2]) < 65_536:
        return False
    try:
        return not ipaddress.ip_address(found[1].strip("[]")).is_unspecified or allows_unspecified
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


def read_timestamps(body: bytes, count: int, form: str) -> TimestampRange:
    """Reads the body of a 200. Raises `ValueError`."""
    is_u64 = form == U64_FORM
    size, index_bits = (8, U64_INDEX_BITS) if is_u64 else (16, 64)
    number = int.from_bytes(body[:size], "big")
    first = Timestamp.from_u64(number) if is_u64 else Timestamp(number >> 64, number & U64_MAX)
    found = TimestampRange(first, count)
    if found.first.index == 0 or found.last.index >> index_bits:
        raise ValueError("an index is out of bounds")
    rest = struct.pack(">Q", count) if form else b"".join(map(bytes, found))[16:]
    if len(body) < size or body[size:] != rest:
        raise ValueError("the timestamps are not those of the request")
    return found


def sort_key(timestamp: Timestamp, by_millisecond: bool) -> tuple[int, int]:
    """The order of timestamps. Those of different widths have the millisecond in common."""
    return timestamp.epoch // (NANOS_PER_MILLISECOND if by_millisecond else 1), timestamp.index
