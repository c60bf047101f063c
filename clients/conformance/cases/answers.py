"""Answers: what follows from each. The vectors of the guide, and answers that are cut off."""

from __future__ import annotations

from typing import Any

from ..case import Fixture, case
from ..failure import expect
from ..messages import EPOCH, LOST, Reply, always, first, not_leader, range_body
from ..node import Node
from ..waits import LATE_SECONDS, SHORT_MS
from .requests import vectors


def _listed(then: str) -> list[dict[str, Any]]:
    return [vector for vector in vectors()["answers"] if vector["then"] == then]


def _reply(vector: dict[str, Any], named: str | None = None) -> Reply:
    """The answer of a vector. `named` takes the place of its leader."""
    body = bytes.fromhex(vector["body_hex"]) if "body_hex" in vector else vector["body"].encode()
    headers = dict(vector.get("headers", {}))
    if named is not None:
        headers["esker-leader"] = named
    return Reply(vector["status"], body, headers)


async def _close(fixture: Fixture, *nodes: Node) -> None:
    await fixture.close_client()
    for node in nodes:
        await node.stop()


@case("Answers")
async def vectors_with_timestamps(fixture: Fixture) -> None:
    """The timestamps of a right answer are returned."""
    for vector in _listed("timestamps"):
        node = await fixture.node(always(_reply(vector)))
        await fixture.open(node)
        outcome = (await fixture.call(vector["n"])).unfailed()
        got = (outcome.answer["first"], outcome.answer["last"])
        expect(got == (vector["first"], vector["last"]), f"{vector}: {outcome.answer}")
        await _close(fixture, node)


@case("Answers")
async def vectors_of_64_bits_are_read_and_checked(fixture: Fixture) -> None:
    """The timestamps of a right answer are returned. After any other one the request is repeated,
    until the deadline at the latest."""
    for vector in vectors()["u64_answers"]:
        node = await fixture.node(first([_reply(vector)], fixture.issuer))
        await fixture.open(node, format="u64")
        outcome = (await fixture.call(vector["n"])).unfailed()
        asked = [vector["n"]]
        if vector["then"] == "timestamps":
            got = (outcome.answer["first"], outcome.answer["last"])
            expect(got == (vector["first"], vector["last"]), f"{vector}: {outcome.answer}")
        else:
            asked *= 2
            expect(outcome.first[0] == EPOCH, f"{vector}: {outcome.answer}")
        expect(node.counts() == asked, f"{vector}: the node got {node.counts()}")
        formats = [each.query.get("format") for each in node.asked]
        expect(all(each.is_u64_range for each in node.asked), f"the formats {formats}")
        if vector["then"] != "timestamps":
            node.script = always(_reply(vector))
            outcome = await fixture.call(vector["n"], timeout_ms=SHORT_MS)
            expect(outcome.kind == "deadline", f"{vector}: {outcome.answer}")
        await _close(fixture, node)


@case("Answers")
async def vectors_that_name_the_leader(fixture: Fixture) -> None:
    """The leader that a node names is asked, also if no list has it."""
    for vector in _listed("ask the leader"):
        leader = await fixture.node()
        port = leader.address.rsplit(":", 1)[1]
        named = leader.address
        if vector["leader"].startswith("node-2"):
            named = f"localhost:{port}"
        if vector["leader"].startswith("["):
            try:
                leader = await fixture.node(host="::1")
            except OSError:
                continue  # This machine has no IPv6.
            named = leader.address
        follower = await fixture.node(always(_reply(vector, named)))
        await fixture.open(follower)
        for _ in range(3):
            outcome = await fixture.call(vector["n"])
            expect(outcome.kind is None, f"{vector}: {outcome.answer}")
        asked = (follower.counts(), leader.counts())
        expect(asked == ([1], [1] * 3), f"{vector}: follower and leader got {asked}")
        await _close(fixture, follower, leader)


@case("Answers")
async def vectors_that_end_at_another_node(fixture: Fixture) -> None:
    """After an answer that is no timestamp, another node is asked, and not the same one."""
    trap = await fixture.node()
    port = trap.address.rsplit(":", 1)[1]
    for vector in _listed("ask another node"):
        named = vector.get("headers", {}).get("esker-leader")
        if named is not None:
            named = named.replace("10.0.0.2:80", trap.address).replace(f"{port}80", port)
            named = named.replace("0.0.0.0:8080", f"0.0.0.0:{port}")
        reply = _reply(vector, named)
        if reply.status // 100 == 3:
            reply.headers["Location"] = f"http://{trap.address}/timestamp?n=1&format=range"
        wrong, right = await fixture.node(always(reply)), await fixture.node()
        fixture.introduce(wrong, right)
        await fixture.open(wrong)
        for _ in range(2):
            outcome = await fixture.call(vector["n"])
            expect(outcome.kind is None, f"{vector}: {outcome.answer}")
            expect(outcome.first[0] == EPOCH, f"{vector}: {outcome.answer}")
        asked = (wrong.counts(), right.counts())
        wanted = ([vector["n"]], [vector["n"]] * 2)
        expect(asked == wanted, f"{vector}: the nodes got {asked}")
        await _close(fixture, wrong, right)
    expect(not trap.connections, "a client followed what is no host and port")


@case("Answers")
async def vectors_that_ask_for_a_wait(fixture: Fixture) -> None:
    """After 503 a client waits for Retry-After, at most a second, and asks again."""
    for vector in _listed("ask again later"):
        node = await fixture.node(first([_reply(vector)], fixture.issuer))
        await fixture.open(node)
        call = fixture.send(vector["n"])
        (await call.outcome()).unfailed()
        one, other = node.asked
        took = other.arrived - one.arrived
        expect(vector["seconds"] <= took < LATE_SECONDS, f"{vector}: it waited {took:.3f} s")
        await _close(fixture, node)


@case("Answers")
async def vectors_that_end_the_call(fixture: Fixture) -> None:
    """A request that is wrong stays wrong: it is not repeated."""
    for vector in _listed("fail"):
        node = await fixture.node(first([_reply(vector)], fixture.issuer))
        await fixture.open(node)
        (await fixture.call(min(vector["n"], 65_536))).failed("refused")
        expect(len(node.asked) == 1, f"{vector}: it was asked {len(node.asked)} times")
        (await fixture.call()).unfailed()
        await _close(fixture, node)


@case("Answers")
async def redirect_goes_to_the_named_leader_alone(fixture: Fixture) -> None:
    """A 307 is followed by its Esker-Leader; Location is never followed."""
    trap, leader = await fixture.node(), await fixture.node()
    redirect = not_leader(leader.address, 307)
    redirect.headers["Location"] = f"http://{trap.address}/timestamp?n=1&format=range"
    follower = await fixture.node(always(redirect))
    await fixture.open(follower)
    (await fixture.call()).unfailed()
    expect(leader.counts() == [1], "the leader was not asked once")
    expect(not trap.connections, "Location was followed")


@case("Answers")
async def answers_that_are_cut_off_are_asked_for_again(fixture: Fixture) -> None:
    """A request whose answer was lost, whole or in part, is repeated."""
    body = range_body(EPOCH, 1, 1)
    for reply in [
        LOST,
        Reply(200, b"", length=24, then="close"),
        Reply(200, body[:10], length=24, then="close"),
        Reply(200, body[:23], length=24, then="close"),
        Reply(500, b"x" * (1 << 20)),
        Reply(200, body * 50_000),
    ]:
        fixture.issuer.take(1)
        node = await fixture.node(first([reply], fixture.issuer))
        await fixture.open(node)
        outcome = await fixture.call()
        shown = f"{reply.status}, {len(reply.body)} bytes, then {reply.then}"
        expect(outcome.kind is None, f"{shown}: {outcome.answer}")
        expect(node.counts() == [1, 1], f"{shown}: the node got {node.counts()}")
        await _close(fixture, node)


@case("Answers")
async def malformed_answers_of_all_nodes_end_at_the_deadline(fixture: Fixture) -> None:
    """No answer that fails a check is ever returned."""
    bodies = {
        "too short": range_body(EPOCH, 5, 1)[:23],
        "too long": range_body(EPOCH, 5, 1) + b"x",
        "another count": range_body(EPOCH, 5, 2),
        "index 0": range_body(EPOCH, 0, 1),
        "empty": b"",
    }
    for why, body in bodies.items():
        node = await fixture.node(always(Reply(200, body)))
        await fixture.open(node)
        outcome = await fixture.call(timeout_ms=300)
        expect(outcome.kind == "deadline", f"{why}: {outcome.answer}")
        await _close(fixture, node)
    node = await fixture.node(always(Reply(200, range_body(EPOCH, 2**64 - 2, 3))))
    await fixture.open(node)
    (await fixture.call(3, timeout_ms=300)).failed("deadline")
