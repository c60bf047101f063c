"""Changes and their token. A client that makes no changes skips these."""

from __future__ import annotations

import asyncio
from typing import Any

from ..case import Fixture, case
from ..driver import Outcome
from ..failure import expect
from ..messages import LOST, Reply, always, first, not_leader
from ..waits import SHORT_MS

TOKEN = "0123456789abcdef0123456789abcdef"
PATH = "/cluster/transfer"
DONE = Reply(200, b"done")


async def _change(fixture: Fixture, **fields: Any) -> Outcome:
    assert fixture.driver
    return await fixture.driver.ask("change", path=PATH, body='{"to": 2}', **fields)


@case("Changes")
async def token_is_sent_with_changes_alone(fixture: Fixture) -> None:
    """A change goes to the leader with its token. What only reads never has one."""
    leader, follower = await fixture.node(), await fixture.node()
    fixture.introduce(leader, follower)
    leader.changes_script = always(DONE)
    follower.changes_script = always(not_leader(leader.address))
    await fixture.open(follower, token=TOKEN)
    (await fixture.call()).unfailed()
    outcome = (await _change(fixture)).unfailed()
    got = (outcome.answer["status"], outcome.answer["body"])
    expect(got == (200, "done"), f"the answer of the leader: {outcome.answer}")
    (await fixture.call()).unfailed()
    sent = [(node.headers.get("authorization"), node.body) for node in leader.changes]
    expect(sent == [(f"Bearer {TOKEN}", b'{"to": 2}')], f"the leader got {sent}")


@case("Changes")
async def change_that_is_denied_is_not_repeated(fixture: Fixture) -> None:
    """401 and 403 are final for a node. A client may ask each other node once."""
    for status in (401, 403):
        one, other = await fixture.node(), await fixture.node()
        fixture.introduce(one, other)
        for node in (one, other):
            node.changes_script = always(Reply(status, b"give a token"))
        await fixture.open(one, other, token=TOKEN)
        (await _change(fixture)).failed("denied")
        sent = (len(one.changes), len(other.changes))
        expect(max(sent) == 1, f"{status}: it was sent {sent} times")
        await fixture.close_client()


@case("Changes")
async def change_that_may_have_been_made_is_not_repeated(fixture: Fixture) -> None:
    """A change whose answer was lost, or is a 500, is sent once, and its outcome is unknown."""
    for reply in (LOST, Reply(500, b"no quorum"), Reply(200, b"do", length=4, then="close")):
        one, other = await fixture.node(), await fixture.node()
        fixture.introduce(one, other)
        for node in (one, other):
            node.changes_script = first([reply], always(DONE))
        await fixture.open(one, other)
        (await _change(fixture)).failed("unknown")
        sent = len(one.changes) + len(other.changes)
        expect(sent == 1, f"{reply}: it was sent {sent} times")
        await fixture.close_client()


@case("Changes")
async def change_that_was_not_made_is_sent_again(fixture: Fixture) -> None:
    """A 503 says that nothing was done; a node that cannot be reached does nothing either."""
    node = await fixture.node()
    node.changes_script = first([Reply(503, b"busy", {"Retry-After": "0"})] * 2, always(DONE))
    await fixture.open(fixture.dead_port(), node)
    (await _change(fixture)).unfailed()
    expect(len(node.changes) == 3, f"the node got {len(node.changes)} changes")


@case("Changes")
async def closed_client_fails_its_changes(fixture: Fixture) -> None:
    """A change that waits when the client is closed ends at once."""
    arrived = asyncio.Event()

    async def silent(_: object) -> Reply:
        arrived.set()
        await asyncio.Event().wait()
        return Reply()

    node = await fixture.node()
    node.changes_script = silent
    await fixture.open(node)
    assert fixture.driver
    change = fixture.driver.send("change", path=PATH, body="{}")
    ended = asyncio.ensure_future(change.outcome())
    waiting = asyncio.ensure_future(arrived.wait())
    await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not ended.done():
        await fixture.close_client()
    (await ended).failed("closed")


@case("Changes")
async def token_goes_to_no_host_that_is_no_host_and_port(fixture: Fixture) -> None:
    """A leader that is named by a URL does not get the token."""
    node, trap = await fixture.node(), await fixture.node()
    named = not_leader(f"http://{trap.address}")
    named.headers["Location"] = f"http://{trap.address}{PATH}"
    node.changes_script = always(named)
    await fixture.open(node, token=TOKEN)
    await _change(fixture, timeout_ms=SHORT_MS)
    expect(not trap.connections, "a client followed what is no host and port")


@case("Changes")
async def unusable_tokens_are_refused(fixture: Fixture) -> None:
    """A token has printable ASCII characters and no space: nothing else gets into a header."""
    node = await fixture.node()
    node.changes_script = always(DONE)
    await fixture.open(node, token=TOKEN)
    (await _change(fixture)).unfailed()
    await fixture.close_client()
    for wrong in ("", "two words", "line\r\nX-Header: 1", "caf\u00e9", "nul\0"):
        outcome = await fixture.try_open(node, token=wrong)
        expect(outcome.kind == "invalid", f"{wrong!r}: {outcome.answer}")
