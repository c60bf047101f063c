// A client against nodes that misbehave.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import test from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import * as esker from "../src/index.js";
import {
  FakeNode,
  Issuer,
  issued,
  scenario,
  TcpProxy,
  TEST_TIMEOUT_MS,
  until,
} from "./fake_node.js";

/** @param {(string | undefined)[]} endpoints @param {Partial<esker.ClientOptions>} [options] */
function connect(endpoints, options) {
  const timeouts = { timeoutMs: TEST_TIMEOUT_MS, connectTimeoutMs: TEST_TIMEOUT_MS };
  return new esker.Client({ endpoints, ...timeouts, ...options });
}

/** A script of answers that wait until they are released, in the order of the requests. */
function held(issuer = new Issuer()) {
  /** @type {(() => void)[]} */
  const waiting = [];
  return {
    script: (count) => {
      const reply = issuer.range(count);
      return new Promise((resolve) => waiting.push(() => resolve(reply)));
    },
    release: () => waiting.shift()?.(),
    /** Waits until so many requests wait. */
    requests: (count) => until(() => waiting.length >= count),
  };
}

scenario("concurrent calls share a request, and get ranges of their own", async (use) => {
  const node = use(await FakeNode.leading());
  const client = use(connect([node.url]));
  const ranges = await Promise.all([1, 5, 2].map((count) => client.timestamps(count)));
  assert.deepEqual(node.asked, [8]);
  const indexes = ranges.flatMap((range) => [...range].map(({ index }) => Number(index)));
  assert.deepEqual(indexes, [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.equal((await client.timestamp()).index, 9n);
  assert.equal(node.connections, 1);
});

scenario("a call joins no request that was sent, and two are in flight at most", async (use) => {
  const answers = held();
  const node = use(await FakeNode.start(answers.script));
  const client = use(connect([node.url]));
  const calls = [client.timestamps(1)];
  await answers.requests(1);
  calls.push(client.timestamps(2));
  await answers.requests(2);
  calls.push(client.timestamps(3), client.timestamps(4));
  // The third request is sent when an answer is there.
  await sleep(50);
  assert.deepEqual(node.asked, [1, 2]);
  answers.release();
  await calls[0];
  await answers.requests(2);
  assert.deepEqual(node.asked, [1, 2, 7]);
  answers.release();
  answers.release();
  await Promise.all(calls);
});

scenario("a request has at most as many timestamps as it may", async (use) => {
  const node = use(await FakeNode.leading());
  const client = use(connect([node.url], { maxTimestamps: 10 }));
  await Promise.all([6, 6, 4, 10].map((count) => client.timestamps(count)));
  assert.deepEqual(node.asked, [6, 10, 10]);
  for (const count of [0, 11, 1.5, NaN]) {
    await assert.rejects(client.timestamps(count), esker.OptionError);
  }
});

scenario("the leader that a 409 names is asked, also if no list has it", async (use) => {
  const leader = use(await FakeNode.leading());
  const headers = { "esker-leader": leader.address };
  const follower = use(await FakeNode.start(() => ({ status: 409, headers })));
  const client = use(connect([follower.url]));
  await client.timestamp();
  await client.timestamp();
  assert.deepEqual([follower.asked.length, leader.asked.length], [1, 2]);
});

scenario(
  "the leader that a list names is asked, or the node itself if it cannot be",
  async (use) => {
    const leader = use(await FakeNode.leading());
    const follower = use(await FakeNode.leading());
    follower.leader = leader.address;
    await use(connect([follower.url])).timestamp();
    assert.deepEqual([follower.asked.length, leader.asked.length], [0, 1]);
    follower.leader = "127.0.0.1:1";
    await use(connect([follower.url])).timestamp();
    assert.equal(follower.asked.length, 1);
  },
);

scenario("nodes that name each other are asked with waits", async (use) => {
  const nodes = [];
  for (let index = 0; index < 2; index++) {
    const named = () => ({ status: 409, headers: { "esker-leader": nodes[1 - index].address } });
    nodes.push(use(await FakeNode.start(named)));
  }
  const client = use(connect(nodes.map((node) => node.url)));
  const error = await client.timestamp({ timeoutMs: 1000 }).catch((error) => error);
  assert.ok(error instanceof esker.DeadlineError);
  assert.equal(error.cause.kind, "not-leader");
  // Waits of 2, 4, 8, 16, 32 and then 50 ms at the least.
  const asked = nodes[0].asked.length + nodes[1].asked.length;
  assert.ok(asked > 0 && asked < 30, `${asked} requests in a second`);
});

scenario("a leader that has just failed is not asked at once", async (use) => {
  /** @type {string[]} */
  const order = [];
  const issuer = new Issuer();
  const failed = use(await FakeNode.start(() => order.push("f") && { status: 500 }));
  const headers = { "esker-leader": failed.address };
  const follower = use(await FakeNode.start(() => order.push("n") && { status: 409, headers }));
  const leader = use(await FakeNode.start((count) => order.push("l") && issuer.range(count)));
  const endpoints = [failed, follower, leader].map((node) => node.url);
  for (let round = 0; round < 30; round++) await use(connect(endpoints)).timestamp();
  const asked = order.join("");
  assert.ok(asked.includes("f") && asked.includes("n") && !asked.includes("fnf"), asked);
});

scenario("the reason of the leader is not hidden by followers", async (use) => {
  const leader = use(await FakeNode.start(() => ({ status: 500, body: "no quorum" })));
  const headers = { "esker-leader": leader.address };
  const follower = use(await FakeNode.start(() => ({ status: 409, headers })));
  const client = use(connect([leader.url, follower.url]));
  const error = await client.timestamp({ timeoutMs: 2000 }).catch((error) => error);
  assert.match(error.cause.message, /status 500: no quorum/);
  assert.equal(error.cause.address, leader.address);
});

scenario("calls outlast a leader that is gone", async (use) => {
  const issuer = new Issuer();
  const second = use(await FakeNode.start(() => ({ status: 500, body: "no node leads" })));
  const first = use(await FakeNode.leading(issuer));
  first.others = [second.address];
  const client = use(connect([first.url]));
  let last = await client.timestamp();
  first.close();
  const calls = Array.from({ length: 10 }, () => client.timestamp());
  await until(() => second.asked.length >= 3);
  second.script = (count) => issuer.range(count);
  for (const timestamp of await Promise.all(calls)) {
    assert.equal(last.compare(timestamp), -1);
    last = timestamp;
  }
});

scenario("answers that are wrong or cut off are asked for again", async (use) => {
  const issuer = new Issuer();
  const replies = [
    { status: 500, body: "no answer in time" },
    { status: 302, headers: { location: "http://127.0.0.1:1/" } },
    { status: 404 },
    { body: "" },
    { body: Buffer.alloc(24) },
    { body: Buffer.alloc(2 << 20) },
    { ...issuer.range(1), cut: true },
    { body: issuer.range(1).body.subarray(0, 12), cut: true },
  ];
  const node = use(await FakeNode.start((count) => replies.shift() ?? issuer.range(count)));
  const client = use(connect([node.url]));
  assert.equal((await client.timestamp()).index, 3n);
  assert.equal(node.asked.length, 9);
});

scenario("an answer that is too long is not read to its end", async (use) => {
  const node = use(await FakeNode.start(() => ({ body: Buffer.alloc(2 << 20) })));
  const client = use(connect([node.url]));
  const error = await client.timestamp({ timeoutMs: 3000 }).catch((error) => error);
  assert.match(error.cause.message, /too long/);
});

scenario("a busy node is asked again, not before the time that it names", async (use) => {
  const issuer = new Issuer();
  let refused;
  const node = use(
    await FakeNode.start((count) => {
      if (refused !== undefined) return issuer.range(count);
      refused = performance.now();
      return { status: 503, headers: { "retry-after": "1" } };
    }),
  );
  await use(connect([node.url])).timestamp();
  // A timer may be early by a millisecond.
  assert.ok(performance.now() - refused > 995);
});

scenario("a request that is refused is not repeated", async (use) => {
  const node = use(await FakeNode.start(() => ({ status: 400, body: "invalid n param" })));
  const client = use(connect([node.url]));
  const error = await client.timestamp().catch((error) => error);
  assert.ok(error instanceof esker.RefusedError);
  assert.match(error.cause.message, /invalid n param/);
  assert.equal(node.asked.length, 1);
});

scenario("a node of another cluster is not asked", async (use) => {
  const other = use(await FakeNode.leading());
  other.cluster = "c2";
  const client = use(connect([other.url], { cluster: "c1" }));
  const error = await client.timestamp({ timeoutMs: 2000 }).catch((error) => error);
  assert.deepEqual([error.name, error.cause.kind], ["DeadlineError", "other-cluster"]);
  assert.equal(other.asked.length, 0);
});

scenario("a timestamp that is not above the last is an error", async (use) => {
  const issuer = new Issuer();
  const node = use(await FakeNode.leading(issuer));
  const client = use(connect([node.url]));
  await client.timestamps(10);
  issuer.next = 10n;
  await assert.rejects(client.timestamp(), esker.NotMonotonicError);
  assert.equal((await client.timestamp()).index, 11n);
});

scenario("timestamps of 64 bits are those of the answer", async (use) => {
  const node = use(await FakeNode.leading());
  const client = use(connect([node.url]));
  const bits = (/** @type {bigint} */ index) => (1_700_000_000_000n << 18n) + index;
  assert.equal(await client.timestampU64(), bits(1n));
  const three = await client.timestampsU64(3);
  assert.deepEqual([...three], [bits(2n), bits(3n), bits(4n)]);
  assert.deepEqual([three.first, three.last, three.count], [bits(2n), bits(4n), 3]);
  assert.deepEqual(node.formats, ["u64-range", "u64-range"]);
  await assert.rejects(client.timestampsU64(0), esker.OptionError);
});

scenario("calls of both widths share a request of each", async (use) => {
  const node = use(await FakeNode.leading());
  const client = use(connect([node.url]));
  const calls = Array.from({ length: 20 }, () => [client.timestamps(2), client.timestampsU64(3)]);
  const ranges = await Promise.all(calls.flat());
  const indexes = ranges.flatMap((range) =>
    [...range].map((it) => BigInt(it.index ?? it & 0xffffn)),
  );
  assert.equal(new Set(indexes).size, 20 * 5);
  assert.deepEqual(node.asked, [40, 60]);
  assert.deepEqual(node.formats, ["range", "u64-range"]);
});

scenario("a timestamp is above those of both widths that were received", async (use) => {
  const epoch = 1_700_000_000_000_999_999n;
  const node = use(await FakeNode.start(() => assert.fail("it has no script")));
  const client = use(connect([node.url]));
  const answers = (/** @type {bigint} */ index) => {
    const number = ((epoch / 1_000_000n) << 18n) + index;
    node.script = (count, format) =>
      issued(...(format === "range" ? [epoch, index] : [number]), BigInt(count));
  };
  const isLower = async () => {
    for (const call of [client.timestamp(), client.timestampU64()]) {
      await assert.rejects(call, esker.NotMonotonicError);
    }
  };
  answers(5n);
  await client.timestamps(5);
  for (const lower of [1n, 9n]) {
    answers(lower);
    await isLower();
  }
  answers(10n);
  await client.timestampU64();
  for (const lower of [1n, 10n]) {
    answers(lower);
    await isLower();
  }
  answers(11n);
  assert.deepEqual(await client.timestamp(), new esker.Timestamp(epoch, 11n));
});

scenario("answers of two requests may cross", async (use) => {
  const replies = [];
  const node = use(await FakeNode.start(() => new Promise((resolve) => replies.push(resolve))));
  const client = use(connect([node.url]));
  const issuer = new Issuer();
  const calls = [client.timestamp()];
  await until(() => replies.length === 1);
  calls.push(client.timestamp());
  await until(() => replies.length === 2);
  const first = issuer.range(1);
  replies[1](issuer.range(1));
  assert.equal((await calls[1]).index, 2n);
  replies[0](first);
  assert.equal((await calls[0]).index, 1n);
});

scenario("a node that falls silent is left", async (use) => {
  const issuer = new Issuer();
  const answers = held(issuer);
  const frozen = use(await FakeNode.start(answers.script));
  const proxy = use(await TcpProxy.start(frozen.address));
  const other = use(await FakeNode.leading(issuer));
  frozen.address = proxy.address;
  frozen.others = [other.address];
  const client = use(connect([proxy.address]));
  const call = client.timestamp();
  await answers.requests(1);
  proxy.isFrozen = true;
  const began = performance.now();
  const change = await client.change("/cluster/x", "{}").catch((error) => error);
  assert.match(change.cause.message, /PING/);
  assert.ok(performance.now() - began > 250, "a PING has 300 ms, less a tick");
  assert.equal((await call).index, 2n);
});

scenario("a node that answers pings alone is left", async (use) => {
  const issuer = new Issuer();
  const silent = use(await FakeNode.start(() => new Promise(() => {})));
  const other = use(await FakeNode.leading(issuer));
  silent.others = [other.address];
  const began = performance.now();
  await use(connect([silent.url])).timestamp();
  assert.ok(performance.now() - began > 1400, "a node may take a second for its answer");
});

scenario("a host that never answers does not hold up others", async (use) => {
  const silent = use(await TcpProxy.start());
  const node = use(await FakeNode.leading());
  const client = use(connect([silent.address, node.address], { connectTimeoutMs: 200 }));
  for (let round = 0; round < 5; round++) {
    node.cut();
    await client.timestamp();
  }
});

scenario("a connection that was closed while idle is made again, without a wait", async (use) => {
  const node = use(await FakeNode.leading());
  const other = use(await FakeNode.leading());
  other.leader = node.address;
  const client = use(connect([other.url]));
  await client.timestamp();
  node.cut();
  // The client is in this process: it has seen the end before the timer ends.
  await sleep(50);
  assert.equal((await client.timestamp()).index, 2n);
  assert.deepEqual([node.connections, other.connections], [2, 1]);
});

scenario("deadlines hold, and name the last failure", async (use) => {
  const client = use(connect(["127.0.0.1:1"]));
  const error = await client.timestamp({ timeoutMs: 1000 }).catch((error) => error);
  assert.ok(error instanceof esker.DeadlineError && error.cause instanceof esker.AttemptError);
  assert.deepEqual([error.cause.kind, error.cause.address], ["connection", "127.0.0.1:1"]);
  for (const timeoutMs of [NaN, 2 ** 31]) {
    await assert.rejects(client.timestamp({ timeoutMs }), esker.OptionError);
  }
});

scenario("a deadline that has passed sends nothing", async (use) => {
  const node = use(await FakeNode.leading());
  const client = use(connect([node.url]));
  for (const timeoutMs of [0, -1]) {
    await assert.rejects(client.timestamp({ timeoutMs }), esker.DeadlineError);
  }
  await client.timestamp();
  assert.deepEqual(node.asked, [1]);
});

scenario("short deadlines do not keep a client from its node", async (use) => {
  const silent = use(await TcpProxy.start());
  const node = use(await FakeNode.leading());
  const client = use(connect([silent.address, node.address], { connectTimeoutMs: 1000 }));
  const end = performance.now() + TEST_TIMEOUT_MS;
  let answer;
  while (!(answer instanceof esker.Timestamp) && performance.now() < end) {
    answer = await client.timestamp({ timeoutMs: 20 }).catch((error) => error);
  }
  assert.ok(answer instanceof esker.Timestamp, `${answer}`);
});

scenario("a call that is aborted ends, and its timestamps are lost", async (use) => {
  const answers = held();
  const node = use(await FakeNode.start(answers.script));
  const client = use(connect([node.url]));
  const abort = new AbortController();
  const aborted = client.timestamps(2, { signal: abort.signal });
  const kept = client.timestamps(3);
  await answers.requests(1);
  abort.abort(new Error("enough"));
  await assert.rejects(aborted, /enough/);
  await assert.rejects(client.timestamp({ signal: abort.signal }), /enough/);
  answers.release();
  assert.equal((await kept).first.index, 3n);
  const waiting = new AbortController();
  const calls = [client.timestamp(), client.timestamps(5, { signal: waiting.signal })];
  waiting.abort();
  await assert.rejects(calls[1], { name: "AbortError" });
  await answers.requests(1);
  answers.release();
  assert.equal((await calls[0]).index, 6n);
  assert.deepEqual(node.asked, [5, 1]);
});

scenario("calls beyond the queue are refused at once", async (use) => {
  const silent = use(await TcpProxy.start());
  const client = use(connect([silent.address], { queue: 2 }));
  const calls = [0, 1, 2].map(() => client.timestamp({ timeoutMs: 300 }));
  await assert.rejects(calls[2], esker.BusyError);
  for (const call of calls.slice(0, 2)) await assert.rejects(call, esker.DeadlineError);
});

scenario("a client that is closed ends its calls", async (use) => {
  const answers = held();
  const node = use(await FakeNode.start(answers.script));
  const client = use(connect([node.url]));
  const calls = [client.timestamp(), client.change("/cluster/x", "{}")];
  await answers.requests(2);
  client.close();
  for (const call of [...calls, client.timestamp()]) await assert.rejects(call, esker.ClosedError);
});

scenario("a change goes to the leader, once, with the token", async (use) => {
  const leader = use(await FakeNode.start(() => ({ status: 422, body: "no such node" })));
  const headers = { "esker-leader": leader.address };
  const follower = use(await FakeNode.start(() => ({ status: 409, headers })));
  const client = use(connect([follower.url], { token: "secret" }));
  const answer = await client.change("/cluster/remove", '{"nodeID":4}');
  assert.deepEqual(answer, { status: 422, body: "no such node" });
  const change = { path: "/cluster/remove", token: "Bearer secret", body: '{"nodeID":4}' };
  assert.deepEqual([follower.changes, leader.changes], [[change], [change]]);
});

scenario("a change is repeated only where nothing was done", async (use) => {
  const replies = [];
  const node = use(await FakeNode.start(() => replies.shift() ?? { body: "done" }));
  const client = use(connect([node.url]));
  const change = () => client.change("/cluster/x", "{}").catch((error) => error);
  replies.push({ status: 503 }, { status: 409 });
  assert.equal((await change()).body, "done");
  for (const status of [401, 403]) {
    replies.push({ status, body: "give a token" });
    assert.ok((await change()) instanceof esker.DeniedError);
  }
  replies.push({ status: 500 }, { body: "do", cut: true }, new Promise(() => {}));
  for (let times = 0; times < 2; times++) {
    assert.ok((await change()) instanceof esker.UnknownOutcomeError);
  }
  const late = await client.change("/cluster/x", "{}", { timeoutMs: 3000 }).catch((error) => error);
  assert.ok(late instanceof esker.UnknownOutcomeError, `${late}`);
  assert.equal(node.changes.length, 8);
});

scenario("an idle client does not keep the process alive", async (use) => {
  const node = use(await FakeNode.leading());
  const source = new URL("../src/index.js", import.meta.url);
  const script = `import { Client } from "${source}";
    console.log(String(await new Client({ endpoints: ["${node.url}"] }).timestamp()));`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: "inherit",
  });
  use({ close: () => child.kill() });
  const [code] = await once(child, "exit", { signal: AbortSignal.timeout(TEST_TIMEOUT_MS) });
  assert.equal(code, 0);
});

test("invalid options are refused", () => {
  /** @type {any[]} */
  const wrong = [
    { endpoints: [] },
    { endpoints: ["http://a"] },
    { endpoints: ["ftp://a:80"] },
    { endpoints: ["a:0"] },
    { endpoints: ["a:80/path"] },
    { endpoints: ["http://a:80", "https://b:80"] },
    { endpoints: ["http://a:80"], caFile: "ca.pem" },
    { endpoints: ["https://a:80"], caFile: "/no/such/file" },
    { endpoints: ["https://a:80"], caFile: import.meta.filename },
    { endpoints: ["https://a:80"], certFile: "cert.pem" },
    { endpoints: ["a:80"], timeoutMs: 0 },
    { endpoints: ["a:80"], queue: -1 },
    { endpoints: ["a:80"], maxTimestamps: 65_537 },
    { endpoints: ["a:80"], token: "two words" },
    { endpoints: ["a:80"], token: "" },
    { endpoints: ["a:80"], format: "u64" },
    { endpoints: ["256.1.1.1:80"] },
    { endpoints: Array.from({ length: 65 }, () => "a:80") },
  ];
  for (const options of wrong) {
    assert.throws(() => new esker.Client(options), esker.OptionError, JSON.stringify(options));
  }
  for (const endpoint of ["node_1.example:1", "http://[::1]:65535/", "0.0.0.0:80", "a-b:80"]) {
    new esker.Client({ endpoints: [endpoint] });
  }
});
