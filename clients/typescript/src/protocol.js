import { isIPv4, isIPv6 } from "node:net";
import * as errors from "./errors.js";
import { Timestamp, TimestampRange, U64_INDEX_MAX, U64_MAX } from "./timestamp.js";

/** @import { IncomingHttpHeaders } from "node:http2" */
/** @import { AttemptErrorKind } from "./errors.js" */
/** @typedef {{ status: number, headers: IncomingHttpHeaders, body: Buffer }} Answer */

/** What a request says of the form of its answer. A list has 16 bytes for each timestamp. */
export const FORMS = { range: "&format=range", list: "", u64: "&format=u64-range" };
const RETRY_AFTER_MS_MAX = 1000;
const TEXT_BYTES_MAX = 200;
/** The longest name of a host, with a colon and a port. */
const ADDRESS_CHARS_MAX = 253 + 6;
/** The most endpoints, and the most members. */
const NODES_MAX = 64;
/** @type {Record<number, AttemptErrorKind>} */
const KINDS = { 200: "malformed", 409: "not-leader", 503: "overloaded" };

/** Returns the failure that an answer is. @param {string} address @param {Answer} answer */
export function toFailure(address, { status, headers, body }) {
  const start = String(body.subarray(0, TEXT_BYTES_MAX)).trim();
  const why = `status ${status}: ${start.replace(/\p{Cc}/gu, " ")}`;
  const seconds = /^\d+$/.exec(headers["retry-after"] ?? "")?.[0] ?? 0;
  const retryAfterMs = Math.min(Number(seconds) * 1000, RETRY_AFTER_MS_MAX);
  const leader = [307, 409].includes(status) ? parseAddress(headers["esker-leader"]) : undefined;
  const kind = KINDS[status] ?? (leader ? "not-leader" : "status");
  return new errors.AttemptError(address, kind, why, { leader, retryAfterMs });
}

/**
 * Returns the timestamps of an answer to a request for `count`, in one of the `FORMS`.
 * @param {string} address @param {Answer} answer @param {number} count @param {string} form
 * @throws {AttemptError | RefusedError}
 */
export function parseTimestamps(address, answer, count, form) {
  const range = answer.status === 200 ? decode(answer.body, count, form) : undefined;
  if (range !== undefined) return range;
  const failure = toFailure(address, answer);
  throw answer.status === 400 ? new errors.RefusedError("the node refuses it", failure) : failure;
}

/**
 * Returns the timestamps of a body; `undefined` if it is malformed.
 * @param {Buffer} body @param {number} count @param {string} form
 * @returns {TimestampRange<any> | undefined}
 */
function decode(body, count, form) {
  const [size, indexMax] = form === FORMS.u64 ? [8, U64_INDEX_MAX] : [16, U64_MAX];
  if (body.length < size) return undefined;
  const number = body.readBigUInt64BE();
  const first = size === 8 ? Timestamp.fromU64(number) : Timestamp.fromBytes(body.subarray(0, 16));
  const range = new TimestampRange(first, count);
  const rest = form ? count.toString(16).padStart(16, "0") : [...range].join("").slice(32);
  const isRight = body.toString("hex", size) === rest && first.index > 0n;
  if (!isRight || first.epoch > U64_MAX || range.last.index > indexMax) return undefined;
  return size === 8 ? new TimestampRange(number, count) : range;
}

/**
 * Returns the answer to a change. An `AttemptError` says that nothing was done.
 * @param {string} address @param {Answer} answer
 * @throws {AttemptError | DeniedError | UnknownOutcomeError}
 */
export function parseChange(address, answer) {
  const { status, body } = answer;
  const failure = toFailure(address, answer);
  if ([401, 403].includes(status)) throw new errors.DeniedError("the change is denied", failure);
  if (["not-leader", "overloaded"].includes(failure.kind)) throw failure;
  if (status >= 500) throw new errors.UnknownOutcomeError("the change may have been made", failure);
  return { status, body: body.toString() };
}

/** @param {string} text @param {boolean} allowsUnspecified */
function isAddress(text, allowsUnspecified) {
  const [, host = "", port = ""] = /^(.*):(\d{1,5})$/.exec(text) ?? [];
  if (text.length > ADDRESS_CHARS_MAX || Number(port) < 1 || Number(port) > 65_535) return false;
  const ip = /^\[([0-9a-f:.]+)\]$/i.exec(host)?.[1] ?? "";
  if (isIPv4(host) || isIPv6(ip)) return allowsUnspecified || !/^\[?[0:.]+\]?$/.test(host);
  return /^[a-z0-9._-]+$/i.test(host) && /[a-z]/i.test(host);
}

/**
 * Returns the address that a node names, if it is the host and port of one host.
 * @param {unknown} text @returns {string | undefined}
 */
export function parseAddress(text) {
  return typeof text === "string" && isAddress(text, false) ? text : undefined;
}

/** Returns the addresses of endpoints, and their common scheme. @param {string[]} endpoints */
export function parseEndpoints(endpoints) {
  const schemes = new Set();
  const addresses = endpoints.map((endpoint) => {
    const [, scheme, address = ""] = /^(?:(https?):\/\/)?(.*?)\/?$/.exec(endpoint) ?? [];
    if (scheme !== undefined) schemes.add(scheme);
    if (isAddress(address, true)) return address;
    throw new errors.OptionError(`"${endpoint}" is no endpoint like http://10.0.0.1:8080`);
  });
  if (schemes.size > 1 || addresses.length < 1 || addresses.length > NODES_MAX)
    throw new errors.OptionError(`1 to ${NODES_MAX} endpoints, all http:// or all https://`);
  return { addresses, isTls: schemes.has("https") };
}

/**
 * Returns the content of an answer to `GET /members`. The cluster is empty if the node does not
 * know it yet.
 * @param {string} address @param {Answer} answer
 * @returns {{ cluster: string, leader: string | undefined, members: string[] }}
 * @throws {AttemptError | SyntaxError | TypeError}
 */
export function parseMembers(address, answer) {
  if (answer.status !== 200) throw toFailure(address, answer);
  const { cluster, leader, members } = JSON.parse(answer.body.toString());
  const parse = (/** @type {any} */ member) => parseAddress(member?.addr) ?? [];
  const addresses = members.slice(0, NODES_MAX).flatMap(parse);
  return { cluster: `${cluster ?? ""}`, leader: parseAddress(leader?.addr), members: addresses };
}
