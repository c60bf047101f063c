// The vectors of the guide "Writing a client".
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { AttemptError, RefusedError, Timestamp } from "../src/index.js";
import { FORMS, parseTimestamps } from "../src/protocol.js";
import { isAbove } from "../src/timestamp.js";

const file = new URL("../../../docs/src/client-vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"));

test("timestamps have the bytes and the order of the vectors", () => {
  let last;
  for (const { epoch, index, bytes } of vectors.timestamps) {
    const timestamp = Timestamp.fromBytes(Buffer.from(bytes, "hex"));
    assert.deepEqual(timestamp, new Timestamp(BigInt(epoch), BigInt(index)));
    assert.equal(Buffer.from(timestamp.bytes).toString("hex"), bytes);
    assert.equal(`${timestamp}`, bytes);
    assert.equal(JSON.stringify({ timestamp }), `{"timestamp":"${bytes}"}`);
    assert.equal(timestamp.compare(timestamp), 0);
    if (last) assert.deepEqual([last.compare(timestamp), timestamp.compare(last)], [-1, 1]);
    last = timestamp;
  }
  assert.ok(vectors.timestamps.length > 5);
  assert.throws(() => Timestamp.fromBytes(new Uint8Array(15)), RangeError);
});

test("timestamps of 64 bits have the numbers and the order of the vectors", () => {
  let last;
  for (const { milliseconds, index, number, bytes } of vectors.u64_timestamps) {
    const bits = BigInt(number);
    assert.equal(bits, Buffer.from(bytes, "hex").readBigUInt64BE());
    const expected = new Timestamp(BigInt(milliseconds) * 1_000_000n, BigInt(index));
    assert.deepEqual(Timestamp.fromU64(bits), expected);
    if (last !== undefined)
      assert.deepEqual([isAbove(bits, last), isAbove(last, bits)], [true, false]);
    last = bits;
  }
  assert.ok(vectors.u64_timestamps.length > 5);
});

test("timestamps of both widths are in one order", () => {
  const number = (millisecond, index) => (millisecond << 18n) + index;
  const ordered = [
    [new Timestamp(7_999_999n, 5n), number(7n, 6n)],
    [number(7n, 5n), new Timestamp(7_999_999n, 6n)],
    [new Timestamp(6_999_999n, 1n << 20n), number(7n, 1n)],
    [number(7n, 9n), new Timestamp(8_000_000n, 1n)],
    [new Timestamp(7_000_001n, 9n), new Timestamp(7_000_002n, 1n)],
  ];
  for (const [one, other] of ordered) {
    assert.deepEqual([isAbove(one, other), isAbove(other, one)], [false, true], `${one}, ${other}`);
  }
  const [same, wide] = [number(7n, 5n), new Timestamp(7_999_999n, 5n)];
  assert.deepEqual([isAbove(same, wide), isAbove(wide, same)], [false, false]);
});

/** The step after an answer, as the vectors name it. @param {any} vector @param {string} form */
function step({ n, status, headers = {}, body = "", body_hex }, form) {
  const bytes = body_hex === undefined ? Buffer.from(body) : Buffer.from(body_hex, "hex");
  try {
    const range = parseTimestamps("a:1", { status, headers, body: bytes }, n, form);
    return { step: "timestamps", first: `${range.first}`, last: `${range.last}` };
  } catch (error) {
    if (error instanceof RefusedError) return { step: "fail" };
    assert.ok(error instanceof AttemptError, `${error}`);
    const { kind, leader, retryAfterMs } = error;
    if (kind === "overloaded") return { step: "ask again later", seconds: retryAfterMs / 1000 };
    if (leader !== undefined) return { step: "ask the leader", leader };
    return { step: "ask another node" };
  }
}

test("answers lead to the steps of the vectors", () => {
  const check = (vector, form) => {
    const { then, first, last, leader, seconds } = vector;
    const expected = JSON.parse(JSON.stringify({ step: then, first, last, leader, seconds }));
    assert.deepEqual(step(vector, form), expected, JSON.stringify(vector));
  };
  for (const vector of vectors.answers) check(vector, FORMS.range);
  for (const vector of vectors.u64_answers) check(vector, FORMS.u64);
  assert.ok(vectors.answers.length > 15 && vectors.u64_answers.length > 10);
});

test("a list of timestamps has to be consecutive", () => {
  const bytes = [1n, 2n, 3n].map((index) => new Timestamp(7n, index).bytes);
  const parse = (/** @type {Uint8Array[]} */ parts) =>
    parseTimestamps("a:1", { status: 200, headers: {}, body: Buffer.concat(parts) }, 3, FORMS.list);
  assert.deepEqual(
    [...parse(bytes)].map(String),
    bytes.map((it) => Buffer.from(it).toString("hex")),
  );
  for (const wrong of [bytes.slice(1), [bytes[0], bytes[2], bytes[1]], [...bytes, bytes[0]]]) {
    assert.throws(() => parse(wrong), AttemptError);
  }
});

test("the text of an error is short and on one line", () => {
  const body = Buffer.from(`a\nb\x1b${"x".repeat(9999)}`);
  try {
    parseTimestamps("a:1", { status: 500, headers: {}, body }, 1, FORMS.range);
    assert.fail("a 500 is a failure");
  } catch (error) {
    assert.match(error.message, /^a:1: status 500: a b x{100,200}$/);
  }
});
