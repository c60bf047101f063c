/** The greatest epoch, and the greatest index. */
export const U64_MAX = 2n ** 64n - 1n;
/** The bits of the index in a timestamp of 64 bits. The others are the millisecond of the epoch. */
const U64_INDEX_BITS = 18n;
export const U64_INDEX_MAX = 2n ** U64_INDEX_BITS - 1n;
const NANOS_PER_MILLISECOND = 1_000_000n;

/** A timestamp. Its order is that of the pair (epoch, index), and of its 16 bytes. */
export class Timestamp {
  /**
   * @param {bigint} epoch Nanoseconds of Unix time, 64 bits, unsigned.
   * @param {bigint} index The index in the epoch, from 1, 64 bits, unsigned.
   */
  constructor(epoch, index) {
    /** @readonly */
    this.epoch = epoch;
    /** @readonly */
    this.index = index;
  }

  /** Reads the 16 bytes of a timestamp. @param {Uint8Array} bytes */
  static fromBytes(bytes) {
    if (bytes.length !== 16) throw new RangeError(`a timestamp has 16 bytes, not ${bytes.length}`);
    const view = new DataView(bytes.buffer, bytes.byteOffset, 16);
    return new Timestamp(view.getBigUint64(0), view.getBigUint64(8));
  }

  /**
   * Reads a timestamp of 64 bits. Its epoch is the first nanosecond of its millisecond. That of
   * a number that no service issues may have more than 64 bits.
   * @param {bigint} number
   */
  static fromU64(number) {
    const epoch = (number >> U64_INDEX_BITS) * NANOS_PER_MILLISECOND;
    return new Timestamp(epoch, number & U64_INDEX_MAX);
  }

  /** The 16 bytes, in an array of their own: epoch and index, big-endian. @returns {Uint8Array} */
  get bytes() {
    return new Uint8Array(Buffer.from(`${this}`, "hex"));
  }

  /**
   * Returns -1 below `other`, 1 above it, and 0 if both are the same.
   * @param {Timestamp} other @param {bigint} [unit] Epochs compare by this many nanoseconds.
   */
  compare(other, unit = 1n) {
    const order = this.epoch / unit - other.epoch / unit || this.index - other.index;
    return Number(order > 0n) - Number(order < 0n);
  }

  /** Returns the bytes as 32 hexadecimal digits, which have the same order. */
  toString() {
    return ((this.epoch << 64n) | this.index).toString(16).padStart(32, "0");
  }

  toJSON() {
    return this.toString();
  }
}

/** @param {Timestamp | bigint} it */
const toTimestamp = (it) => (typeof it === "bigint" ? Timestamp.fromU64(it) : it);

/**
 * Returns whether `one` is above `other`. Those of different widths compare by the millisecond of
 * the epoch, and then by the index.
 * @param {Timestamp | bigint} one @param {Timestamp | bigint} other
 */
export function isAbove(one, other) {
  const unit = typeof one === typeof other ? 1n : NANOS_PER_MILLISECOND;
  return toTimestamp(one).compare(toTimestamp(other), unit) > 0;
}

/**
 * Consecutive timestamps of one epoch, to iterate over: of 16 bytes, or of 64 bits as `bigint`.
 * @template {Timestamp | bigint} [T=Timestamp]
 */
export class TimestampRange {
  /** @param {T} first The lowest one. @param {number} count How many, at least 1. */
  constructor(first, count) {
    /** @readonly */
    this.first = first;
    /** @readonly */
    this.count = count;
  }

  /** The highest timestamp. */
  get last() {
    return this.at(this.count - 1);
  }

  /** Returns the timestamp at this offset, from 0. @param {number} offset @returns {T} */
  at(offset) {
    if (!(offset >= 0 && offset < this.count)) throw new RangeError(`no timestamp at ${offset}`);
    const { first } = /** @type {{ first: any }} */ (this);
    if (typeof first === "bigint") return /** @type {T} */ (first + BigInt(offset));
    return /** @type {T} */ (new Timestamp(first.epoch, first.index + BigInt(offset)));
  }

  *[Symbol.iterator]() {
    for (let offset = 0; offset < this.count; offset++) yield this.at(offset);
  }
}
