import { connect } from "node:http2";
import { parseMembers } from "./address.js";
import { parseChange, parseTimestamps, toFailure } from "./answer.js";
import { AttemptError, UnknownOutcomeError } from "./errors.js";

/** @import { ClientHttp2Session, IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2" */
/** @import { Answer } from "./answer.js" */
/** @import { AttemptErrorKind } from "./errors.js" */
/** @import { Transport } from "./transport.js" */

/** A node answers within a second, also when it cannot serve. */
const ANSWER_TIMEOUT_MS = 1500;
const ANSWER_BYTES_MAX = 1 << 20;
/** Silence is counted in ticks: while the event loop is busy, none passes. */
const TICK_MS = 50;
const PING_TICKS = 200 / TICK_MS;
const DEAD_TICKS = 500 / TICK_MS;

/** A connection to a node. It does not keep the process alive: calls that wait do. */
export class NodeConnection {
  /** @type {ClientHttp2Session} */ #session;
  /** @type {AttemptError | undefined} Why the connection ended. */ #failure;
  #requests = 0;
  #isRetired = false;

  /** @param {Transport} transport @param {string} address */
  constructor(transport, address) {
    this.address = address;
    this.#session = connect(`${transport.scheme}://${address}`, {
      // The first to hear of an error, before it ends the requests.
      createConnection: () => transport.connect(address).on("error", (error) => this.#fail(error)),
      settings: { enablePush: false },
    });
    this.#session.on("error", (error) => this.#fail(error));
    this.#session.unref();
  }

  get isOpen() {
    return !this.#session.closed && !this.#session.destroyed;
  }

  /** Asks for the members of the cluster. @param {number} timeoutMs */
  async members(timeoutMs) {
    const answer = await this.#request({ ":path": "/members" }, timeoutMs);
    if (answer.status !== 200) throw toFailure(this.address, answer);
    return parseMembers(answer.body);
  }

  /** Asks for timestamps. @param {number} count @param {"range" | "list"} format */
  async timestamps(count, format) {
    const path = `/timestamp?n=${count}${format === "range" ? "&format=range" : ""}`;
    const answer = await this.#request({ ":path": path }, ANSWER_TIMEOUT_MS);
    return parseTimestamps(this.address, answer, count, format);
  }

  /**
   * Asks for a change.
   * @param {string} path @param {string} body @param {string | undefined} token
   * @param {number} timeoutMs
   */
  async change(path, body, token, timeoutMs) {
    const headers = { ":method": "POST", ":path": path, "content-type": "application/json" };
    if (token !== undefined) Object.assign(headers, { authorization: `Bearer ${token}` });
    const answer = await this.#request(headers, timeoutMs, body).catch((cause) => {
      throw new UnknownOutcomeError("the change may have been made", cause);
    });
    return parseChange(this.address, answer);
  }

  /** Ends the connection after its requests. */
  retire() {
    this.#isRetired = true;
    if (this.#requests === 0) this.#session.destroy();
  }

  /** Ends the connection and its requests. @param {AttemptErrorKind} kind @param {string} why */
  destroy(kind, why) {
    this.#failure ??= new AttemptError(this.address, kind, why);
    this.#session.destroy();
  }

  /** Records why the connection ended. @param {any} error Of the system, of TLS, or of HTTP/2. */
  #fail(error) {
    const isHttp = error.code?.startsWith("ERR_HTTP2");
    const kind = error.syscall || error.errors ? "connection" : isHttp ? "not-a-node" : "tls";
    const why = `${kind}: ${error.reason ?? (error.message || error.errors)}`;
    this.#failure ??= new AttemptError(this.address, kind, why, { cause: error });
  }

  /**
   * @param {OutgoingHttpHeaders} headers @param {number} timeoutMs @param {string} [body]
   * @returns {Promise<Answer>}
   */
  async #request(headers, timeoutMs, body) {
    let ticks = 0;
    let silentTicks = 0;
    /** @type {NodeJS.Timeout | undefined} */
    let timer;
    this.#requests++;
    try {
      const stream = this.#session.request(headers, { endStream: body === undefined });
      const late = `no answer within ${timeoutMs} ms`;
      const heard = () => {
        silentTicks = 0;
      };
      timer = setInterval(() => {
        if (++silentTicks === PING_TICKS && !this.#session.destroyed) this.#session.ping(heard);
        if (silentTicks >= DEAD_TICKS) this.destroy("no-answer", "no answer to a PING");
        if (++ticks * TICK_MS < timeoutMs) return;
        stream.destroy(new AttemptError(this.address, "no-answer", late));
      }, TICK_MS).unref();
      if (body !== undefined) stream.end(body);
      /** @type {IncomingHttpHeaders & { ":status"?: number | undefined }} */
      const head = {};
      stream.once("response", (received) => Object.assign(head, received));
      let answer = Buffer.alloc(0);
      for await (const chunk of stream) {
        answer = Buffer.concat([answer, chunk]);
        if (answer.length > ANSWER_BYTES_MAX) throw new Error("the answer is too long");
      }
      const { ":status": status } = head;
      if (status === undefined || stream.rstCode !== 0) throw new Error("half an answer");
      return { status, headers: head, body: answer };
    } catch (error) {
      if (error instanceof AttemptError) throw error;
      throw this.#failure ?? new AttemptError(this.address, "connection", `${error}`);
    } finally {
      clearInterval(timer);
      this.#requests--;
      if (this.#isRetired) this.retire();
    }
  }
}
