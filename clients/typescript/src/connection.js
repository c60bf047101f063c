import { connect } from "node:http2";
import { AttemptError } from "./errors.js";

/** @import { ClientHttp2Session, IncomingHttpHeaders, OutgoingHttpHeaders } from "node:http2" */
/** @import { AttemptErrorKind } from "./errors.js" */
/** @import { Answer } from "./protocol.js" */
/** @import { Transport } from "./transport.js" */

const ANSWER_BYTES_MAX = 1 << 20;
/**
 * Silence is counted in ticks: while the event loop is busy, none passes. A PING is sent after 200
 * ms, and has 300 ms.
 */
const [TICK_MS, PING_TICKS, DEAD_TICKS] = [50, 4, 10];

/** A connection to a node. It does not keep the process alive: calls that wait do. */
export class NodeConnection {
  /** @type {ClientHttp2Session} */ #session;
  /** @type {AttemptError | undefined} Why the connection ended. */ #failure;
  #requests = 0;
  #isRetired = false;
  isOpen = () => !this.#session.closed && !this.#session.destroyed;

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
   * Sends a request, and returns its answer.
   * @param {OutgoingHttpHeaders} headers @param {number} timeoutMs @param {string} [body]
   * @returns {Promise<Answer>}
   * @throws {AttemptError}
   */
  async send(headers, timeoutMs, body) {
    const ticks = { all: 0, silent: 0 };
    /** @type {NodeJS.Timeout | undefined} */
    let timer;
    this.#requests++;
    try {
      const stream = this.#session.request(headers, { endStream: body === undefined });
      const heard = () => Object.assign(ticks, { silent: 0 });
      timer = setInterval(() => {
        if (++ticks.silent === PING_TICKS && !this.#session.destroyed) this.#session.ping(heard);
        if (ticks.silent >= DEAD_TICKS) this.destroy("no-answer", "no answer to a PING");
        if (++ticks.all * TICK_MS < timeoutMs) return;
        stream.destroy(new AttemptError(this.address, "no-answer", "no answer in time"));
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
      if (!head[":status"] || stream.rstCode !== 0) throw new Error("half an answer");
      return { status: head[":status"], headers: head, body: answer };
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
