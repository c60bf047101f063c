"""Waiting for something to be seen, without a window of time in which it has to happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from .case import Fixture
from .driver import Outcome
from .failure import expect

SHORT_MS = 300
# What clocks and timers of two processes may differ by.
EARLY_SECONDS = 0.02
# A client that keeps its deadline of some 100 ms returns long before, also on a slow machine.
LATE_SECONDS = 60.0


async def all_or_first_failure(*work: Awaitable[object]) -> None:
    """Waits for all of this, and ends all of it with the first failure."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def until_cause(fixture: Fixture, cause: str, timeout_ms: int = SHORT_MS) -> Outcome:
    """Calls until the last failure before the deadline is `cause`: on a slow machine no attempt
    may have ended by the first deadline."""
    while True:
        outcome = (await fixture.call(timeout_ms=timeout_ms)).failed("deadline")
        if outcome.cause == cause:
            return outcome


async def served(fixture: Fixture, timeout_ms: int) -> Outcome:
    """Calls until a call is answered."""
    while True:
        outcome = await fixture.call(timeout_ms=timeout_ms)
        if outcome.kind is None:
            return outcome
        outcome.failed("deadline")


async def check_deadline(fixture: Fixture, milliseconds: int, **fields: int) -> Outcome:
    """Makes a call that has to end by this deadline, and not much earlier."""
    call = fixture.send(**fields)
    outcome = (await call.outcome()).failed("deadline")
    took = await call.elapsed()
    expect(took >= milliseconds / 1000 - EARLY_SECONDS, f"the call ended after {took:.3f} s")
    expect(took < LATE_SECONDS, f"the call ended after {took:.1f} s")
    return outcome
