"""Sharing requests among callers, the bound of the queue, and calls that are cancelled."""

from __future__ import annotations

import asyncio

from ..case import Fixture, case
from ..failure import expect
from ..messages import EPOCH, Held, Reply, Request

CALLERS = 1000
# A client that shares no request sends 1,000. One that does sends a few; how many depends on how
# fast the calls come in, so that the bound is far from both.
REQUESTS_MAX = 150
# A client may repeat a request that has had no answer for so long. Where the machine was that slow,
# requests are not counted.
SILENCE_SECONDS = 1.5


@case("Order")
async def concurrent_callers_share_few_requests(fixture: Fixture) -> None:
    """Callers that wait at the same time share a request: its K is the sum of what they want."""

    async def slow(request: Request) -> Reply:
        reply = await fixture.issuer(request)
        await asyncio.sleep(0.05)
        return reply

    node = await fixture.node(slow)
    await fixture.open(node)
    begun = fixture.now()
    calls = [fixture.send() for _ in range(CALLERS)]
    too_many = asyncio.ensure_future(node.wait_for_asked(REQUESTS_MAX + 1))
    answered = asyncio.ensure_future(asyncio.wait({call.answer for call in calls}))
    await asyncio.wait({too_many, answered}, return_when=asyncio.FIRST_COMPLETED)
    too_many.cancel()
    answered.cancel()
    expect(len(node.asked) <= REQUESTS_MAX, f"{len(node.asked)} requests, and callers wait")
    issued = {(await call.outcome()).first for call in calls}
    expect(len(issued) == CALLERS, "each caller has its own timestamp")
    if fixture.now() - begun < SILENCE_SECONDS:
        expect(sum(node.counts()) == CALLERS, f"{sum(node.counts())} timestamps were asked for")


@case("Order")
async def callers_of_different_widths_share_no_request(fixture: Fixture) -> None:
    """A request is for timestamps of one width. Callers of each share requests among themselves."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node)
    begun = fixture.now()
    calls = [(1, "range", fixture.send())]
    await node.wait_for_asked(1)
    for _ in range(20):
        calls += [(n, at, fixture.send(n, format=at)) for n, at in [(2, "range"), (3, "u64")]]
    await fixture.settle()
    held.release_all()
    indexes: set[int] = set()
    for n, width, call in calls:
        outcome = await call.outcome()
        expect(len(outcome.answer.get("first", "")) == 32 or width == "u64", f"{outcome.answer}")
        expect(outcome.count == n, f"{n} timestamps: {outcome.answer}")
        indexes.update(range(outcome.first[1], outcome.last[1] + 1))
    expect(len(indexes) == 1 + 20 * 5, "each caller has timestamps of its own")
    if fixture.now() - begun < SILENCE_SECONDS:
        wanted = {True: 20 * 3, False: 1 + 20 * 2}
        asked = {
            width: sum(each.n for each in node.asked if each.is_u64_range == width)
            for width in wanted
        }
        expect(asked == wanted, f"for 64 bits and 16 bytes the node was asked for {asked}")
        expect(len(node.asked) <= 8, f"{len(node.asked)} requests")


@case("Order")
async def at_most_two_requests_are_in_flight(fixture: Fixture) -> None:
    """Callers that come while two requests are in flight wait for the next one."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node)
    begun = fixture.now()
    calls = [fixture.send()]
    await node.wait_for_asked(1)
    for _ in range(20):
        calls.append(fixture.send())
        await asyncio.sleep(0.005)
    await fixture.settle()
    if fixture.now() - begun < SILENCE_SECONDS:
        expect(len(node.asked) <= 2, f"{len(node.asked)} requests are in flight")
    held.release_all()
    issued = {(await call.outcome()).first for call in calls}
    expect(len(issued) == len(calls), "each caller has its own timestamp")
    if fixture.now() - begun < SILENCE_SECONDS:
        expect(sum(node.counts()) == len(calls), f"the node got {node.counts()}")


@case("Never")
async def timestamps_of_a_cancelled_caller_are_lost(fixture: Fixture) -> None:
    """No later caller gets them, and no other caller of the request is disturbed."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node)
    busy = [fixture.send()]
    await node.wait_for_asked(1)
    busy.append(fixture.send())
    await fixture.settle()
    cancelled, kept = fixture.send(3), fixture.send(2)
    await fixture.settle()
    assert fixture.driver
    (await fixture.driver.ask("cancel", call=cancelled.number)).unfailed()
    (await cancelled.outcome()).failed("cancelled")
    held.release_all()
    firsts = [(await call.outcome()).first for call in [*busy, kept]]
    expect(len(set(firsts)) == 3, f"a timestamp was given twice: {firsts}")
    highest, asked = (EPOCH, fixture.issuer.take(1)), len(node.asked)
    following = (await fixture.call(2)).first
    expect(following > highest, "the next caller got a timestamp from before its call")
    expect(node.counts()[asked:] == [2], f"the next request had {node.counts()[asked:]}")


@case("Never")
async def cancelled_call_in_flight_disturbs_no_other(fixture: Fixture) -> None:
    """Callers that share the request of a cancelled one get their timestamps."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node)
    calls = [fixture.send()]
    await node.wait_for_asked(1)
    calls += [fixture.send(2) for _ in range(40)]
    await fixture.settle()
    held.release(1)
    await node.wait_for_asked(2)
    await fixture.settle()
    assert fixture.driver
    for call in calls[1::2]:
        (await fixture.driver.ask("cancel", call=call.number)).unfailed()
    held.release_all()
    given = set()
    for at, call in enumerate(calls):
        outcome = await call.outcome()
        if at % 2 and outcome.kind is not None:
            outcome.failed("cancelled")
            continue
        expect(outcome.first not in given, "a timestamp was given twice")
        given.add(outcome.first)
    expect((await fixture.call()).first > max(given), "the next call is above all")


@case("Never")
async def left_over_timestamps_are_not_kept(fixture: Fixture) -> None:
    """Nothing is asked ahead of callers: each call has a request that was sent after it began."""
    node = await fixture.node()
    await fixture.open(node)
    for count in (1, 3, 1, 2):
        before = (EPOCH, fixture.issuer.take(1))
        asked = len(node.asked)
        expect((await fixture.call(count)).first > before, "a timestamp from before the call")
        expect(node.counts()[asked:] == [count], f"{node.counts()[asked:]} for {count}")


@case("Never")
async def callers_beyond_the_queue_are_refused(fixture: Fixture) -> None:
    """The queue has a bound: more callers are refused at once. There is room again later."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node, queue=3)
    calls = [fixture.send()]
    await node.wait_for_asked(1)
    calls += [fixture.send() for _ in range(21)]
    # Two requests are in flight at most, of one caller each or of all that waited.
    refused = 0
    pending = {asyncio.shield(call.answer) for call in calls}
    while refused < len(calls) - 2 * (3 + 1):
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        refused += sum("error" in each.result() for each in done)
    held.release_all()
    kinds = [(await call.outcome()).kind for call in calls]
    expect(set(kinds) == {None, "queue_full"}, f"the calls ended with {set(kinds)}")
    (await fixture.call()).unfailed()


@case("Never")
async def callers_that_have_left_make_room_in_the_queue(fixture: Fixture) -> None:
    """The bound is for callers that wait: those whose deadlines have passed do not count."""
    held = Held(fixture.issuer)
    node = await fixture.node(held)
    await fixture.open(node, queue=3)
    calls = [fixture.send()]
    await node.wait_for_asked(1)
    calls.append(fixture.send())
    await fixture.settle()
    for _ in range(10):
        (await fixture.call(timeout_ms=1)).failed("deadline")
    calls.append(fixture.send())
    await fixture.settle()
    held.release_all()
    kinds = [(await call.outcome()).kind for call in calls]
    expect(kinds == [None] * 3, f"the calls ended with {kinds}")
