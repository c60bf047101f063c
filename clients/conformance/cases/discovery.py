"""Discovery: endpoints, the list of members, and the cluster."""

from __future__ import annotations

import json

from ..case import Fixture, case
from ..failure import expect
from ..messages import CLUSTER, Reply, first, members
from ..waits import until_cause

OTHER_CLUSTER = "fedcba9876543210fedcba9876543210"


@case("Discovery")
async def members_are_asked_when_the_endpoints_are_gone(fixture: Fixture) -> None:
    """The nodes of the list are asked when the leader is gone, also if no endpoint is one."""
    endpoint, member = await fixture.node(), await fixture.node()
    fixture.introduce(endpoint, member)
    await fixture.open(endpoint)
    before = (await fixture.call()).first
    await endpoint.stop()
    expect((await fixture.call()).first > before, "timestamps are in order over both nodes")
    expect(len(member.asked) > 0, "the member was not asked")


@case("Discovery")
async def leader_of_the_list_gets_the_requests(fixture: Fixture) -> None:
    """Requests go to the leader that the list of members names."""
    follower, leader = await fixture.node(), await fixture.node()
    fixture.introduce(follower, leader, leader=leader)
    await fixture.open(follower)
    for _ in range(3):
        (await fixture.call()).unfailed()
    asked = (follower.counts(), leader.counts())
    expect(asked == ([], [1] * 3), f"the follower and the leader got {asked}")


@case("Discovery")
async def leader_that_cannot_be_reached_is_asked_at_the_endpoint(fixture: Fixture) -> None:
    """The list may have an address that clients cannot reach: the endpoint is asked."""
    node = await fixture.node()
    elsewhere = fixture.dead_port()
    node.members = members(elsewhere, [elsewhere])
    await fixture.open(node)
    (await fixture.call()).unfailed()


@case("Discovery")
async def unusable_members_are_not_asked(fixture: Fixture) -> None:
    """A member is a host and a port, and nothing else."""
    failures = [Reply(500, b"no node leads")] * 5
    node, trap = await fixture.node(first(failures, fixture.issuer)), await fixture.node()
    port = trap.address.rsplit(":", 1)[1]
    wrong = [f"http://{trap.address}", f"{trap.address}/", f"a@{trap.address}", f"0.0.0.0:{port}"]
    named = [{"nodeID": at, "addr": address, "voter": True} for at, address in enumerate(wrong)]
    listed = {"cluster": CLUSTER, "leader": named[0], "members": [*named, {}]}
    node.members = Reply(200, json.dumps(listed).encode())
    await fixture.open(node)
    (await fixture.call()).unfailed()
    expect(not trap.connections, "a client connected to what is no host and port")


@case("Discovery")
async def server_without_a_list_of_members_is_no_node(fixture: Fixture) -> None:
    """A server that answers /members with something else gets no request for timestamps."""
    node = await fixture.node()
    await fixture.open(node)
    wrong = [
        Reply(200, b"ok"),
        Reply(200, b'{"members": 7}'),
        Reply(200, b'{"cluster": "another", "members": 7}'),
        Reply(200, b'{"cluster": "another"}'),
        Reply(404, b'{"members": []}'),
        Reply(200, b" " * (2 << 20)),
        Reply(503, b"this node waits for its cluster"),
    ]
    for reply in wrong:
        node.members = reply
        (await fixture.call(timeout_ms=200)).failed("deadline")
    expect(not node.asked, "timestamps were asked for")
    node.members = None
    (await fixture.call()).unfailed()


@case("Discovery")
async def node_of_another_cluster_is_not_asked(fixture: Fixture) -> None:
    """The cluster of the first answer is that of all nodes."""
    own, other = await fixture.node(), await fixture.node()
    own.members = members(None, [own.address, other.address])
    other.members = members(None, [other.address], OTHER_CLUSTER)
    await fixture.open(own)
    (await fixture.call()).unfailed()
    await own.stop()
    await until_cause(fixture, "other_cluster")
    expect(not other.asked, "a node of another cluster was asked for timestamps")


@case("Discovery")
async def address_that_moves_to_another_cluster_is_not_asked(fixture: Fixture) -> None:
    """The list is asked for with each new connection, so that the cluster is checked again."""
    node = await fixture.node()
    await fixture.open(node)
    (await fixture.call()).unfailed()
    node.members = members(None, [node.address], OTHER_CLUSTER)
    node.cut()
    asked = len(node.asked)
    outcome = await until_cause(fixture, "other_cluster")
    expect(node.address in outcome.message, f"the message does not name it: {outcome.message}")
    expect(len(node.asked) == asked, "a node of another cluster was asked for timestamps")


@case("Discovery")
async def named_cluster_is_the_only_one(fixture: Fixture) -> None:
    """A client that names its cluster asks no other, not even the first node."""
    node = await fixture.node()
    await fixture.open(node, cluster=OTHER_CLUSTER)
    await until_cause(fixture, "other_cluster")
    expect(not node.asked, "a node of another cluster was asked for timestamps")
    node.members = members(None, [node.address], OTHER_CLUSTER)
    (await fixture.call()).unfailed()


@case("Discovery")
async def unusable_endpoints_are_refused(fixture: Fixture) -> None:
    """Endpoints are hosts and ports of one scheme."""
    for wrong in [
        [],
        ["ftp://127.0.0.1:1"],
        ["http://127.0.0.1"],
        ["http://127.0.0.1:0"],
        ["http://127.0.0.1:1/path"],
        ["http://256.0.0.1:1"],
        ["http://127.0.1:1"],
        ["http://user@127.0.0.1:1"],
        ["http://127.0.0.1:1", "https://127.0.0.1:2"],
    ]:
        outcome = await fixture.try_open(*wrong)
        expect(outcome.kind == "invalid", f"{wrong}: {outcome.answer}")
