import { setImmediate } from "node:timers/promises";
import * as errors from "./errors.js";
import { Leader } from "./leader.js";
import { FORMS, parseChange, parseEndpoints } from "./protocol.js";
import { TimestampRange } from "./timestamp.js";

/** The requests for timestamps at a time. */
const REQUESTS_MAX = 2;
const [COUNT_MAX, QUEUE_CALLS_MAX] = [65_536, 2 ** 20];
/** The longest time of a timer. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/**
 * @typedef {object} ClientOptions
 * @property {string[]} endpoints Nodes: `http://HOST:PORT` or `https://HOST:PORT`. One that is up
 *   is enough: the client learns of the others. The scheme is that of all nodes.
 * @property {string} [caFile] The authorities to trust, PEM. Default: those that Node trusts.
 * @property {string} [certFile] The certificate to show to nodes that want one, PEM.
 * @property {string} [keyFile] Its private key, PEM. Files are read again for new connections.
 * @property {string} [token] The bearer token, which is sent with changes alone.
 * @property {string} [cluster] The id of the cluster. Default: that of the first node reached.
 * @property {"range" | "list"} [format] The answer that nodes are asked for: a `range` (default),
 *   or a `list` with 16 bytes for each timestamp.
 * @property {number} [timeoutMs] The time that a call may take. Default: 5,000.
 * @property {number} [connectTimeoutMs] The time that connecting may take. Default: 1,000.
 * @property {number} [queue] The most calls that wait for a request. Default: 65,536.
 * @property {number} [maxTimestamps] The most timestamps of a request: the `--max-timestamps` of
 *   the nodes. Default: 65,536.
 */

/**
 * @typedef {object} CallOptions
 * @property {number} [timeoutMs] The time that this call may take. Default: that of the client.
 * @property {AbortSignal} [signal] Ends the call with the signal's reason. Its timestamps are lost.
 */

/** @typedef {{ status: number, body: string }} ChangeAnswer */

/**
 * A call that waits. It is one of `#calls` until it ends.
 * @template T
 * @typedef {object} Call
 * @property {number} count The timestamps that it wants.
 * @property {string} form Of their answer: one of the `FORMS`.
 * @property {number} timeoutMs
 * @property {boolean} isUnknown Whether a node has its change, which may be made.
 * @property {(value: T) => void} resolve @property {(error: unknown) => void} reject
 */

/** @param {string} name @param {number} value @param {number} max */
function check(name, value, max) {
  if (Number.isInteger(value) && value >= 1 && value <= max) return;
  throw new errors.OptionError(`${name} must be a whole number from 1 to ${max}, not ${value}`);
}

/**
 * A client of the timestamp service. Use one in a process: concurrent calls share its requests.
 *
 * A timestamp is above those of all calls that had returned before its own call began, also those
 * of other clients. The client follows the leader, through elections too, for the time of a call.
 */
export class Client {
  #leader;
  #options;
  /** @type {Set<Call<any>>} All that have not ended. */ #calls = new Set();
  /** @type {Set<Call<TimestampRange<any>>>} Those without a request. */ #waiting = new Set();
  #requests = 0;
  #isClosed = false;

  /**
   * Creates a client, which connects with its first call.
   * @param {ClientOptions} options
   * @throws {OptionError} If an option is invalid, or a file cannot be used.
   */
  constructor(options) {
    const { endpoints = [], cluster, token, format = "range", timeoutMs = 5000 } = options;
    const { connectTimeoutMs = 1000, queue = 65_536, maxTimestamps = COUNT_MAX } = options;
    check("timeoutMs", timeoutMs, TIMEOUT_MS_MAX);
    check("connectTimeoutMs", connectTimeoutMs, TIMEOUT_MS_MAX);
    check("queue", queue, QUEUE_CALLS_MAX);
    check("maxTimestamps", maxTimestamps, COUNT_MAX);
    if (!/^[\x21-\x7e]+$/.test(token ?? "none")) throw new errors.OptionError("invalid token");
    if (format !== "range" && format !== "list") throw new errors.OptionError("invalid format");
    const parsed = parseEndpoints(endpoints);
    this.#leader = new Leader({ ...parsed, files: options, connectTimeoutMs, cluster });
    this.#options = { token, form: FORMS[format], timeoutMs, queue, maxTimestamps };
  }

  /** Returns a timestamp. Rejects as {@link timestamps} does. @param {CallOptions} [options] */
  async timestamp(options) {
    return (await this.timestamps(1, options)).first;
  }

  /**
   * Returns timestamps of one epoch, with consecutive indexes. Rejects with `DeadlineError`,
   * `BusyError`, `OptionError`, `RefusedError`, `NotMonotonicError`, `ClosedError`, or the reason
   * of the signal.
   * @param {number} count @param {CallOptions} [options] @returns {Promise<TimestampRange>}
   */
  timestamps(count, options) {
    return this.#timestamps(count, this.#options.form, options);
  }

  /** Returns a timestamp of 64 bits, as {@link timestampsU64}. @param {CallOptions} [options] */
  async timestampU64(options) {
    return (await this.timestampsU64(1, options)).first;
  }

  /**
   * Returns consecutive timestamps of 64 bits, in one order with those of 16 bytes. An epoch has
   * 262,143 of them: after these a call waits for the next one. Rejects as {@link timestamps} does.
   * @param {number} count @param {CallOptions} [options] @returns {Promise<TimestampRange<bigint>>}
   */
  timestampsU64(count, options) {
    return this.#timestamps(count, FORMS.u64, options);
  }

  /**
   * @param {number} count @param {string} form @param {CallOptions | undefined} options
   * @returns {Promise<TimestampRange<any>>}
   */
  async #timestamps(count, form, options) {
    check("the number of timestamps", count, this.#options.maxTimestamps);
    if (this.#waiting.size >= this.#options.queue) throw new errors.BusyError("queue is full");
    return this.#call(count, form, options, (call) => {
      this.#waiting.add(call);
      if (this.#requests < REQUESTS_MAX) this.#serve();
    });
  }

  /**
   * Has the leader make a change, `POST /cluster/...`, and returns its answer, which may be a 422.
   * The request is repeated only where nothing was done. Rejects with `DeadlineError`,
   * `DeniedError`, `UnknownOutcomeError`, `OptionError`, `ClosedError`, or the reason of the
   * signal. After an abort, too, the change may have been made.
   * @param {string} path @param {string} body JSON. @param {CallOptions} [options]
   * @returns {Promise<ChangeAnswer>}
   */
  async change(path, body, options) {
    if (!/^\/[\x21-\x7e]*$/.test(path)) throw new errors.OptionError(`not a path: ${path}`);
    return this.#call(0, "", options, (call) => this.#change(call, path, body));
  }

  /** @param {Call<ChangeAnswer>} call @param {string} path @param {string} body */
  async #change(call, path, body) {
    const headers = { ":method": "POST", ":path": path, "content-type": "application/json" };
    const { token } = this.#options;
    if (token !== undefined) Object.assign(headers, { authorization: `Bearer ${token}` });
    while (this.#calls.has(call)) {
      await this.#leader.attempt(async (connection) => {
        if (!this.#calls.has(call)) return;
        call.isUnknown = true;
        const answer = await connection.send(headers, call.timeoutMs, body).catch((cause) => {
          throw new errors.UnknownOutcomeError("the change may have been made", cause);
        });
        call.isUnknown = false;
        call.resolve(parseChange(connection.address, answer));
      });
    }
  }

  /** Ends all calls with `ClosedError`, and the connection. */
  close() {
    this.#isClosed = true;
    for (const call of this.#calls) call.reject(new errors.ClosedError("the client is closed"));
    this.#leader.close();
  }

  /**
   * Makes a call that `begin` begins, and waits for its end.
   * @template T @param {number} count @param {string} form
   * @param {CallOptions | undefined} options
   * @param {(call: Call<T>) => void | Promise<void>} begin @returns {Promise<T>}
   */
  async #call(count, form, { timeoutMs = this.#options.timeoutMs, signal } = {}, begin) {
    if (this.#isClosed) throw new errors.ClosedError("the client is closed");
    signal?.throwIfAborted();
    if (!(timeoutMs <= TIMEOUT_MS_MAX)) throw new errors.OptionError(`timeoutMs: ${timeoutMs}`);
    const call = /** @type {Call<T>} */ ({ count, form, timeoutMs, isUnknown: false });
    const expired = () =>
      call.isUnknown
        ? new errors.UnknownOutcomeError("no answer by the deadline: the change may have been made")
        : new errors.DeadlineError("no answer by the deadline", this.#leader.lastFailure);
    if (timeoutMs <= 0) throw expired();
    const answer = new Promise((resolve, reject) => Object.assign(call, { resolve, reject }));
    const timer = setTimeout(() => call.reject(expired()), timeoutMs);
    const abort = () => call.reject(signal?.reason);
    signal?.addEventListener("abort", abort);
    this.#calls.add(call);
    try {
      begin(call)?.catch(call.reject);
      return await answer;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      this.#calls.delete(call);
      this.#waiting.delete(/** @type {Call<any>} */ (call));
    }
  }

  /**
   * Sends a request, after the calls that are about to begin have joined. Asks for timestamps for
   * the oldest calls, of one form, until there is an answer or none of them waits.
   */
  async #serve() {
    this.#requests++;
    await setImmediate();
    const calls = [];
    const [oldest] = /** @type {Iterable<any>} */ (this.#waiting);
    let [total, offset] = [0, 0];
    for (const call of this.#waiting) {
      if (call.form !== oldest.form) continue;
      if (total + call.count > this.#options.maxTimestamps) break;
      this.#waiting.delete(call);
      calls.push(call);
      total += call.count;
    }
    try {
      let range;
      while (range === undefined && calls.some((call) => this.#calls.has(call)))
        range = await this.#leader.timestamps(total, oldest.form);
      for (const { resolve, count } of calls) {
        if (range !== undefined) resolve(new TimestampRange(range.at(offset), count));
        offset += count;
      }
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
    this.#requests--;
    if (this.#waiting.size > 0) this.#serve();
  }
}
