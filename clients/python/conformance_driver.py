"""The driver of the Python client for the conformance suite. With `--threads` it drives `Client`,
otherwise `AsyncClient`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from concurrent.futures import Future
from typing import Any

import esker_client
from esker_client import AsyncClient, Client, Timestamp

KINDS = {
    esker_client.DeadlineError: "deadline", esker_client.QueueFullError: "queue_full",
    esker_client.RefusedError: "refused", esker_client.WentBackwardsError: "went_backwards",
    esker_client.DeniedError: "denied", esker_client.UnknownOutcomeError: "unknown",
    esker_client.ClosedError: "closed", ValueError: "invalid",
    asyncio.CancelledError: "cancelled",
}  # fmt: skip


def error_of(error: BaseException) -> dict[str, Any]:
    last = getattr(error, "last", None)
    found = {"kind": KINDS.get(type(error), repr(error)), "message": str(error)}
    return {"error": {**found, "cause": last.kind} if last else found}


def seconds(request: dict[str, Any]) -> float | None:
    return request["timeout_ms"] / 1000 if "timeout_ms" in request else None


class Driver:
    def __init__(self, with_threads: bool) -> None:
        self._with_threads = with_threads
        self._client: Any = None
        self._format = "range"
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 20)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            request = json.loads(line)
            task = asyncio.create_task(self._answer(request))
            self._calls[request["id"]] = task
            await asyncio.sleep(0)  # The call begins.
        for task in self._calls.values():
            task.cancel()

    async def _answer(self, request: dict[str, Any]) -> None:
        try:
            operation = getattr(self, request["op"], None)
            if operation is None:
                answer: dict[str, Any] = {"error": {"kind": "unsupported", "message": "unknown"}}
            else:
                answer = await operation(request)
        except (Exception, asyncio.CancelledError) as error:
            answer = error_of(error)
        del self._calls[request["id"]]
        sys.stdout.write(json.dumps({"id": request["id"], **answer}) + "\n")
        sys.stdout.flush()

    async def open(self, request: dict[str, Any]) -> dict[str, Any]:
        names = {
            "ca": "ca_file", "token": "token", "cluster": "cluster", "queue": "queue",
            "max_timestamps": "max_timestamps",
        }  # fmt: skip
        options = {names[key]: value for key, value in request.items() if key in names}
        if "client_cert" in request:
            options["client_certificate"] = (request["client_cert"], request["client_key"])
        self._format = request.get("format", "range")
        options["as_range"] = self._format != "list"
        for key in ("timeout", "connect_timeout"):
            if f"{key}_ms" in request:
                options[key] = request[f"{key}_ms"] / 1000
        kind = Client if self._with_threads else AsyncClient
        self._client = kind(request["endpoints"], **options)
        return {}

    async def timestamps(self, request: dict[str, Any]) -> dict[str, Any]:
        is_u64 = request.get("format", self._format) == "u64"
        n, timeout, client = request["n"], seconds(request), self._client
        if self._with_threads:
            submit = client.submit_u64 if is_u64 else client.submit
            future: Future[Any] = submit(n, timeout=timeout)
            found = await asyncio.wrap_future(future)
        else:
            ask = client.timestamps_u64 if is_u64 else client.timestamps
            found = await ask(n, timeout=timeout)
        if is_u64:
            return {"first": str(found[0]), "last": str(found[-1]), "count": len(found)}
        return {"first": str(found.first), "last": str(found.last), "count": found.count}

    async def change(self, request: dict[str, Any]) -> dict[str, Any]:
        arguments = (request["path"], request["body"].encode())
        if self._with_threads:
            work = lambda: self._client.change(*arguments, timeout=seconds(request))  # noqa: E731
            answer = await asyncio.get_running_loop().run_in_executor(None, work)
        else:
            answer = await self._client.change(*arguments, timeout=seconds(request))
        return {"status": answer.status, "body": answer.body.decode()}

    async def cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        call = self._calls.get(request["call"])
        if call:
            call.cancel()
        return {}

    async def compare(self, request: dict[str, Any]) -> dict[str, Any]:
        a, b = (Timestamp.from_bytes(bytes.fromhex(request[key])) for key in "ab")
        parts = [{"epoch": str(each.epoch), "index": str(each.index)} for each in (a, b)]
        return {"order": (a > b) - (a < b), "a": parts[0], "b": parts[1]}

    async def bench(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._with_threads:
            return {"error": {"kind": "unsupported", "message": "bench with threads"}}
        begun = time.monotonic()
        end, counts = begun + request["seconds"], []

        is_u64 = self._format == "u64"
        one = self._client.timestamp_u64 if is_u64 else self._client.timestamp

        async def caller() -> None:
            last: Any = 0 if is_u64 else Timestamp(0, 0)
            count = 0
            while time.monotonic() < end:
                issued = await one()
                assert issued > last
                last, count = issued, count + 1
            counts.append(count)

        await asyncio.gather(*(caller() for _ in range(request["callers"])))
        return {"timestamps": sum(counts), "seconds": time.monotonic() - begun}

    async def close(self, _: dict[str, Any]) -> dict[str, Any]:
        if self._with_threads:
            await asyncio.get_running_loop().run_in_executor(None, self._client.close)
        else:
            await self._client.close()
        return {}


if __name__ == "__main__":
    asyncio.run(Driver("--threads" in sys.argv[1:]).run())
