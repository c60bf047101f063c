"""Calls that were made, and the check that what they got is unique and in order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from .case import Fixture
from .driver import Call, Outcome
from .failure import expect
from .messages import Timestamp

RANGES_MAX = 100_000


class Answered(NamedTuple):
    """A call with its times, as the suite sees them: from before it was sent to the driver until
    after its answer was read."""

    began: float
    returned: float
    first: Timestamp
    last: Timestamp


class History:
    """The calls that were answered. It checks itself as it grows, and drops what says no more."""

    def __init__(self) -> None:
        self.count = 0
        self.timestamps = 0
        self.longest = 0.0
        self._ranges: list[Answered] = []
        self._began: dict[int, float] = {}

    async def call(self, call: Call) -> Outcome:
        """Waits for the answer, and adds it if the call did not fail."""
        self._began[call.number] = call.began
        try:
            outcome = await call.outcome()
        finally:
            del self._began[call.number]
        if outcome.kind is None:
            answered = Answered(call.began, call.returned, outcome.first, outcome.last)
            self._ranges.append(answered)
            self.count += 1
            self.timestamps += outcome.count
            self.longest = max(self.longest, call.returned - call.began)
            if len(self._ranges) >= RANGES_MAX:
                self._compact()
        return outcome

    def _compact(self) -> None:
        """Of the calls that had returned before all open ones began, keeps the highest alone: all
        later ones have to be above that."""
        self.check()
        oldest = min(self._began.values(), default=float("inf"))
        past = [call for call in self._ranges if call.returned < oldest]
        if past:
            rest = [call for call in self._ranges if call.returned >= oldest]
            self._ranges = [max(past, key=lambda call: call.last), *rest]

    async def calls(
        self,
        fixture: Fixture,
        count: int,
        rng: random.Random | None = None,
        formats: Sequence[str] = (),
    ) -> None:
        """Makes calls one after the other. With random numbers, some are cancelled, some have short
        deadlines, and each has one of these formats; all others have to succeed."""
        assert fixture.driver
        for _ in range(count):
            choice = rng.randrange(16) if rng else 15
            fields: dict[str, Any] = {"timeout_ms": 20} if choice == 0 else {}
            if rng and formats:
                fields["format"] = rng.choice(formats)
            call = fixture.send(rng.randrange(1, 6) if rng else 1, **fields)
            if choice == 1:
                (await fixture.driver.ask("cancel", call=call.number)).unfailed()
            outcome = await self.call(call)
            if (choice, outcome.kind) not in [(0, "deadline"), (1, "cancelled")]:
                outcome.unfailed()

    def check(self) -> None:
        """Checks that no timestamp was given twice, and that each call got timestamps above those
        of all calls that had returned before it began."""
        by_first = sorted(self._ranges, key=lambda call: call.first)
        for one, other in zip(by_first, by_first[1:]):
            expect(one.last < other.first, f"given twice: {one} and {other}")
        by_return = sorted(self._ranges, key=lambda call: call.returned)
        highest: Answered | None = None
        returned = 0
        for call in sorted(self._ranges, key=lambda call: call.began):
            while by_return[returned].returned < call.began:
                before = by_return[returned]
                returned += 1
                if highest is None or before.last > highest.last:
                    highest = before
            in_order = highest is None or call.first > highest.last
            expect(in_order, f"out of order: {highest} returned before {call} began")
