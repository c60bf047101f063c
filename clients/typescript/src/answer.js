import { parseAddress } from "./address.js";
import { AttemptError, DeniedError, RefusedError, UnknownOutcomeError } from "./errors.js";
import { Timestamp, TimestampRange } from "./timestamp.js";

/** @import { IncomingHttpHeaders } from "node:http2" */
/** @import { AttemptErrorKind } from "./errors.js" */
/** @typedef {{ status: number, headers: IncomingHttpHeaders, body: Buffer }} Answer */

const RETRY_AFTER_MS_MAX = 1000;
const TEXT_BYTES_MAX = 200;
/** @type {Record<number, AttemptErrorKind>} */
const KINDS = { 409: "not-leader", 503: "overloaded" };

/** Returns the failure that an answer is. @param {string} address @param {Answer} answer */
export function toFailure(address, { status, headers, body }) {
  const start = String(body.subarray(0, TEXT_BYTES_MAX)).trim();
  const why = `status ${status}: ${start.replace(/\p{Cc}/gu, " ")}`;
  const seconds = /^\d+$/.exec(headers["retry-after"] ?? "")?.[0] ?? 0;
  const retryAfterMs = Math.min(Number(seconds) * 1000, RETRY_AFTER_MS_MAX);
  const leader = [307, 409].includes(status) ? parseAddress(headers["esker-leader"]) : undefined;
  const kind = KINDS[status] ?? (leader ? "not-leader" : "status");
  return new AttemptError(address, kind, why, { leader, retryAfterMs });
}

/**
 * Returns the timestamps of an answer to a request for `count`.
 * @param {string} address @param {Answer} answer @param {number} count
 * @param {"range" | "list"} format
 * @throws {AttemptError | RefusedError}
 */
export function parseTimestamps(address, answer, count, format) {
  const { status, body } = answer;
  if (status === 400) throw new RefusedError("the request is refused", toFailure(address, answer));
  if (status !== 200) throw toFailure(address, answer);
  const malformed = () => new AttemptError(address, "malformed", "the answer is malformed");
  if (body.length !== (format === "range" ? 24 : 16 * count)) throw malformed();
  const range = new TimestampRange(Timestamp.fromBytes(body.subarray(0, 16)), count);
  if (range.first.index === 0n || range.last.index >= 2n ** 64n) throw malformed();
  if (format === "range" && body.readBigUInt64BE(16) !== BigInt(count)) throw malformed();
  if (format === "list" && body.toString("hex") !== [...range].join("")) throw malformed();
  return range;
}

/**
 * Returns the answer to a change. An `AttemptError` says that nothing was done.
 * @param {string} address @param {Answer} answer
 * @throws {AttemptError | DeniedError | UnknownOutcomeError}
 */
export function parseChange(address, answer) {
  const { status, body } = answer;
  const failure = toFailure(address, answer);
  if (status === 401 || status === 403) throw new DeniedError("the change is denied", failure);
  if (["not-leader", "overloaded"].includes(failure.kind)) throw failure;
  if (status >= 500) throw new UnknownOutcomeError("the change may have been made", failure);
  return { status, body: body.toString() };
}
