"""Runs the cases that find each mistake, and checks that they do."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from .. import certificates
from ..__main__ import ignore_lost_connections, run_case
from ..case import CASES
from ..certificates import Certificates
from . import MISTAKES, go

DRIVER = Path(__file__).with_name("driver.py")
JOBS = 8
# The cases fail after this time where the mistake keeps a call from ending.
PATIENCE = 5.0


async def _command(client: str, mistake: str, folder: Path) -> list[str]:
    if client == "go":
        return await go.build(mistake, folder)
    return [sys.executable, str(DRIVER), mistake]


def _has(client: str, mistake: str) -> bool:
    if client == "go":
        return mistake in go.EDITS
    return f"\ndef {mistake}()" in DRIVER.read_text()


async def _run(only: str, client: str) -> int:
    cases = {case.name: case for case in CASES}
    places = asyncio.Semaphore(JOBS)
    missed: list[str] = []
    ignore_lost_connections()
    with tempfile.TemporaryDirectory() as folder:
        made = Certificates(Path(folder)) if certificates.is_available() else None

        async def run(mistake: str, name: str) -> None:
            async with places:
                done = await run_case(cases[name], commands[mistake], made, PATIENCE)
            shown = {"failed": "found", "passed": "MISSED"}.get(done["result"], done["result"])
            print(f"{shown:7} {done['seconds']:6.2f} s  {mistake}: {name}", flush=True)
            print("    " + done["why"].replace("\n", "\n    "), flush=True)
            if done["result"] == "passed":
                missed.append(f"{mistake}: {name}")

        names = [name for name in MISTAKES if only in name and _has(client, name)]
        chosen = {name: MISTAKES[name] for name in names}
        commands = {name: await _command(client, name, Path(folder)) for name in chosen}
        pairs = [(mistake, case) for mistake in chosen for case in chosen[mistake]]
        await asyncio.gather(*(run(*pair) for pair in pairs))
    print(f"{len(chosen)} mistakes, not found: {', '.join(missed) or 'none'}")
    return 1 if missed or not chosen else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance.mistakes", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="mistakes that contain it")
    parser.add_argument("--client", choices=["python", "go"], default="python")
    options = parser.parse_args()
    return asyncio.run(_run(options.only, options.client))


if __name__ == "__main__":
    sys.exit(main())
