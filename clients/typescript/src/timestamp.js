/** The greatest epoch, and the greatest index. */
export const U64_MAX = 2n ** 64n - 1n;

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

  /** The 16 bytes, in an array of their own: epoch and index, big-endian. */
  get bytes() {
    const view = new DataView(new ArrayBuffer(16));
    view.setBigUint64(0, this.epoch);
    view.setBigUint64(8, this.index);
    return new Uint8Array(view.buffer);
  }

  /** Returns -1 below `other`, 1 above it, and 0 if both are the same. @param {Timestamp} other */
  compare(other) {
    if (this.epoch !== other.epoch) return this.epoch < other.epoch ? -1 : 1;
    if (this.index !== other.index) return this.index < other.index ? -1 : 1;
    return 0;
  }

  /** Returns the bytes as 32 hexadecimal digits, which have the same order. */
  toString() {
    return ((this.epoch << 64n) | this.index).toString(16).padStart(32, "0");
  }

  toJSON() {
    return this.toString();
  }
}

/** Timestamps of one epoch with consecutive indexes, to iterate over. */
export class TimestampRange {
  /** @param {Timestamp} first The lowest one. @param {number} count How many, at least 1. */
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

  /** Returns the timestamp at this offset, from 0. @param {number} offset */
  at(offset) {
    if (!(offset >= 0 && offset < this.count)) throw new RangeError(`no timestamp at ${offset}`);
    return new Timestamp(this.first.epoch, this.first.index + BigInt(offset));
  }

  *[Symbol.iterator]() {
    for (let offset = 0; offset < this.count; offset++) yield this.at(offset);
  }
}
