"""Runs the suite against a driver: see README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import cases, certificates
from .case import CASES, Case, Fixture
from .certificates import Certificates
from .failure import CaseFailure, CaseSkip

assert cases  # Importing them registers them.

USAGE_STATUS = 2
JOBS = 8
# Only a client that fails waits for so long.
PATIENCE = 120.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--driver", metavar="CMD", help="the command of the client's driver")
    parser.add_argument(
        "--only", metavar="TEXT", action="append", help="cases whose names contain it; repeat it"
    )
    parser.add_argument("--json", action="store_true", help="print one object for each case")
    parser.add_argument("--list", action="store_true", help="print the cases, and run none")
    parser.add_argument("--jobs", type=int, default=JOBS, help="cases at a time (%(default)s)")
    return parser.parse_args()


async def run_case(
    case: Case, command: list[str], made: Certificates | None, patience: float = PATIENCE
) -> dict[str, Any]:
    """Runs a case. It fails after `patience` at the latest."""
    begun = asyncio.get_running_loop().time()
    with tempfile.TemporaryDirectory() as folder:
        fixture = Fixture(command, made, Path(folder))
        result, why = "passed", ""
        try:
            await asyncio.wait_for(_run_and_check(case, fixture), patience)
        except CaseSkip as skip:
            result, why = "skipped", str(skip)
        except CaseFailure as failure:
            result, why = "failed", str(failure)
        except asyncio.TimeoutError:
            result, why = "failed", f"not done after {patience:.0f} s"
        finally:
            await fixture.close()
        if result == "failed" and fixture.driver and fixture.driver.errors():
            why += f"\nstandard error of the driver:\n{fixture.driver.errors()}"
    seconds = round(asyncio.get_running_loop().time() - begun, 3)
    return {
        "case": case.name, "section": case.section, "requirement": case.requirement,
        "result": result, "why": why, "seconds": seconds,
    }  # fmt: skip


def ignore_lost_connections() -> None:
    """Connections that end in the middle of something are what the suite is about."""
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


async def _run_and_check(case: Case, fixture: Fixture) -> None:
    await case.run(fixture)
    await fixture.finish()


async def _run(chosen: list[Case], options: argparse.Namespace) -> int:
    command = shlex.split(options.driver)
    ignore_lost_connections()
    places = asyncio.Semaphore(options.jobs)
    results: dict[str, int] = {"passed": 0, "failed": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as folder:
        made = None
        if any("tls" in case.run.__module__ for case in chosen) and certificates.is_available():
            made = Certificates(Path(folder))

        async def run(case: Case) -> None:
            async with places:
                done = await run_case(case, command, made)
            results[done["result"]] += 1
            _report(done, options.json)

        await asyncio.gather(*(run(case) for case in chosen))
    if not options.json:
        print(", ".join(f"{count} {result}" for result, count in results.items()))
    return 1 if results["failed"] else 0


def _report(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(done), flush=True)
        return
    print(f"{done['result']:7} {done['seconds']:6.2f} s  {done['case']}", flush=True)
    if done["result"] == "skipped":
        print(f"    {done['why']}", flush=True)
    if done["result"] == "failed":
        print(f"    {done['section']}: {done['requirement']}", flush=True)
        print("    " + done["why"].replace("\n", "\n    "), flush=True)


def main() -> int:
    options = _arguments()
    only = options.only or [""]
    chosen = [case for case in CASES if any(text in case.name for text in only)]
    if options.list:
        for case in chosen:
            print(f"{case.name} ({case.section})\n    {case.requirement}")
        return 0
    if not options.driver or not chosen or options.jobs < 1:
        print("conformance: give --driver CMD, and cases that there are (--list)", file=sys.stderr)
        return USAGE_STATUS
    try:
        return asyncio.run(_run(chosen, options))
    except OSError as error:
        print(f"conformance: the driver cannot be started: {error}", file=sys.stderr)
        return USAGE_STATUS


if __name__ == "__main__":
    sys.exit(main())
