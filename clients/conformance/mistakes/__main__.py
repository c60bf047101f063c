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
from . import MISTAKES

DRIVER = Path(__file__).with_name("driver.py")
JOBS = 8
# The cases fail after this time where the mistake keeps a call from ending.
PATIENCE = 5.0


async def _run(only: str) -> int:
    cases = {case.name: case for case in CASES}
    places = asyncio.Semaphore(JOBS)
    missed: list[str] = []
    ignore_lost_connections()
    with tempfile.TemporaryDirectory() as folder:
        made = Certificates(Path(folder)) if certificates.is_available() else None

        async def run(mistake: str, name: str) -> None:
            command = [sys.executable, str(DRIVER), mistake]
            async with places:
                done = await run_case(cases[name], command, made, PATIENCE)
            shown = {"failed": "found", "passed": "MISSED"}.get(done["result"], done["result"])
            print(f"{shown:7} {done['seconds']:6.2f} s  {mistake}: {name}", flush=True)
            print("    " + done["why"].replace("\n", "\n    "), flush=True)
            if done["result"] == "passed":
                missed.append(f"{mistake}: {name}")

        chosen = {name: found_by for name, found_by in MISTAKES.items() if only in name}
        pairs = [(mistake, case) for mistake in chosen for case in chosen[mistake]]
        await asyncio.gather(*(run(*pair) for pair in pairs))
    print(f"{len(chosen)} mistakes, not found: {', '.join(missed) or 'none'}")
    return 1 if missed or not chosen else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance.mistakes", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="mistakes that contain it")
    return asyncio.run(_run(parser.parse_args().only))


if __name__ == "__main__":
    sys.exit(main())
