"""The process of a driver, and the calls that a case makes through it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from .failure import CaseFailure, CaseSkip, expect
from .messages import Timestamp, from_number

LINE_BYTES_MAX = 1 << 20
STDERR_BYTES_MAX = 8192
END_TIMEOUT = 60.0
KINDS = {
    "deadline", "cancelled", "queue_full", "invalid", "refused", "went_backwards", "denied",
    "unknown", "closed", "unsupported",
}  # fmt: skip


def unpack(text: str) -> Timestamp:
    """The epoch and the index of a timestamp: hexadecimal digits, or the decimal ones of a
    timestamp of 64 bits."""
    if len(text) == 32:
        return int(text[:16], 16), int(text[16:], 16)
    if not text.isdecimal() or int(text) >= 1 << 64:
        raise CaseFailure(f"a timestamp has 32 hexadecimal digits, or 64 bits: {text!r}")
    return from_number(int(text))


class Outcome:
    """The answer of a driver to one request."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        error = answer.get("error") or {}
        self.kind: str | None = error.get("kind")
        self.cause: str | None = error.get("cause")
        self.message: str = error.get("message", "")
        if self.kind is not None:
            expect(self.kind in KINDS, f"an unknown kind of error: {self.kind!r}")

    @property
    def count(self) -> int:
        self.unfailed()
        return int(self.answer["count"])

    @property
    def first(self) -> Timestamp:
        self.unfailed()
        return unpack(self.answer["first"])

    @property
    def last(self) -> Timestamp:
        self.unfailed()
        epoch, index = unpack(self.answer["last"])
        first_epoch, first_index = self.first
        fits = epoch == first_epoch and index - first_index + 1 == self.count
        expect(fits, f"first, last and count do not fit: {self.answer}")
        return epoch, index

    def unfailed(self) -> Outcome:
        if self.kind is not None:
            raise CaseFailure(f"the call failed: {self.kind} ({self.cause}): {self.message}")
        return self

    def failed(self, kind: str, cause: str | None = None) -> Outcome:
        expect(self.kind == kind, f"expected the error {kind!r}: {self.answer}")
        if cause is not None:
            expect(self.cause == cause, f"expected the cause {cause!r}: {self.answer}")
        return self


class Call:
    """A request to the driver that may not have been answered."""

    def __init__(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.began = loop.time()
        self.returned = 0.0
        self.answer: asyncio.Future[dict[str, Any]] = loop.create_future()

    def is_done(self) -> bool:
        return self.answer.done()

    async def outcome(self) -> Outcome:
        outcome = Outcome(await asyncio.shield(self.answer))
        if outcome.kind == "unsupported":
            raise CaseSkip(outcome.message or "unsupported")
        return outcome

    async def elapsed(self) -> float:
        await asyncio.shield(self.answer)
        return self.returned - self.began


class Driver:
    """A process of the driver."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._calls: dict[int, Call] = {}
        self._next = 1
        self._stderr = bytearray()
        self._readers: list[asyncio.Task[None]] = [
            asyncio.ensure_future(self._read_answers()),
            asyncio.ensure_future(self._read_errors()),
        ]

    @classmethod
    async def start(cls, command: list[str]) -> Driver:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, limit=LINE_BYTES_MAX
        )
        return cls(process)

    def send(self, op: str, **fields: Any) -> Call:
        call = Call(self._next)
        self._next += 1
        self._calls[call.number] = call
        assert self._process.stdin
        line = json.dumps({"id": call.number, "op": op, **fields})
        self._process.stdin.write(line.encode() + b"\n")
        return call

    async def ask(self, op: str, **fields: Any) -> Outcome:
        return await self.send(op, **fields).outcome()

    async def _read_answers(self) -> None:
        assert self._process.stdout
        error = "the driver ended"
        try:
            while line := await self._process.stdout.readline():
                answer = json.loads(line)
                call = self._calls.pop(answer["id"], None)
                if call is None:
                    error = f"an answer to no request: {answer}"
                    return
                call.returned = asyncio.get_running_loop().time()
                if not call.answer.done():
                    call.answer.set_result(answer)
        except (ValueError, KeyError, TypeError) as problem:
            error = f"not a line of the protocol: {problem}"
        finally:
            for call in self._calls.values():
                if not call.answer.done():
                    call.answer.set_exception(CaseFailure(error))
                    call.answer.exception()  # A case may wait for none of them.

    async def _read_errors(self) -> None:
        assert self._process.stderr
        while chunk := await self._process.stderr.read(4096):
            self._stderr = (self._stderr + chunk)[-STDERR_BYTES_MAX:]

    def errors(self) -> str:
        """The end of what it wrote to standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def end(self) -> None:
        """Closes its standard input, and waits until it ends by itself."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            status = await asyncio.wait_for(self._process.wait(), END_TIMEOUT)
        except asyncio.TimeoutError:
            raise CaseFailure("the driver does not end with its standard input") from None
        expect(status == 0, f"the driver ended with status {status}")

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
