"""Calls that were made, and the check that what they got is unique and in order."""

from __future__ import annotations

import random
from typing import List, NamedTuple, Optional

from .case import Fixture
from .driver import Call, Outcome
from .failure import expect
from .messages import Timestamp


class Answered(NamedTuple):
    """A call with its times, as the suite sees them: from before it was sent to the driver until
    after its answer was read."""

    began: float
    returned: float
    first: Timestamp
    last: Timestamp


class History:
    def __init__(self) -> None:
        self.ranges: List[Answered] = []

    def add(self, call: Call, outcome: Outcome) -> None:
        self.ranges.append(Answered(call.began, call.returned, outcome.first, outcome.last))

    async def calls(
        self, fixture: Fixture, count: int, rng: Optional[random.Random] = None
    ) -> None:
        """Makes calls one after the other. With random numbers, some are cancelled, and some have
        short deadlines; all others have to succeed."""
        assert fixture.driver
        for _ in range(count):
            choice = rng.randrange(16) if rng else 15
            fields = {"timeout_ms": 20} if choice == 0 else {}
            call = fixture.send(rng.randrange(1, 6) if rng else 1, **fields)
            if choice == 1:
                (await fixture.driver.ask("cancel", call=call.number)).unfailed()
            outcome = await call.outcome()
            if (choice, outcome.kind) not in [(0, "deadline"), (1, "cancelled")]:
                self.add(call, outcome.unfailed())

    def check(self) -> None:
        """Checks that no timestamp was given twice, and that each call got timestamps above those
        of all calls that had returned before it began."""
        by_first = sorted(self.ranges, key=lambda call: call.first)
        for one, other in zip(by_first, by_first[1:]):
            expect(one.last < other.first, f"given twice: {one} and {other}")
        by_return = sorted(self.ranges, key=lambda call: call.returned)
        highest: Optional[Answered] = None
        returned = 0
        for call in sorted(self.ranges, key=lambda call: call.began):
            while by_return[returned].returned < call.began:
                before = by_return[returned]
                returned += 1
                if highest is None or before.last > highest.last:
                    highest = before
            in_order = highest is None or call.first > highest.last
            expect(in_order, f"out of order: {highest} returned before {call} began")
