"""Order: a caller gets timestamps only from a request that was sent after its call began."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Awaitable, Sequence

from ..case import Fixture, case
from ..failure import expect
from ..history import History
from ..messages import (
    EPOCH,
    NANOS_PER_MILLISECOND,
    Held,
    Reply,
    Request,
    Script,
    always,
    not_leader,
    number,
    range_body,
    timestamps,
)
from ..waits import all_or_first_failure

# How long an answer is held for the next request to come. It is released afterwards in any case, so
# that no client fails by being slow, or by sending one request at a time.
JOIN_SECONDS = 0.5


async def _hold(what: Awaitable[object]) -> None:
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(what, JOIN_SECONDS)


@case("Order")
async def call_joins_no_request_that_was_sent(fixture: Fixture) -> None:
    """The answer of a request in flight may be older than the call: another client has got a
    higher timestamp since."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node)
    first = fixture.send()
    await node.wait_for_asked(1)
    before = (EPOCH, fixture.issuer.take(1))
    second = fixture.send()
    await fixture.settle()
    await _hold(node.wait_for_asked(2))
    held.release_all()
    one, other = (await first.outcome()).first, (await second.outcome()).first
    expect(before < other, f"a call got {other}, and {before} was issued before it began")
    expect(one != other, f"both calls got {one}")


@case("Order")
async def answers_of_two_requests_may_cross(fixture: Fixture) -> None:
    """An answer is compared with the highest timestamp from before its own request was sent."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node)
    first = fixture.send()
    await node.wait_for_asked(1)
    node.script = fixture.issuer
    second = fixture.send()
    await _hold(asyncio.shield(second.answer))
    held.release_all()
    one, other = (await first.outcome()).first, (await second.outcome()).first
    expect(one != other, f"both calls got {one}")


@case("Order")
async def timestamp_that_is_not_above_the_last_is_an_error(fixture: Fixture) -> None:
    """A cluster that lost its data issues lower timestamps: they are discarded, and reported."""
    node = await fixture.node()
    await fixture.open(node)
    epoch, index = (await fixture.call(9)).last
    for lower in [(epoch, 1), (epoch, index), (epoch - 1, index + 1), (epoch - 1, 1)]:
        node.script = always(Reply(200, range_body(*lower, 1)))
        outcome = await fixture.call()
        expect(outcome.kind == "went_backwards", f"{lower}: {outcome.answer}")
    node.script = fixture.issuer
    expect((await fixture.call()).first > (epoch, index), "the next one is above the last")
    node.script = always(Reply(200, range_body(epoch + 1, 1, 1)))
    expect((await fixture.call()).first == (epoch + 1, 1), "a new epoch begins with index 1")


@case("Order")
async def histories_are_unique_and_in_order(fixture: Fixture) -> None:
    """Nodes fail, name each other, lose answers and are slow at random; some calls are
    cancelled, and some have short deadlines. What is returned is unique and in order."""
    await _check_history(fixture)


@case("Order")
async def timestamps_of_64_bits_are_unique_and_in_order(fixture: Fixture) -> None:
    """The same with timestamps of 64 bits. Then a node issues lower ones."""
    await _check_history(fixture, format="u64")
    last = (await fixture.call(9)).last
    for lower in [(EPOCH, 1), last, (EPOCH - NANOS_PER_MILLISECOND, last[1] + 1)]:
        for node in fixture.nodes:
            node.script = always(Reply(200, struct.pack(">QQ", number(lower), 1)))
        outcome = await fixture.call()
        expect(outcome.kind == "went_backwards", f"{lower}: {outcome.answer}")


@case("Order")
async def timestamps_of_both_widths_are_in_one_order(fixture: Fixture) -> None:
    """A timestamp is above those of both widths that were received before. Different widths compare
    by the millisecond of the epoch, and then by the index."""
    epoch = EPOCH + NANOS_PER_MILLISECOND - 1
    node = await fixture.node()
    await fixture.open(node)

    def answers(at: tuple[int, int]) -> None:
        async def reply(request: Request) -> Reply:
            return timestamps(request, *at)

        node.script = reply

    async def check_lower(*lower: tuple[int, int]) -> None:
        for at in lower:
            answers(at)
            for width in ("range", "u64"):
                outcome = await fixture.call(format=width)
                expect(outcome.kind == "went_backwards", f"{width}, {at}: {outcome.answer}")

    answers((epoch, 5))
    (await fixture.call(5, format="range")).unfailed()
    await check_lower((epoch, 1), (epoch, 9), (epoch - NANOS_PER_MILLISECOND, 99))
    answers((epoch, 10))
    outcome = await fixture.call(format="u64")
    expect(outcome.first == (EPOCH, 10), f"10 of 64 bits: {outcome.answer}")
    await check_lower((epoch, 1), (epoch, 10), (epoch - NANOS_PER_MILLISECOND, 99))
    answers((epoch, 11))
    expect((await fixture.call(format="range")).first == (epoch, 11), "11 of 16 bytes")
    answers((epoch + 1, 1))
    for width in ("u64", "range"):
        outcome = await fixture.call(format=width)
        expect(outcome.first[1] == 1, f"an epoch begins with index 1: {outcome.answer}")
        answers((epoch + NANOS_PER_MILLISECOND + 1, 1))


@case("Order")
async def histories_of_both_widths_are_unique_and_in_order(fixture: Fixture) -> None:
    """The same as in other histories. Calls are of one width or the other at random."""
    await _check_history(fixture, formats=("range", "u64"))


async def _check_history(fixture: Fixture, formats: Sequence[str] = (), **options: str) -> None:
    rng = random.Random(0x5EED)
    nodes = [await fixture.node(), await fixture.node()]
    fixture.introduce(*nodes)

    def script(at: int) -> Script:
        async def reply(request: Request) -> Reply:
            right = await fixture.issuer(request)
            choice = rng.randrange(30)
            if choice == 0:
                right = Reply(500, b"no node leads")
            elif choice == 1:
                right = not_leader(nodes[1 - at].address)
            elif choice == 2:
                right = Reply(503, b"too many requests are waiting", {"Retry-After": "0"})
            elif choice == 3:
                right.body = right.body[:12]
            elif choice == 4:
                right = Reply(then="close")
            await asyncio.sleep(rng.random() * 0.002)
            return right

        return reply

    for at, node in enumerate(nodes):
        node.script = script(at)
    await fixture.open(*nodes, **options)
    history = History()
    calls = (history.calls(fixture, 25, rng, formats) for _ in range(30))
    await all_or_first_failure(*calls)
    expect(history.count > 300, f"only {history.count} calls were answered")
    history.check()
