import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { connect as connectTls, createSecureContext } from "node:tls";
import { OptionError } from "./errors.js";

/** @import { SecureContext } from "node:tls" */
/** @typedef {{ caFile?: string, certFile?: string, keyFile?: string }} TlsFiles */

/** Makes connections: plain, or with TLS 1.3. */
export class Transport {
  #files;
  /** @type {SecureContext | undefined} */ #context;

  /** @param {boolean} isTls @param {TlsFiles} options */
  constructor(isTls, { caFile, certFile, keyFile }) {
    this.scheme = isTls ? "https" : "http";
    this.#files = [caFile, certFile, keyFile];
    const names = this.#files.filter((file) => file !== undefined).join(", ");
    if (!isTls && names !== "") throw new OptionError(`${names}: no endpoint is https://`);
    if (!certFile !== !keyFile) throw new OptionError("certFile and keyFile need each other");
    try {
      if (isTls) this.#context = this.#read();
    } catch (cause) {
      throw new OptionError(`cannot use the files for TLS: ${names}`, cause);
    }
  }

  #read() {
    const [ca, cert, key] = this.#files.map((file) => file && readFileSync(file, "utf8"));
    // A context takes a file without a certificate; this does not.
    for (const pem of [ca, cert]) if (pem !== undefined) new X509Certificate(pem);
    return createSecureContext({ ca, cert, key, minVersion: "TLSv1.3" });
  }

  /** Begins to connect, and reads the files again. @param {string} address */
  connect(address) {
    const [, host, port] = /** @type {string[]} */ (/^\[?(.*?)\]?:(\d+)$/.exec(address));
    const options = { host, port: Number(port), noDelay: true };
    if (this.#context === undefined) return connectTcp(options);
    try {
      this.#context = this.#read();
    } catch {
      // A file may be half written. What was read before is used.
    }
    return connectTls({ ...options, secureContext: this.#context, ALPNProtocols: ["h2"] });
  }
}
