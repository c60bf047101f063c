"""Retries: deadlines, waits, leaders that are gone, nodes that are silent."""

from __future__ import annotations

import asyncio

from ..case import Fixture, case
from ..failure import CaseSkip, expect
from ..history import History
from ..messages import (
    EPOCH,
    SILENCE,
    Reply,
    Request,
    Script,
    always,
    first,
    members,
    not_leader,
    range_body,
)  # fmt: skip
from ..node import Node
from ..waits import SHORT_MS, all_or_first_failure, check_deadline, served

# So many requests of a client are enough to look at the waits between them.
ATTEMPTS = 14
# Timers of some languages end a millisecond early.
TIMER_SECONDS = 0.002
ELECTION = Reply(500, b"no node leads")


def _wait_seconds(failures: int) -> float:
    """The shortest wait after so many failures: half of 4 ms, 8 ms, and so on to 100 ms."""
    return min(0.004 * 2 ** (failures - 1), 0.1) / 2 if failures > 0 else 0.0


def _arrivals(nodes: list[Node]) -> list[float]:
    return sorted(request.arrived for node in nodes for request in node.asked)


def _check_gaps(arrived: list[float], lanes: int, names: int) -> None:
    """Checks that there was a wait before each request: of each lane from the one before, except
    after so many names. However slow a machine is, it makes no wait shorter."""
    for at, (one, following) in enumerate(zip(arrived, arrived[lanes:])):
        least = _wait_seconds(at // lanes + 1 - names) - TIMER_SECONDS
        took = following - one
        expect(took >= least, f"request {at + 1 + lanes} came {1000 * took:.1f} ms after another")


async def _check_waits(
    fixture: Fixture, nodes: list[Node], lanes: int = 1, callers: int = 1, names: int = 0
) -> None:
    """Opens a client, and makes calls that fail. Their deadline grows until there were enough
    requests to look at. Leaves the client open."""
    timeout_ms = 1500
    while True:
        before = len(_arrivals(nodes))
        await fixture.open(nodes[0])
        calls = [fixture.send(timeout_ms=timeout_ms) for _ in range(callers)]
        for call in calls:
            (await call.outcome()).failed("deadline")
        arrived = _arrivals(nodes)[before:]
        _check_gaps(arrived, lanes, names)
        if len(arrived) >= ATTEMPTS:
            return
        await fixture.close_client()
        timeout_ms *= 2


@case("Retries")
async def deadline_holds_where_nothing_listens(fixture: Fixture) -> None:
    """A call ends by its deadline, with the last failure, and the node that failed."""
    address = fixture.dead_port()
    await fixture.open(address)
    await check_deadline(fixture, SHORT_MS, timeout_ms=SHORT_MS)
    while True:
        outcome = (await fixture.call(timeout_ms=SHORT_MS)).failed("deadline")
        if outcome.cause is not None:
            break
    expect(address in outcome.message, f"the message does not name it: {outcome.message}")


@case("Retries")
async def deadline_holds_while_connecting(fixture: Fixture) -> None:
    """A deadline passes also while a host answers no packet."""
    await fixture.open(fixture.full_backlog())
    await check_deadline(fixture, SHORT_MS, timeout_ms=SHORT_MS)


@case("Retries")
async def deadline_holds_on_a_silent_connection(fixture: Fixture) -> None:
    """A deadline passes also while a node that accepted the connection says nothing."""
    node = await fixture.node()
    node.is_frozen = True
    await fixture.open(node)
    await check_deadline(fixture, SHORT_MS, timeout_ms=SHORT_MS)


@case("Retries")
async def deadline_holds_while_a_request_waits(fixture: Fixture) -> None:
    """A deadline passes also while a request has no answer, and the later calls are answered."""
    node = await fixture.node(always(SILENCE))
    await fixture.open(node)
    await check_deadline(fixture, SHORT_MS, timeout_ms=SHORT_MS)
    node.script = fixture.issuer
    (await fixture.call()).unfailed()


@case("Retries")
async def deadline_that_has_passed_sends_nothing(fixture: Fixture) -> None:
    """A call whose deadline has passed when it begins ends at once, and no node is asked."""
    node = await fixture.node()
    await fixture.open(node)
    (await fixture.call()).unfailed()
    for _ in range(5):
        (await fixture.call(7, timeout_ms=0)).failed("deadline")
    (await fixture.call()).unfailed()
    expect(node.counts() == [1, 1], f"the node got {node.counts()}")


@case("Retries")
async def deadline_of_the_client_holds(fixture: Fixture) -> None:
    """Calls without a deadline have that of the client."""
    node = await fixture.node(always(ELECTION))
    await fixture.open(node, timeout_ms=SHORT_MS)
    outcome = await check_deadline(fixture, SHORT_MS)
    if outcome.cause is not None:
        expect(node.address in outcome.message, f"it does not name it: {outcome.message}")


@case("Retries")
async def callers_of_one_request_have_their_own_deadlines(fixture: Fixture) -> None:
    """A caller whose deadline passes takes no other with it, nor its timestamps."""
    answered = asyncio.Event()

    async def slow(request: Request) -> Reply:
        await answered.wait()
        return await fixture.issuer(request)

    node = await fixture.node(slow)
    await fixture.open(node)
    long = [fixture.send()]
    await node.wait_for_asked(1)
    long.append(fixture.send())
    short = [fixture.send(3, timeout_ms=SHORT_MS) for _ in range(3)]
    long.append(fixture.send(2))
    for call in short:
        (await call.outcome()).failed("deadline")
    answered.set()
    ranges = sorted([((await call.outcome()).first, (await call.outcome()).last) for call in long])
    apart = all(one[1] < other[0] for one, other in zip(ranges, ranges[1:]))
    expect(apart, f"a timestamp was given twice: {ranges}")


@case("Retries")
async def short_deadlines_do_not_keep_a_client_from_its_node(fixture: Fixture) -> None:
    """A deadline that passes does not interrupt connecting: the calls after it go on with it."""
    node = await fixture.node()
    node.members_delay = 0.6
    await fixture.open(node, connect_timeout_ms=20_000)
    await served(fixture, timeout_ms=200)


@case("Retries")
async def short_deadlines_do_not_interrupt_the_waits(fixture: Fixture) -> None:
    """Calls whose deadlines are shorter than the waits between attempts wait all the same."""
    node = await fixture.node(always(ELECTION))
    await fixture.open(node)
    while len(node.asked) < ATTEMPTS:
        (await fixture.call(timeout_ms=20)).failed("deadline")
    _check_gaps(_arrivals([node]), lanes=2, names=0)
    node.script = fixture.issuer
    await served(fixture, timeout_ms=200)


@case("Retries")
async def attempts_have_waits_between_them(fixture: Fixture) -> None:
    """There is a wait before each attempt after a failure, and it grows."""
    node = await fixture.node(always(ELECTION))
    await _check_waits(fixture, [node])


@case("Retries")
async def callers_share_the_waits(fixture: Fixture) -> None:
    """Callers do not retry each for itself."""
    node = await fixture.node(always(ELECTION))
    await _check_waits(fixture, [node], lanes=2, callers=200)


@case("Retries")
async def node_that_names_itself_is_not_asked_without_a_wait(fixture: Fixture) -> None:
    """A 409 that names the node itself is a failure, with its wait; the next call may succeed."""
    node = await fixture.node()

    async def itself(_: Request) -> Reply:
        return not_leader(node.address)

    node.script = itself
    await _check_waits(fixture, [node], names=2)
    node.script = fixture.issuer
    (await fixture.call()).unfailed()


@case("Retries")
async def nodes_that_name_each_other_are_not_asked_without_a_wait(fixture: Fixture) -> None:
    """Two names in a row are followed at once, and each further one after a wait."""
    one, other = await fixture.node(), await fixture.node()
    fixture.introduce(one, other)
    one.script = always(not_leader(other.address))
    other.script = always(not_leader(one.address))
    await _check_waits(fixture, [one, other], names=3)
    one.script = fixture.issuer
    (await fixture.call()).unfailed()


@case("Retries")
async def lists_that_name_each_other_are_not_followed_for_ever(fixture: Fixture) -> None:
    """A name is also the leader of /members: two in a row, and then a node itself is asked."""
    one, other = await fixture.node(), await fixture.node()
    both = [one.address, other.address]
    one.members, other.members = members(other.address, both), members(one.address, both)
    await fixture.open(one)
    (await fixture.call()).unfailed()


@case("Retries")
async def chain_of_two_names_is_followed(fixture: Fixture) -> None:
    """A follower may name a node that has just lost its leadership, and that the next one."""
    leader = await fixture.node()
    former = await fixture.node(always(not_leader(leader.address)))
    follower = await fixture.node(always(not_leader(former.address)))
    await fixture.open(follower)
    (await fixture.call()).unfailed()
    asked = (follower.counts(), former.counts(), leader.counts())
    expect(asked == ([1], [1], [1]), f"the nodes got {asked}")


@case("Retries")
async def leader_that_has_just_failed_is_not_asked_again_at_once(fixture: Fixture) -> None:
    """Another node may name it still. The client does not go back to it without a look at the
    others."""
    asked: list[str] = []

    def script(name: str, reply: Reply | None = None) -> Script:
        async def answer(request: Request) -> Reply:
            asked.append(name)
            return reply or await fixture.issuer(request)

        return answer

    failed, leader = await fixture.node(), await fixture.node(script("leader"))
    failed.script = script("failed", ELECTION)
    follower = await fixture.node(script("follower", not_leader(failed.address)))
    for _ in range(12):
        await fixture.open(failed, follower, leader)
        (await fixture.call()).unfailed()
        await fixture.close_client()
        order = " ".join(asked)
        expect("failed follower failed" not in order, f"the nodes were asked in turn: {order}")
        asked.clear()


@case("Retries")
async def leader_that_is_gone_is_replaced_without_a_failed_call(fixture: Fixture) -> None:
    """The leader is killed under load. The others name it for a while, then none leads, then one
    does. No call fails, and timestamps are in order."""
    leader, follower = await fixture.node(), await fixture.node()
    fixture.introduce(leader, follower, leader=leader)
    follower.script = always(not_leader(leader.address))
    await fixture.open(leader)
    history = History()

    async def election() -> None:
        await leader.wait_for_asked(50)
        asked = len(follower.asked)
        await leader.stop()
        await follower.wait_for_asked(asked + 3)
        follower.members = members(None, [leader.address, follower.address])
        follower.script = always(ELECTION)
        await follower.wait_for_asked(asked + 6)
        follower.script = fixture.issuer

    await all_or_first_failure(election(), *(history.calls(fixture, 100) for _ in range(10)))
    history.check()


@case("Retries")
async def frozen_node_is_left_for_another(fixture: Fixture) -> None:
    """A node that is stopped keeps its connections, and answers nothing over them."""
    one, other = await fixture.node(), await fixture.node()
    fixture.introduce(one, other)
    await fixture.open(one)
    (await fixture.call()).unfailed()
    one.is_frozen = True
    (await fixture.call()).unfailed()
    expect(len(other.asked) > 0, "the other node was not asked")


@case("Retries")
async def answer_that_stalls_is_given_up(fixture: Fixture) -> None:
    """Silence is a failure after 1.5 s, also in the middle of an answer."""
    half = Reply(200, range_body(EPOCH, 1, 1)[:10], length=24, then="stall")
    for reply in [SILENCE, half]:
        fixture.issuer.take(1)
        one = await fixture.node(first([reply], fixture.issuer))
        other = await fixture.node()
        fixture.introduce(one, other)
        await fixture.open(one)
        (await fixture.call()).unfailed()
        expect(other.counts() == [1], "the other node was not asked")
        await fixture.close_client()


@case("Retries")
async def silent_connection_is_probed(fixture: Fixture) -> None:
    """Over HTTP/2 a client sends a PING while a request waits: a host that lost its power closes no
    connection. Over HTTP/1.1 there is none."""
    node = await fixture.node(always(SILENCE))
    await fixture.open(node)
    call = fixture.send()
    await node.wait_for_asked(1)
    if not any(each.is_http2 for each in node.connections):
        raise CaseSkip("the client speaks HTTP/1.1")
    # A client that is busy may give up a request before it sends one, but not each request.
    await node.wait_until(lambda: node.pings > 0 or len(node.asked) >= ATTEMPTS)
    expect(node.pings > 0, f"no PING while {ATTEMPTS} requests waited")
    node.script = fixture.issuer
    (await call.outcome()).unfailed()


@case("Retries")
async def silent_and_unreachable_endpoints_are_passed(fixture: Fixture) -> None:
    """Connecting to a node is given up after a second; another one is asked."""
    silent, right = await fixture.node(), await fixture.node()
    silent.is_frozen = True
    for wrong in [silent.address, fixture.full_backlog(), fixture.dead_port()]:
        await fixture.open(wrong, right, connect_timeout_ms=None)
        (await fixture.call()).unfailed()
        await fixture.close_client()
    expect(not silent.asked, "a silent node got a request")


@case("Retries")
async def idle_connection_that_was_closed_is_made_again(fixture: Fixture) -> None:
    """Nodes close idle connections. The next call is answered all the same."""
    node = await fixture.node()
    await fixture.open(node)
    for _ in range(3):
        (await fixture.call()).unfailed()
        node.cut()


@case("Retries")
async def reason_of_the_leader_is_reported(fixture: Fixture) -> None:
    """The error of a deadline has the last failure, and the node that it is of."""
    node = await fixture.node(always(Reply(500, b"the clock of this node shows the year 2000")))
    await fixture.open(node)
    while True:
        outcome = (await fixture.call(timeout_ms=SHORT_MS)).failed("deadline")
        if outcome.cause is not None:
            break
    for part in (node.address, "the clock of this node shows the year 2000"):
        expect(part in outcome.message, f"the message has no {part!r}: {outcome.message}")
