"""TLS: which nodes are trusted, and what is sent to those that are not."""

from __future__ import annotations

import shutil
import ssl
from typing import Any

from ..case import Fixture, case
from ..certificates import server_context
from ..failure import expect
from ..messages import always, members, not_leader
from ..node import Node
from ..waits import SHORT_MS, check_deadline, until_cause


def _https(node: Node) -> str:
    return f"https://{node.address}"


def _trusting(fixture: Fixture) -> str:
    return str(fixture.certificates.authority.certificate)


async def _check_untrusted(fixture: Fixture, node: Node, **options: Any) -> None:
    """Checks that nothing is asked of this node, and that the error says why."""
    await fixture.open(_https(node), **options)
    outcome = await until_cause(fixture, "tls")
    expect(node.address in outcome.message, f"the message does not name it: {outcome.message}")
    asked = len(node.asked) + node.members_asked
    expect(not asked, f"{asked} requests were sent to a node that is not trusted")
    await fixture.close_client()


@case("TLS")
async def leader_is_followed_over_tls(fixture: Fixture) -> None:
    """Addresses that nodes name have no scheme: that of the endpoints is used."""
    leader, member = await fixture.tls_node(), await fixture.tls_node()
    follower = await fixture.tls_node(always(not_leader(leader.address)))
    for node in (follower, leader, member):
        node.members = members(None, [follower.address, leader.address, member.address])
    await fixture.open(_https(follower), ca=_trusting(fixture))
    for _ in range(3):
        (await fixture.call()).unfailed()
    expect(leader.counts() == [1] * 3, f"the leader got {leader.counts()}")
    await leader.stop()
    follower.script = always(not_leader(member.address))
    (await fixture.call()).unfailed()


@case("TLS")
async def node_of_an_unknown_authority_is_not_trusted(fixture: Fixture) -> None:
    """A certificate is verified against the file of authorities, or against the system's."""
    node = await fixture.tls_node()
    stranger = fixture.certificates.stranger.certificate
    await _check_untrusted(fixture, node, ca=str(stranger))
    await _check_untrusted(fixture, node)


@case("TLS")
async def certificate_for_another_host_is_not_trusted(fixture: Fixture) -> None:
    """The name to verify is the host that the client connects to."""
    node = await fixture.node(tls=server_context(fixture.certificates.elsewhere))
    await _check_untrusted(fixture, node, ca=_trusting(fixture))


@case("TLS")
async def named_leader_is_verified_too(fixture: Fixture) -> None:
    """The certificate of a leader is verified for the host of the leader's address."""
    elsewhere = await fixture.node(tls=server_context(fixture.certificates.elsewhere))
    follower = await fixture.tls_node(always(not_leader(elsewhere.address)))
    follower.members = members(elsewhere.address, [follower.address, elsewhere.address])
    await fixture.open(_https(follower), ca=_trusting(fixture))
    (await fixture.call(timeout_ms=1500)).failed("deadline")
    asked = len(elsewhere.asked) + elsewhere.members_asked
    expect(not asked, f"{asked} requests were sent to a node that is not trusted")


@case("TLS")
async def certificate_that_has_ended_is_not_trusted(fixture: Fixture) -> None:
    """The validity of a certificate is verified: its end and its beginning."""
    for pair in (fixture.certificates.expired, fixture.certificates.early):
        node = await fixture.node(tls=server_context(pair))
        await _check_untrusted(fixture, node, ca=_trusting(fixture))


@case("TLS")
async def older_version_of_tls_is_refused(fixture: Fixture) -> None:
    """Clients speak TLS 1.3."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(*fixture.certificates.node)
    node = await fixture.node(tls=context)
    await _check_untrusted(fixture, node, ca=_trusting(fixture))


@case("TLS")
async def untrusted_node_is_passed_for_another(fixture: Fixture) -> None:
    """A node that cannot be trusted is one that fails: another one is asked."""
    expired = await fixture.node(tls=server_context(fixture.certificates.expired))
    right = await fixture.tls_node()
    await fixture.open(_https(expired), _https(right), ca=_trusting(fixture))
    for _ in range(3):
        (await fixture.call()).unfailed()
    expect(not expired.asked, "a node that is not trusted was asked")


@case("TLS")
async def node_that_wants_a_certificate_gets_it(fixture: Fixture) -> None:
    """Without a certificate, or with a stranger's, the node refuses the client after the
    handshake, and the client says so."""
    certificates = fixture.certificates
    context = server_context(certificates.node, certificates.authority)
    node = await fixture.node(tls=context)
    options = {"ca": _trusting(fixture)}
    await _check_untrusted(fixture, node, **options)
    strange, client = certificates.strange_client, certificates.client
    await _check_untrusted(
        fixture, node, client_cert=str(strange.certificate), client_key=str(strange.key), **options
    )
    await fixture.open(
        _https(node), client_cert=str(client.certificate), client_key=str(client.key), **options
    )
    (await fixture.call()).unfailed()


@case("TLS")
async def plain_node_is_not_asked_over_https(fixture: Fixture) -> None:
    """A client never falls back from https to http."""
    node = await fixture.node()
    await fixture.open(_https(node), ca=_trusting(fixture))
    await until_cause(fixture, "tls")
    expect(node.tls_attempts > 0, "there was no TLS handshake")
    asked = len(node.asked) + node.members_asked
    expect(not asked, f"{asked} requests were sent without TLS")


@case("TLS")
async def node_with_tls_is_not_asked_over_http(fixture: Fixture) -> None:
    """A plain client gets no timestamp from a node with TLS, and its error names the node."""
    node = await fixture.tls_node()
    await fixture.open(node)
    while True:
        outcome = (await fixture.call(timeout_ms=SHORT_MS)).failed("deadline")
        if outcome.cause is not None:
            break
    expect(node.address in outcome.message, f"the message does not name it: {outcome.message}")


@case("TLS")
async def handshake_that_never_ends_is_given_up(fixture: Fixture) -> None:
    """The handshake is part of connecting: a second for both, and another node is asked."""
    silent, right = await fixture.node(), await fixture.tls_node()
    silent.is_frozen = True
    await fixture.open(_https(silent), ca=_trusting(fixture))
    await check_deadline(fixture, SHORT_MS, timeout_ms=SHORT_MS)
    await fixture.close_client()
    options = {"ca": _trusting(fixture), "connect_timeout_ms": None}
    await fixture.open(_https(silent), _https(right), **options)
    (await fixture.call()).unfailed()


@case("TLS")
async def renewed_files_are_used_by_new_connections(fixture: Fixture) -> None:
    """Certificates are renewed while a client runs: the files are read again."""
    certificates = fixture.certificates
    context = server_context(certificates.node, certificates.authority)
    node = await fixture.node(tls=context)
    certificate, key = fixture.folder / "client.pem", fixture.folder / "client-key.pem"
    shutil.copy(certificates.strange_client.certificate, certificate)
    shutil.copy(certificates.strange_client.key, key)
    await fixture.open(
        _https(node), ca=_trusting(fixture), client_cert=str(certificate), client_key=str(key)
    )
    await until_cause(fixture, "tls")
    # One file after the other: between the two they do not fit.
    shutil.copy(certificates.client.certificate, certificate)
    (await fixture.call(timeout_ms=SHORT_MS)).failed("deadline")
    shutil.copy(certificates.client.key, key)
    (await fixture.call()).unfailed()


@case("TLS")
async def unusable_files_are_refused(fixture: Fixture) -> None:
    """A file of authorities or of a certificate that cannot be used is an error of `open`."""
    node, pair = await fixture.tls_node(), fixture.certificates.client
    missing = str(fixture.folder / "missing.pem")
    for options in [
        {"ca": missing},
        {"ca": str(pair.key)},
        {"client_cert": missing, "client_key": str(pair.key)},
        {"client_cert": str(pair.certificate), "client_key": str(fixture.certificates.node.key)},
    ]:
        outcome = await fixture.try_open(_https(node), **options)
        expect(outcome.kind == "invalid", f"{options}: {outcome.answer}")
