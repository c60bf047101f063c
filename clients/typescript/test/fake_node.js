// Nodes whose answers are scripted, for tests.
import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import net from "node:net";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

/** Only a failure waits for so long. */
export const TEST_TIMEOUT_MS = 120_000;

/**
 * A test. What it starts is stopped at its end.
 * @param {string} name @param {(use: <T>(started: T) => T) => Promise<void>} run
 * @param {{ skip?: string | false }} [options]
 */
export function scenario(name, run, options) {
  test(name, { timeout: 2 * TEST_TIMEOUT_MS, ...options }, async () => {
    /** @type {any[]} */
    const started = [];
    try {
      await run((it) => {
        started.push(it);
        return it;
      });
    } finally {
      for (const it of started) it.close();
    }
  });
}

/** Waits until `condition` holds. @param {() => boolean} condition */
export async function until(condition) {
  const end = performance.now() + TEST_TIMEOUT_MS;
  while (!condition()) {
    assert.ok(performance.now() < end, `it never holds: ${condition}`);
    await sleep(2);
  }
}

/** An answer of these numbers of 64 bits. @param {bigint[]} numbers */
export function issued(...numbers) {
  const body = Buffer.alloc(8 * numbers.length);
  for (const [at, number] of numbers.entries()) body.writeBigUInt64BE(number, 8 * at);
  return { status: 200, body };
}

/** Issues the timestamps of one epoch. */
export class Issuer {
  next = 1n;

  /** @param {number} count @param {string} [format] As the request names it. */
  range(count, format) {
    const epoch = [1_700_000_000_000_000_000n, this.next];
    const number = (1_700_000_000_000n << 18n) + this.next;
    this.next += BigInt(count);
    return issued(...(format === "u64-range" ? [number] : epoch), BigInt(count));
  }
}

/**
 * An answer. With `cut`, the connection ends before the answer does.
 * @typedef {object} Reply
 * @property {number} [status] @property {Record<string, string>} [headers]
 * @property {Buffer | string} [body] @property {boolean} [cut]
 */

/** A node that has answered itself with timestamps, unless its script says something else. */
export class FakeNode {
  /** The counts of the requests for timestamps. @type {number[]} */
  asked = [];
  /** Their formats. @type {(string | null)[]} */
  formats = [];
  /** The requests for changes. @type {{ path: string, token: unknown, body: string }[]} */
  changes = [];
  connections = 0;
  cluster = "c1";
  /** @type {string | undefined} */ leader;
  /** @type {string[]} */ others = [];
  /** @type {Set<import("node:net").Socket>} */ sockets = new Set();

  /**
   * @param {(count: number, format: string | null) => Reply | Promise<Reply>} script
   * @param {http2.SecureServerOptions} [tls]
   */
  static async start(script, tls) {
    const node = new FakeNode();
    node.script = script;
    node.server = tls ? http2.createSecureServer(tls) : http2.createServer();
    node.server.on("stream", (stream, headers) => void node.serve(stream, headers));
    node.server.on("session", () => node.connections++);
    node.server.on("sessionError", () => {});
    node.server.on("connection", (socket) => {
      node.sockets.add(socket);
      socket.on("error", () => {});
    });
    node.server.listen(0, "127.0.0.1");
    await once(node.server, "listening");
    node.address = `127.0.0.1:${node.server.address().port}`;
    node.url = `${tls ? "https" : "http"}://${node.address}`;
    return node;
  }

  /** @param {Issuer} [issuer] @param {http2.SecureServerOptions} [tls] */
  static leading(issuer = new Issuer(), tls = undefined) {
    return FakeNode.start((count, format) => issuer.range(count, format), tls);
  }

  /** @param {http2.ServerHttp2Stream} stream @param {http2.IncomingHttpHeaders} headers */
  async serve(stream, headers) {
    stream.on("error", () => {});
    const path = `${headers[":path"]}`;
    if (path === "/members") {
      const addresses = [this.address, ...this.others];
      const members = addresses.map((addr, index) => ({ nodeID: index + 1, addr, voter: true }));
      const leader = this.leader && { nodeID: 9, addr: this.leader };
      stream.respond({ ":status": 200 });
      stream.end(JSON.stringify({ cluster: this.cluster, leader: leader ?? null, members }));
      return;
    }
    const query = new URLSearchParams(path.split("?")[1]);
    const [count, format] = [Number(query.get("n")), query.get("format")];
    if (headers[":method"] === "POST") {
      let body = "";
      for await (const chunk of stream) body += chunk;
      this.changes.push({ path, token: headers.authorization, body });
    } else {
      this.asked.push(count);
      this.formats.push(format);
    }
    const reply = await this.script(count, format);
    if (stream.destroyed) return;
    stream.respond({ ":status": reply.status ?? 200, ...reply.headers });
    if (!reply.cut) return void stream.end(reply.body ?? "");
    stream.write(reply.body, () => stream.session?.destroy());
  }

  /** Ends its connections. */
  cut() {
    for (const socket of this.sockets) socket.destroy();
    this.sockets.clear();
  }

  close() {
    this.cut();
    this.server.close();
  }
}

/** Passes bytes on to a node until it is frozen: then its connections stay, and are silent. */
export class TcpProxy {
  isFrozen = false;
  /** @type {Set<net.Socket>} */ sockets = new Set();

  /** @param {string} [to] Without an address nothing ever comes back. */
  static async start(to) {
    const proxy = new TcpProxy();
    proxy.server = net.createServer((client) => {
      proxy.sockets.add(client.on("error", () => {}));
      if (to === undefined) return;
      const node = net.connect(Number(to.split(":")[1]), "127.0.0.1").on("error", () => {});
      proxy.sockets.add(node);
      for (const [from, into] of [
        [client, node],
        [node, client],
      ]) {
        from.on("data", (bytes) => proxy.isFrozen || into.write(bytes));
        from.on("close", () => proxy.isFrozen || into.destroy());
      }
    });
    proxy.server.listen(0, "127.0.0.1");
    await once(proxy.server, "listening");
    proxy.address = `127.0.0.1:${proxy.server.address().port}`;
    return proxy;
  }

  close() {
    for (const socket of this.sockets) socket.destroy();
    this.server.close();
  }
}
