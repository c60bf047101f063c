// The driver of the conformance suite for clients: see ../../conformance/README.md.
import { createInterface } from "node:readline";
import * as esker from "../src/index.js";

/** @typedef {Record<string, any>} Json */

/** @type {esker.Client | undefined} */
let client;
/** What calls ask for that name no format. */
let format = "range";
/** The calls that wait, by the ids of their requests. @type {Map<number, AbortController>} */
const calls = new Map();

/** @type {[Function, string][]} */
const KINDS = [
  [esker.DeadlineError, "deadline"],
  [esker.BusyError, "queue_full"],
  [esker.OptionError, "invalid"],
  [esker.RefusedError, "refused"],
  [esker.NotMonotonicError, "went_backwards"],
  [esker.DeniedError, "denied"],
  [esker.UnknownOutcomeError, "unknown"],
  [esker.ClosedError, "closed"],
];

/** @param {any} error */
function describe(error) {
  const kind = KINDS.find(([type]) => error instanceof type)?.[1];
  const cause = error.cause?.kind?.replaceAll("-", "_");
  const message = error.cause ? `${error.message}: ${error.cause.message}` : error.message;
  return { kind: kind ?? (error.name === "AbortError" ? "cancelled" : "bug"), cause, message };
}

/** @param {string} hex */
const parse = (hex) => esker.Timestamp.fromBytes(Buffer.from(hex, "hex"));

/** @param {esker.Client} client @param {Json} request */
async function bench(client, { callers, seconds }) {
  const start = performance.now();
  let timestamps = 0;
  const one = () => (format === "u64" ? client.timestampU64() : client.timestamp());
  const caller = async () => {
    for (; performance.now() - start < seconds * 1000; timestamps++) await one();
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return { timestamps, seconds: (performance.now() - start) / 1000 };
}

/** @type {Record<string, (request: Json, signal: AbortSignal) => Json | Promise<Json>>} */
const operations = {
  open(request) {
    client = new esker.Client({
      endpoints: request.endpoints,
      caFile: request.ca,
      certFile: request.client_cert,
      keyFile: request.client_key,
      token: request.token,
      cluster: request.cluster,
      format: request.format === "u64" ? undefined : request.format,
      timeoutMs: request.timeout_ms,
      connectTimeoutMs: request.connect_timeout_ms,
      queue: request.queue,
      maxTimestamps: request.max_timestamps,
    });
    format = request.format ?? "range";
    return {};
  },
  async timestamps(request, signal) {
    const [n, options] = [request.n, { timeoutMs: request.timeout_ms, signal }];
    const isU64 = (request.format ?? format) === "u64";
    const range = await (isU64 ? open().timestampsU64(n, options) : open().timestamps(n, options));
    return { first: `${range.first}`, last: `${range.last}`, count: range.count };
  },
  cancel({ call }) {
    calls.get(call)?.abort();
    return {};
  },
  compare(request) {
    const [a, b] = [parse(request.a), parse(request.b)];
    const parts = ({ epoch, index }) => ({ epoch: `${epoch}`, index: `${index}` });
    return { order: a.compare(b), a: parts(a), b: parts(b) };
  },
  change: ({ path, body, timeout_ms: timeoutMs }, signal) =>
    open().change(path, body, { timeoutMs, signal }),
  bench: (request) => bench(open(), request),
  close() {
    open().close();
    return {};
  },
};

function open() {
  if (client === undefined) throw new esker.ClosedError("no client is open");
  return client;
}

/** @param {Json} request @returns {Promise<Json>} */
async function run(request) {
  const operation = operations[request.op];
  if (operation === undefined) return { error: { kind: "unsupported", message: request.op } };
  const call = new AbortController();
  calls.set(request.id, call);
  try {
    return await operation(request, call.signal);
  } catch (error) {
    return { error: describe(error) };
  } finally {
    calls.delete(request.id);
  }
}

const lines = createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const request = JSON.parse(line);
  const answer = await run(request);
  process.stdout.write(`${JSON.stringify({ id: request.id, ...answer })}\n`);
});
lines.on("close", () => process.exit(0));
