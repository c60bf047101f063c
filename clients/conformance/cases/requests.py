"""Requests: their form, their counts, their connections."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

from ..case import Fixture, case
from ..failure import expect
from ..messages import EPOCH, Reply, first, range_body

VECTORS = Path(__file__).parents[3] / "docs/src/client-vectors.json"


def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VECTORS.read_text())
    return found


@case("Request")
async def request_has_its_count_and_its_format(fixture: Fixture) -> None:
    """GET /timestamp?n=K&format=range, and the answer has K timestamps."""
    node = await fixture.node()
    await fixture.open(node)
    index = 1
    for count in (1, 2, 100, 65_536):
        outcome = await fixture.call(count)
        last = (EPOCH, index + count - 1)
        got = (outcome.first, outcome.last, outcome.count)
        expect(got == ((EPOCH, index), last, count), f"{count} timestamps: {outcome.answer}")
        index += count
    expect(node.counts() == [1, 2, 100, 65_536], f"the node got {node.counts()}")
    expect(all(each.is_range for each in node.asked), "each request has format=range")


@case("Request")
async def list_format_is_read_and_checked(fixture: Fixture) -> None:
    """Without format=range, each timestamp has its 16 bytes."""
    right = [(EPOCH, index) for index in (7, 8, 9)]
    for wrong in [
        right[:2],
        [*right, (EPOCH, 10)],
        [right[0], right[2], right[1]],
        [right[0], right[0], right[1]],
        [right[0], (EPOCH, 8), (EPOCH + 1, 9)],
        [(EPOCH, 0), (EPOCH, 1), (EPOCH, 2)],
    ]:
        body = b"".join(struct.pack(">QQ", *timestamp) for timestamp in wrong)
        node = await fixture.node(first([Reply(200, body)], fixture.issuer))
        await fixture.open(node, format="list")
        outcome = await fixture.call(3)
        expect(outcome.count == 3 and outcome.first[1] < outcome.last[1], f"{outcome.answer}")
        expect(node.counts() == [3, 3], f"{wrong} was not asked for again")
        expect(not any(each.is_range for each in node.asked), "format=range was asked for")
        await fixture.close_client()


@case("Request")
async def count_out_of_bounds_is_refused(fixture: Fixture) -> None:
    """K is from 1 to the most that a request may have; nothing else is sent."""
    node = await fixture.node()
    await fixture.open(node, max_timestamps=5)
    for count in (0, 6, 65_537):
        (await fixture.call(count)).failed("invalid")
    expect((await fixture.call(5)).count == 5, "five timestamps")
    expect(node.counts() == [5], f"the node got {node.counts()}")


@case("Request")
async def options_out_of_bounds_are_refused(fixture: Fixture) -> None:
    """No node gives more than 65,536 timestamps at a time, whatever a client is told."""
    node = await fixture.node()
    await fixture.open(node, max_timestamps=65_536)
    await fixture.close_client()
    (await fixture.try_open(node, max_timestamps=65_537)).failed("invalid")


@case("Request")
async def no_request_is_above_the_bound(fixture: Fixture) -> None:
    """Callers whose sum is more than a request may have get several requests."""
    node = await fixture.node()
    await fixture.open(node, max_timestamps=100)
    calls = [(n, fixture.send(n)) for n in [*range(1, 101), *range(1, 101)]]
    ranges = []
    for n, call in calls:
        outcome = await call.outcome()
        expect(outcome.count == n, f"{n} timestamps: {outcome.answer}")
        ranges.append((outcome.first, outcome.last))
    ranges.sort()
    apart = all(one[1] < other[0] for one, other in zip(ranges, ranges[1:]))
    expect(apart, "a timestamp was given twice")
    expect(max(node.counts()) <= 100, f"a request had {max(node.counts())} timestamps")
    expect(sum(node.counts()) == 2 * 5050, "more was asked for than callers wanted")


@case("Request")
async def connection_is_kept(fixture: Fixture) -> None:
    """A caller alone has a request of its own, over a connection that is kept."""
    node = await fixture.node()
    await fixture.open(node)
    for _ in range(20):
        (await fixture.call()).unfailed()
    expect(node.counts() == [1] * 20, f"the node got {node.counts()}")
    expect(len(node.connections) <= 2, f"{len(node.connections)} connections")


@case("Request")
async def timestamps_are_compared_as_the_vectors_have_it(fixture: Fixture) -> None:
    """Timestamps are compared as 16 bytes, unsigned."""
    listed = vectors()["timestamps"]
    driver = await fixture.start()
    for at, one in enumerate(listed):
        for other_at, other in enumerate(listed):
            outcome = await driver.ask("compare", a=one["bytes"], b=other["bytes"])
            order = (at > other_at) - (at < other_at)
            parts = {key: one[key] for key in ("epoch", "index")}
            got = (outcome.unfailed().answer["order"], outcome.answer["a"])
            expect(got == (order, parts), f"{one} and {other}: {outcome.answer}")


@case("Request")
async def numbers_of_64_bits_keep_their_bits(fixture: Fixture) -> None:
    """Epoch and index are unsigned and have 64 bits."""
    most = 2**64 - 1
    for epoch, index in [(2**53 + 1, 2**53 + 1), (2**63, 2**63 + 1), (most, most - 2)]:
        node = await fixture.node(first([Reply(200, range_body(epoch, index, 3))], fixture.issuer))
        await fixture.open(node)
        outcome = await fixture.call(3)
        expect(outcome.first == (epoch, index), f"{epoch}, {index}: {outcome.answer}")
        expect(outcome.last == (epoch, index + 2), f"{epoch}, {index}: {outcome.answer}")
        await fixture.close_client()


@case("Request")
async def closed_client_fails_its_calls(fixture: Fixture) -> None:
    """Calls that wait when the client is closed end at once."""
    arrived = asyncio.Event()

    async def silent(_: object) -> Reply:
        arrived.set()
        await asyncio.Event().wait()
        return Reply()

    await fixture.open(await fixture.node(silent))
    call = fixture.send()
    await arrived.wait()
    await fixture.close_client()
    (await call.outcome()).failed("closed")
