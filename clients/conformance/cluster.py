"""Kills and stops the leaders of a cluster of three processes, while a driver makes calls.

    python3 -m conformance.cluster --esker PATH --driver CMD [--seconds N] [--tls] [--json]

No call may fail, and what the calls got has to be unique and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shlex
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from .driver import Driver
from .failure import CaseFailure, expect
from .history import History
from .node import HOST
from .waits import all_or_first_failure

NODES = 3
CALLERS = 50
# The deadline of a call: an election takes less than a second, also on a slow machine.
CALL_TIMEOUT_MS = 60_000
START_SECONDS = 120.0
ASK_SECONDS = 2.0
# A node is away for so long, and then the cluster is whole for so long.
AWAY_SECONDS = 1.0
WHOLE_SECONDS = 1.5


class Cluster:
    """Three processes of `esker serve`, with their data in one folder."""

    def __init__(self, esker: str, folder: Path, with_tls: bool) -> None:
        self._esker, self._folder, self._with_tls = esker, folder, with_tls
        ports = _free_ports(2 * NODES)
        self.addresses = [f"{HOST}:{port}" for port in ports[:NODES]]
        self._raft_addresses = [f"{HOST}:{port}" for port in ports[NODES:]]
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def start(self) -> None:
        if self._with_tls:
            nodes = ",".join(f"{at + 1}={HOST}" for at in range(NODES))
            words = ["cluster", "certs", str(self._folder / "certs"), "--nodes", nodes]
            quiet = asyncio.subprocess.DEVNULL
            made = await asyncio.create_subprocess_exec(self._esker, *words, stdout=quiet)
            expect(await made.wait() == 0, "esker cluster certs failed")
        for at in range(NODES):
            await self.start_node(at)
        await asyncio.wait_for(self.leader(), START_SECONDS)

    async def start_node(self, at: int) -> None:
        words = [
            "serve", "--cluster", ",".join(self.addresses), "--listen", self.addresses[at],
            "--raft-listen", self._raft_addresses[at], "--data", str(self._folder / f"data-{at}"),
        ]  # fmt: skip
        if self._with_tls:
            certs = self._folder / "certs"
            words += ["--cert", str(certs / f"node-{at + 1}/server.pem")]
            words += ["--key", str(certs / f"node-{at + 1}/server-key.pem")]
            words += ["--plain-http"]  # For this program, which asks who leads.
        with (self._folder / f"node-{at}.log").open("ab") as log:
            self._processes[at] = await asyncio.create_subprocess_exec(
                self._esker, *words, stdout=log, stderr=log
            )

    def client_options(self) -> dict[str, Any]:
        scheme = "https" if self._with_tls else "http"
        options: dict[str, Any] = {"endpoints": [f"{scheme}://{each}" for each in self.addresses]}
        if self._with_tls:
            options["ca"] = str(self._folder / "certs/ca.pem")
        return options

    async def leader(self) -> int:
        """Waits until a node says that it leads."""
        while True:
            for at, address in enumerate(self.addresses):
                with contextlib.suppress(OSError, ValueError, EOFError, asyncio.TimeoutError):
                    status = await asyncio.wait_for(_status(address), ASK_SECONDS)
                    if status.get("role") == "leader":
                        return at
            await asyncio.sleep(0.02)

    async def kill(self, at: int) -> None:
        self._processes[at].kill()
        await self._processes[at].wait()
        await asyncio.sleep(AWAY_SECONDS)
        await self.start_node(at)

    async def stop(self, at: int) -> None:
        self._processes[at].send_signal(signal.SIGSTOP)
        await asyncio.sleep(AWAY_SECONDS)
        self._processes[at].send_signal(signal.SIGCONT)

    async def end(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def logs(self) -> str:
        texts = (each.read_text(errors="replace") for each in self._folder.glob("node-*.log"))
        return "\n".join(text[-1000:] for text in texts)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind((HOST, 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def _status(address: str) -> dict[str, Any]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET /status HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        found: dict[str, Any] = json.loads(await reader.readexactly(length))
        return found
    finally:
        writer.close()


async def _call(driver: Driver, history: History, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end, at = loop.time() + seconds, 0
    while loop.time() < end:
        at += 1
        call = driver.send("timestamps", n=1 + at % 5, timeout_ms=CALL_TIMEOUT_MS)
        (await history.call(call)).unfailed()


async def _disturb(cluster: Cluster, counts: dict[str, int], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        leader = await cluster.leader()
        if counts["kills"] <= counts["stops"]:
            await cluster.kill(leader)
            counts["kills"] += 1
        else:
            await cluster.stop(leader)
            counts["stops"] += 1
        await asyncio.sleep(WHOLE_SECONDS)


async def _run(options: argparse.Namespace) -> int:
    counts = {"kills": 0, "stops": 0}
    history = History()
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(options.esker, Path(folder), options.tls)
        driver = await Driver.start(shlex.split(options.driver))
        failure = ""
        try:
            await cluster.start()
            (await driver.ask("open", **cluster.client_options())).unfailed()
            calls = (_call(driver, history, options.seconds) for _ in range(options.callers))
            await all_or_first_failure(_disturb(cluster, counts, options.seconds), *calls)
            (await driver.ask("close")).unfailed()
            await driver.end()
            history.check()
        except (CaseFailure, asyncio.TimeoutError) as error:
            failure = f"{error or 'the cluster does not start'}\n{driver.errors()}{cluster.logs()}"
        finally:
            await driver.kill()
            await cluster.end()
    report = {
        **counts,
        "calls": history.count,
        "timestamps": history.timestamps,
        "longest_call_ms": round(1000 * history.longest),
        "failure": failure,
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(", ".join(f"{count} {name}" for name, count in report.items() if name != "failure"))
        print(failure or "unique and in order, and no call failed")
    return 1 if failure else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance.cluster", description=__doc__)
    parser.add_argument("--esker", required=True, metavar="PATH", help="the program")
    parser.add_argument("--driver", required=True, metavar="CMD", help="the command of the driver")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long (%(default)s)")
    parser.add_argument("--callers", type=int, default=CALLERS, help="at a time (%(default)s)")
    parser.add_argument("--tls", action="store_true", help="calls go over TLS")
    parser.add_argument("--json", action="store_true", help="print one object")
    return asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
