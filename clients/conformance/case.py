"""Cases, and what each has while it runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from .certificates import Certificates, server_context
from .driver import Call, Driver, Outcome
from .failure import CaseSkip, expect
from .messages import Issuer, Script, members
from .node import HOST, DeadPort, FullBacklog, Node

# A deadline that is never reached: no case may take so long.
LONG_MS = 600_000
CONNECT_MS = 20_000


@dataclass(frozen=True)
class Case:
    """A requirement, and the section of the guide that has it."""

    name: str
    section: str
    requirement: str
    run: Callable[[Fixture], Awaitable[None]]


CASES: list[Case] = []


def case(section: str) -> Callable[[Callable[[Fixture], Awaitable[None]]], Any]:
    """Registers a case. Its docstring is the requirement."""

    def register(run: Callable[[Fixture], Awaitable[None]]) -> Any:
        requirement = " ".join((run.__doc__ or "").split())
        CASES.append(Case(run.__name__, section, requirement, run))
        return run

    return register


class Fixture:
    """The nodes of a case, and the driver of the client under test."""

    def __init__(self, command: list[str], certificates: Certificates | None, folder: Path) -> None:
        self.folder = folder
        self._command = command
        self._certificates = certificates
        self._closing: list[DeadPort | FullBacklog] = []
        self.nodes: list[Node] = []
        self.driver: Driver | None = None
        self.issuer = Issuer()

    @property
    def certificates(self) -> Certificates:
        if self._certificates is None:
            raise CaseSkip("no command openssl")
        return self._certificates

    async def node(
        self,
        script: Script | None = None,
        tls: ssl.SSLContext | None = None,
        host: str = HOST,
    ) -> Node:
        """Starts a node. Without a script it leads."""
        node = Node(script or self.issuer, tls)
        await node.start(host)
        self.nodes.append(node)
        return node

    async def tls_node(self, script: Script | None = None) -> Node:
        return await self.node(script, server_context(self.certificates.node))

    def introduce(self, *nodes: Node, leader: Node | None = None) -> None:
        """Has these nodes name one another as members."""
        addresses = [node.address for node in nodes]
        for node in nodes:
            node.members = members(leader.address if leader else None, addresses)

    def dead_port(self) -> str:
        port = DeadPort()
        self._closing.append(port)
        return port.address

    def full_backlog(self) -> str:
        backlog = FullBacklog()
        self._closing.append(backlog)
        return backlog.address

    async def start(self) -> Driver:
        self.driver = await Driver.start(self._command)
        return self.driver

    async def try_open(self, *endpoints: Node | str, **options: Any) -> Outcome:
        """Opens a client of these nodes, with a deadline that is never reached, and time to connect
        on a slow machine. An option that is `None` is left out."""
        urls = []
        for endpoint in endpoints:
            address = endpoint if isinstance(endpoint, str) else endpoint.address
            urls.append(address if "://" in address else f"http://{address}")
        slow = {"timeout_ms": LONG_MS, "connect_timeout_ms": CONNECT_MS}
        fields = {key: value for key, value in {**slow, **options}.items() if value is not None}
        driver = self.driver or await self.start()
        return await driver.ask("open", endpoints=urls, **fields)

    async def open(self, *endpoints: Node | str, **options: Any) -> None:
        (await self.try_open(*endpoints, **options)).unfailed()

    async def close_client(self) -> None:
        assert self.driver
        (await self.driver.ask("close")).unfailed()

    def send(self, n: int = 1, **fields: Any) -> Call:
        assert self.driver
        return self.driver.send("timestamps", n=n, **fields)

    async def call(self, n: int = 1, **fields: Any) -> Outcome:
        return await self.send(n, **fields).outcome()

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    async def settle(self) -> None:
        """Returns once the driver has read all that was sent to it, and has had time to begin it.
        A case must hold without that, too: here it only finds more."""
        assert self.driver
        zero = "0" * 32
        await asyncio.shield(self.driver.send("compare", a=zero, b=zero).answer)
        await asyncio.sleep(0.1)

    async def finish(self) -> None:
        """Checks what holds in all cases."""
        for node in self.nodes:
            expect(not node.complaints, "; ".join(node.complaints[:3]))
        if self.driver:
            await self.driver.end()

    async def close(self) -> None:
        if self.driver:
            await self.driver.kill()
        for node in self.nodes:
            await node.stop()
        for each in self._closing:
            each.close()
