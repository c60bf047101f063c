import { setTimeout as sleep } from "node:timers/promises";
import { NodeConnection } from "./connection.js";
import { AttemptError, NotMonotonicError } from "./errors.js";
import { parseMembers, parseTimestamps } from "./protocol.js";
import { isAbove } from "./timestamp.js";
import { Transport } from "./transport.js";

/** @import { Timestamp, TimestampRange } from "./timestamp.js" */
/** @import { TlsFiles } from "./transport.js" */

/** A node answers within a second, also when it cannot serve. */
const ANSWER_TIMEOUT_MS = 1500;
const [FIRST_RETRY_DELAY_MS, RETRY_DELAY_MS_MAX] = [4, 100];
/** The nodes in a row that may name another leader before that counts as a failure. */
const LEADER_HINTS_MAX = 2;

/** The connection to the leader, which all requests share, and the search for another leader. */
export class Leader {
  #options;
  /** The endpoints and the members. */
  #nodes;
  /** @type {string[]} The nodes to ask, in this order, before all are asked again. */ #queue = [];
  /** @type {string | undefined} It is not asked again while there are others. */ #failed;
  #failures = 0;
  /** The leaders that were named since the last success. */
  #hints = 0;
  /** @type {NodeConnection | undefined} */ #connection;
  /** @type {Promise<NodeConnection | undefined> | undefined} */ #connecting;
  /** @type {Timestamp | bigint} The highest one received. */ #highest = 0n;
  #isClosed = false;
  /** @type {AttemptError | undefined} The last one since the last success. */ lastFailure;

  /**
   * @param {{ addresses: string[], isTls: boolean, files: TlsFiles, connectTimeoutMs: number,
   *   cluster: string | undefined }} options
   */
  constructor(options) {
    this.#options = { ...options, transport: new Transport(options.isTls, options.files) };
    this.#nodes = options.addresses;
  }

  close() {
    this.#isClosed = true;
    this.#connection?.destroy("connection", "the client is closed");
  }

  /**
   * Asks once for timestamps, in one of the `FORMS`; `undefined`: ask again.
   * @param {number} count @param {string} form @returns {Promise<TimestampRange<any> | undefined>}
   */
  timestamps(count, form) {
    return this.attempt(async (connection) => {
      // Read when the request is sent: later answers may be above this one.
      const highest = this.#highest;
      const path = `/timestamp?n=${count}${form}`;
      const answer = await connection.send({ ":path": path }, ANSWER_TIMEOUT_MS);
      const range = parseTimestamps(connection.address, answer, count, form);
      if (!isAbove(range.first, highest)) {
        throw new NotMonotonicError(`${connection.address}: ${range.first} not above ${highest}`);
      }
      if (isAbove(range.last, this.#highest)) this.#highest = range.last;
      [this.#failed, this.#failures, this.#hints, this.lastFailure] = [undefined, 0, 0, undefined];
      return range;
    });
  }

  /**
   * Sends something once to the leader. Returns the result of `send`; `undefined`, after the wait
   * that a node asks for: send again.
   * @template T @param {(connection: NodeConnection) => Promise<T>} send
   */
  async attempt(send) {
    const connection = await this.#connect();
    try {
      return connection && (await send(connection));
    } catch (error) {
      if (!(error instanceof AttemptError)) throw error;
      this.lastFailure ??= error;
      if (error.kind === "overloaded") {
        this.#fail(error);
        await this.#pause(error.retryAfterMs);
      } else if (this.#connection === connection) {
        // Otherwise another request, which failed first, has given it up.
        connection?.retire();
        this.#connection = undefined;
        if (!this.#follow(error.leader, error.address)) this.#fail(error);
      }
    }
  }

  /** @param {AttemptError} error */
  #fail(error) {
    // That another node leads hides no failure of another kind.
    if (error.kind !== "not-leader") this.lastFailure = error;
    this.#failed = error.address;
    this.#failures++;
  }

  /**
   * Asks `leader` next, which the node `by` names. Returns false if it is the node itself, or has
   * just failed: clients may reach it at another address only.
   * @param {string | undefined} leader @param {string} by
   */
  #follow(leader, by) {
    if (leader === undefined || leader === by || leader === this.#failed) return false;
    this.#queue.unshift(leader);
    if (++this.#hints > LEADER_HINTS_MAX) this.#failures++;
    return true;
  }

  /** Returns the node to ask. */
  #next() {
    const others = (/** @type {string[]} */ nodes) => nodes.filter((node) => node !== this.#failed);
    this.#queue = others(this.#queue);
    if (this.#queue.length === 0) this.#queue = others(this.#nodes).sort(() => Math.random() - 0.5);
    return /** @type {string} */ (this.#queue.shift() ?? this.#failed);
  }

  /** Waits after failures: a random part of the longest wait, from half of it to all of it. */
  async #pause(extraMs = 0) {
    const longest = Math.min(FIRST_RETRY_DELAY_MS * 2 ** (this.#failures - 1), RETRY_DELAY_MS_MAX);
    const ms = extraMs + (this.#failures && longest * (0.5 + Math.random() / 2));
    // Calls that wait keep the process alive.
    if (ms > 0) await sleep(ms, undefined, { ref: false });
  }

  /** Returns the connection, or tries once to make one for all requests; `undefined`: try again. */
  async #connect() {
    if (this.#connection?.isOpen()) return this.#connection;
    this.#connecting ??= this.#reconnect();
    return this.#connecting;
  }

  async #reconnect() {
    // No request failed: nodes close idle connections.
    if (this.#connection !== undefined) this.#queue.unshift(this.#connection.address);
    this.#connection = undefined;
    await this.#pause();
    const address = this.#next();
    let connection;
    try {
      connection = new NodeConnection(this.#options.transport, address);
      const answer = await connection.send({ ":path": "/members" }, this.#options.connectTimeoutMs);
      const { cluster, leader, members } = parseMembers(address, answer);
      this.#options.cluster ||= cluster;
      if (cluster !== "" && cluster !== this.#options.cluster) {
        throw new AttemptError(address, "other-cluster", `it is of another cluster, ${cluster}`);
      }
      this.#nodes = [...new Set([...this.#options.addresses, ...members])];
      const isFollowed = this.#hints < LEADER_HINTS_MAX && this.#follow(leader, address);
      if (isFollowed || this.#isClosed) connection.retire();
      else this.#connection = connection;
    } catch (cause) {
      connection?.retire();
      const failure = new AttemptError(address, "not-a-node", "it is not a node", { cause });
      this.#fail(cause instanceof AttemptError ? cause : failure);
    }
    this.#connecting = undefined;
    return this.#connection;
  }
}
