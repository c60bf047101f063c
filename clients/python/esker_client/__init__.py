"""The client of Esker's timestamp service. See README.md for its use."""

from .aio import AsyncClient
from .errors import (
    AttemptError, ClosedError, DeadlineError, DeniedError, EskerError, QueueFullError, RefusedError,
    UnknownOutcomeError, WentBackwardsError)  # fmt: skip
from .protocol import Answer, Timestamp, TimestampRange
from .sync import Client

__all__ = [
    "Answer", "AsyncClient", "AttemptError", "Client", "ClosedError", "DeadlineError",
    "DeniedError", "EskerError", "QueueFullError", "RefusedError", "Timestamp", "TimestampRange",
    "UnknownOutcomeError", "WentBackwardsError"]  # fmt: skip
