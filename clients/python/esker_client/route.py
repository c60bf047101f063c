"""The order in which nodes are asked, and the waits between attempts."""

from __future__ import annotations

import random

FIRST_DELAY, DELAY_MAX, HINTS_MAX = 0.004, 0.1, 2


class Route:
    """First the node that was named as leader, then the known ones in turn."""

    def __init__(self, endpoints: list[str]) -> None:
        self.known = self._endpoints = endpoints
        self.named: str | None = None
        self._failed: str | None = None
        self._turn = random.randrange(len(endpoints))
        self._failures = self._hints = 0

    def set_members(self, members: list[str]) -> None:
        self.known = list(dict.fromkeys(self._endpoints + members))

    def next(self) -> str:
        """Returns the node to ask: not the one that has just failed, if there are others."""
        address, self.named = self.named, None
        while address is None or (address == self._failed and len(self.known) > 1):
            address = self.known[self._turn % len(self.known)]
            self._turn += 1
        return address

    def follow(self, by: str, leader: str | None) -> None:
        """Asks `leader` next, which the node `by` names, unless it has just failed. Without one the
        node has failed."""
        self._hints += leader is not None
        if leader in (None, by, self._failed):
            self.failed(by)
        else:
            self.named = leader
            self._failures += self._hints > HINTS_MAX

    def follow_list(self, leader: str) -> bool:
        """Asks `leader` next, which a list of members names. Returns whether it does."""
        if leader == self._failed or self._hints >= HINTS_MAX:
            return False
        self.follow("", leader)
        return True

    def failed(self, address: str) -> None:
        self._failed, self._failures = address, self._failures + 1

    def succeeded(self) -> None:
        self._failed, self._failures, self._hints = None, 0, 0

    def delay(self) -> float:
        """Returns the wait before the next attempt: a random part of one that doubles."""
        longest = min(FIRST_DELAY * 2 ** min(self._failures - 1, 16), DELAY_MAX)
        return longest * random.uniform(0.5, 1) if self._failures else 0.0
