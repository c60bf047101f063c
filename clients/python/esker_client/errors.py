"""Errors of calls. Invalid arguments, and files that cannot be used, are a `ValueError`."""

from __future__ import annotations


class AttemptError(Exception):
    """A failure of one node. `kind` is `connection`, `tls`, `no_answer`, `not_a_node`,
    `other_cluster`, `not_leader`, `overloaded`, `status` or `malformed`."""

    def __init__(self, address: str, kind: str, message: object) -> None:
        super().__init__(f"{address}: {message}")
        self.address, self.kind = address, kind


class EskerError(Exception):
    """The base of all errors of calls. `last` is the last failure of a node, if there was one."""

    def __init__(self, message: str, last: AttemptError | None = None) -> None:
        super().__init__(f"{message}: {last}" if last else message)
        self.last = last


class DeadlineError(EskerError, TimeoutError):
    """There was no answer in time."""


class QueueFullError(EskerError):
    """Too many callers wait. Nothing was sent."""


class RefusedError(EskerError):
    """The node refuses the request for good: a 400."""


class WentBackwardsError(EskerError):
    """A timestamp is not above one before it: another cluster, or one that lost its data."""


class DeniedError(EskerError):
    """The change was not made: it needs a token (401), or no token helps (403)."""


class UnknownOutcomeError(EskerError):
    """The change may have been made: look before you repeat it."""


class ClosedError(EskerError):
    """The client is closed."""
