// TLS with certificates that the command openssl makes.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import * as esker from "../src/index.js";
import { FakeNode, scenario, TcpProxy, TEST_TIMEOUT_MS } from "./fake_node.js";

const folder = mkdtempSync(join(tmpdir(), "esker-tls-"));
after(() => rmSync(folder, { recursive: true }));
const skip = spawnSync("openssl", ["version"]).error !== undefined && "there is no openssl";

/** @param {string[]} args */
const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
/** @param {string} name */
const path = (name) => join(folder, name);
const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/** Makes an authority: `NAME.pem` and `NAME-key.pem`. @param {string} name */
function makeAuthority(name) {
  const files = ["-keyout", `${name}-key.pem`, "-out", `${name}.pem`];
  openssl("req", "-x509", ...newKey, ...files, "-subj", `/CN=${name}`, "-days", "2");
}

/**
 * Makes a certificate of an authority.
 * @param {string} name @param {string} ca @param {string} host
 */
function makeCertificate(name, ca, host, days = "1") {
  const request = ["-keyout", `${name}-key.pem`, "-out", `${name}.csr`, "-subj", `/CN=${name}`];
  openssl("req", ...newKey, ...request);
  writeFileSync(path(`${name}.ext`), `subjectAltName=${host}`);
  const sign = ["-CA", `${ca}.pem`, "-CAkey", `${ca}-key.pem`, "-CAcreateserial", "-days", days];
  openssl(
    "x509",
    "-req",
    "-in",
    `${name}.csr`,
    "-out",
    `${name}.pem`,
    ...sign,
    "-extfile",
    `${name}.ext`,
  );
}

/** The options of a node with this certificate. @param {string} name @param {object} [options] */
function server(name, options) {
  const [cert, key] = [`${name}.pem`, `${name}-key.pem`].map((file) => readFileSync(path(file)));
  return { cert, key, minVersion: /** @type {const} */ ("TLSv1.3"), ...options };
}

if (!skip) {
  makeAuthority("ca");
  makeAuthority("other");
  makeCertificate("node", "ca", "IP:127.0.0.1");
  makeCertificate("elsewhere", "ca", "DNS:elsewhere.example");
  makeCertificate("ended", "ca", "IP:127.0.0.1", "-1");
  makeCertificate("stranger", "other", "IP:127.0.0.1");
  makeCertificate("client", "ca", "DNS:client");
}

/** @param {string} url @param {Partial<esker.ClientOptions>} [options] */
function connect(url, options) {
  const timeouts = { timeoutMs: TEST_TIMEOUT_MS, connectTimeoutMs: TEST_TIMEOUT_MS };
  return new esker.Client({ endpoints: [url], caFile: path("ca.pem"), ...timeouts, ...options });
}

/** The failure of a node that cannot be asked. @param {esker.Client} client */
async function failure(client) {
  const end = performance.now() + TEST_TIMEOUT_MS;
  let error;
  while (error?.cause === undefined && performance.now() < end) {
    error = await client.timestamp({ timeoutMs: 200 }).catch((error) => error);
    assert.ok(error instanceof esker.DeadlineError, `${error}`);
  }
  client.close();
  return /** @type {esker.AttemptError} */ (error.cause);
}

scenario(
  "a leader is followed over TLS",
  async (use) => {
    const leader = use(await FakeNode.leading(undefined, server("node")));
    const headers = { "esker-leader": leader.address };
    const follower = use(await FakeNode.start(() => ({ status: 409, headers }), server("node")));
    const client = use(connect(follower.url));
    assert.equal((await client.timestamp()).index, 1n);
    assert.deepEqual([follower.asked.length, leader.asked.length], [1, 1]);
  },
  { skip },
);

scenario(
  "a node that cannot be trusted is not asked, and the error says why",
  async (use) => {
    const cases = [
      ["stranger", /unable to verify|self-signed|unable to get/],
      ["ended", /expired/],
      ["elsewhere", /is not in the cert's/],
    ];
    for (const [name, why] of cases) {
      const node = use(await FakeNode.start(() => assert.fail("it got a request"), server(name)));
      const error = await failure(connect(node.url));
      assert.deepEqual([error.kind, error.address], ["tls", node.address]);
      assert.match(error.message, why);
    }
  },
  { skip },
);

scenario(
  "an older version of TLS, no TLS, and TLS over http are failures",
  async (use) => {
    const version = /** @type {const} */ ({ minVersion: "TLSv1.2", maxVersion: "TLSv1.2" });
    const old = use(await FakeNode.start(() => ({}), server("node", version)));
    assert.equal((await failure(connect(old.url))).kind, "tls");
    const plain = use(await FakeNode.start(() => ({})));
    assert.equal((await failure(connect(`https://${plain.address}`))).kind, "tls");
    const tls = use(await FakeNode.start(() => ({}), server("node")));
    await failure(connect(`http://${tls.address}`, { caFile: undefined }));
    assert.deepEqual([old.asked, plain.asked, tls.asked], [[], [], []]);
  },
  { skip },
);

scenario(
  "a client shows its certificate, and reads renewed files again",
  async (use) => {
    const ca = readFileSync(path("ca.pem"));
    const wanted = { ca, requestCert: true, rejectUnauthorized: true };
    const node = use(await FakeNode.leading(undefined, server("node", wanted)));
    const without = await failure(connect(node.url));
    assert.deepEqual([without.kind, without.address], ["tls", node.address]);
    assert.match(without.message, /certificate required/);
    const show = (/** @type {string} */ name) => {
      for (const suffix of [".pem", "-key.pem"]) {
        copyFileSync(path(name + suffix), path(`shown${suffix}`));
      }
    };
    show("stranger");
    const files = { certFile: path("shown.pem"), keyFile: path("shown-key.pem") };
    const client = use(connect(node.url, files));
    await assert.rejects(client.timestamp({ timeoutMs: 500 }), esker.DeadlineError);
    show("client");
    await client.timestamp();
    // While files cannot be used, those of before are.
    writeFileSync(path("shown.pem"), "half");
    node.cut();
    await client.timestamp();
    assert.ok(node.connections > 1);
  },
  { skip },
);

scenario(
  "a handshake that never ends is given up",
  async (use) => {
    const silent = use(await TcpProxy.start());
    const node = use(await FakeNode.leading(undefined, server("node")));
    const endpoints = [`https://${silent.address}`, node.url];
    const client = use(connect(node.url, { endpoints, connectTimeoutMs: 1000 }));
    for (let round = 0; round < 4; round++) {
      node.cut();
      await client.timestamp();
    }
  },
  { skip },
);
