/** The base class of the errors of this package. The reason, if there is one, is in `cause`. */
export class EskerError extends Error {
  /** @param {string} message @param {unknown} [cause] */
  constructor(message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
  }
}

/** No answer by the deadline. `cause` is the last {@link AttemptError}, if an attempt failed. */
export class DeadlineError extends EskerError {}
/** Too many calls wait: this one was not queued. Call again later, or raise `queue`. */
export class BusyError extends EskerError {}
/** An option or an argument is invalid. Nothing was sent. */
export class OptionError extends EskerError {}
/** The service refuses the request (400): set `maxTimestamps` to that of the nodes. */
export class RefusedError extends EskerError {}
/** An answer is not above those received before its request: another cluster, or lost data. */
export class NotMonotonicError extends EskerError {}
/** The node refuses a change: 401 without the right token, 403 if none helps. */
export class DeniedError extends EskerError {}
/** The change may have been made, or may still be. Read the state before you repeat it. */
export class UnknownOutcomeError extends EskerError {}
/** The client is closed. */
export class ClosedError extends EskerError {}

/**
 * The kind of the failure of an attempt.
 * @typedef {"connection" | "tls" | "not-a-node" | "no-answer" | "not-leader" | "overloaded"
 *   | "status" | "malformed" | "other-cluster"} AttemptErrorKind
 */

/** The failure of one attempt: the `cause` of the error of a call. */
export class AttemptError extends EskerError {
  /**
   * @param {string} address The host and port of the node. @param {AttemptErrorKind} kind
   * @param {string} why
   * @param {{ leader?: string | undefined, retryAfterMs?: number, cause?: unknown }} [details]
   *   The leader that the node names, and the time that it asks to wait.
   */
  constructor(address, kind, why, { leader, retryAfterMs = 0, cause } = {}) {
    super(`${address}: ${why}`, cause);
    this.address = address;
    this.kind = kind;
    this.leader = leader;
    this.retryAfterMs = retryAfterMs;
  }
}
