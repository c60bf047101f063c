// @ts-check
// The page of a node: asks the node twice a second, and shows what it answers. It asks no other
// node, and stores nothing.

/** The wait between two rounds of questions; it doubles while the node does not answer. */
const INTERVAL_MS = 500;
const INTERVAL_MAX_MS = 4000;
const EVENTS_MAX = 12;

/** @param {string} id */
function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 */
function elementAs(id, type) {
  const found = element(id);
  if (!(found instanceof type)) throw new Error(`${id} is another element`);
  return found;
}

/**
 * Sets a text, if it is another one: a screen reader reads changes.
 *
 * @param {Element | string} target
 * @param {string} text
 */
function setText(target, text) {
  const at = typeof target === "string" ? element(target) : target;
  if (at.textContent !== text) at.textContent = text;
}

/** @param {string} text */
function addEvent(text) {
  const line = document.createElement("p");
  line.textContent = `${new Date().toLocaleTimeString()} ${text}`;
  const events = element("events");
  events.prepend(line);
  while (events.childElementCount > EVENTS_MAX) events.lastElementChild?.remove();
}

/** @param {Member} member */
function memberLink(member) {
  const link = document.createElement("a");
  link.href = `${location.protocol}//${member.addr}/`;
  link.textContent = `node ${member.nodeID}`;
  return link;
}

/** @param {Sample} now */
function showTimestamps(now) {
  setText("rate", count(timestampRate(now, sampleBefore(now, 2000))));
  const before = sampleBefore(now, 10_000);
  for (const [id, quantile] of /** @type {[string, number][]} */ ([
    ["latency-50", 0.5],
    ["latency-99", 0.99],
    ["latency-999", 0.999],
  ])) {
    const time = quantileBetween("esker_timestamp_latency_seconds", quantile, now, before);
    setText(id, durationOrNone(time));
  }
  setText("waiting", count(value(now, "esker_requests_waiting")));
  const rates = samples.map((sample, at) => timestampRate(sample, samples[at - 2] ?? sample));
  const top = Math.max(...rates, 1);
  const first = SAMPLES_MAX - rates.length;
  const points = rates.map((rate, at) => `${first + at},${(23 - (rate / top) * 22).toFixed(1)}`);
  element("rates").querySelector("polyline")?.setAttribute("points", points.join(" "));
}

/** @param {Sample} now */
function showTime({ clock, members }) {
  const hasEpoch = clock.epoch > 0;
  setText("epoch", hasEpoch ? utc(clock.epoch) : "none yet");
  setText("clock", utc(clock.clock_ns));
  setText("epoch-age", hasEpoch ? duration((clock.clock_ns - clock.epoch) / 1e9) : "–");
  const compared = clock.spread_ns === null ? "not compared by this node" : null;
  const alone = members.length === 1 ? "there are none" : compared;
  setText("spread", alone ?? `at most ${duration((clock.spread_ns ?? 0) / 1e9)} from this one`);
}

/** @param {Sample} now */
function syncTimes(now) {
  const name = "esker_log_sync_duration_seconds";
  const before = sampleBefore(now, 10_000);
  const [sync50, sync99] = [0.5, 0.99].map((q) => quantileBetween(name, q, now, before));
  return { sync50: sync50 ?? null, sync99: sync99 ?? null };
}

/** @param {Sample} now */
function showDisk(now) {
  const { sync50, sync99 } = syncTimes(now);
  setText("sync-50", durationOrNone(sync50));
  setText("sync-99", durationOrNone(sync99));
  setText("disk-wait", duration(now.status.disk_wait_ms / 1000));
  setText("disk-bytes", mebibytes(value(now, "esker_log_disk_bytes")));
  setText("reserve", mebibytes(value(now, "esker_log_reserve_bytes")));
}

/** @param {unknown} error */
function describeError(error) {
  if (!(error instanceof Error)) return String(error);
  if (error.name === "TimeoutError") return "No answer in time";
  return error instanceof TypeError ? `No connection (${error.message})` : error.message;
}

/** @param {Sample} now */
function noteChanges(now) {
  const last = samples.at(-1)?.status;
  const { run, leader, term } = now.status;
  if (!last) return;
  if (last.run !== run) {
    // Its counters began again.
    samples = [];
    addEvent("This node was started again.");
  }
  if (last.leader !== leader) {
    addEvent(leader === null ? "No node leads." : `Node ${leader} leads.`);
  }
  if (last.term !== term) termChanges.push(now.at);
  termChanges = termChanges.filter((at) => now.at - at < 600_000).slice(-100);
}

/** @param {Sample} now */
function show(now) {
  noteChanges(now);
  samples.push(now);
  samples = samples.slice(-SAMPLES_MAX);
  const { status, members } = now;
  setText("node", `node ${status.nodeID}`);
  setText("cluster", `cluster ${status.cluster}`);
  setText("version", `Esker ${status.version}.`);
  showLeader(now);
  showMembers(now);
  showTimestamps(now);
  showTime(now);
  showDisk(now);
  const lags = (/** @type {Follower} */ { matched }) => (status.last ?? 0) - (matched ?? 0) > 1000;
  const names = (/** @type {Follower[]} */ nodes) => nodes.map(({ nodeID }) => `node ${nodeID}`);
  const away = names(status.followers.filter(isAway));
  const lagging = names(status.followers.filter(lags));
  showAlerts(findAlerts({ now, before: sampleBefore(now, 60_000), away, lagging }));
  if (document.body.classList.replace("stale", "fresh")) {
    element("away").hidden = true;
    addEvent(`This node answers again. It has ${members.length} members.`);
  }
}

/** @param {unknown} error */
function showAway(error) {
  if (!document.body.classList.contains("stale")) {
    document.body.classList.remove("fresh");
    document.body.classList.add("stale");
    const since = new Date().toLocaleTimeString();
    const last = samples.at(-1);
    const name = last ? `Node ${last.status.nodeID}` : "This node";
    setText("away-why", `${name} has not answered since ${since}. All below is of before that.`);
    const others = (last?.members ?? []).filter(({ nodeID }) => nodeID !== last?.status.nodeID);
    const links = others.flatMap((member) => [" ", memberLink(member)]);
    element("away-others").replaceChildren(
      ...(others.length > 0 ? ["Ask another:", ...links] : []),
    );
    element("away").hidden = false;
    addEvent(`${name} does not answer: ${describeError(error)}.`);
    document.title = `${name} does not answer`;
  }
}

/** @param {number} ms */
function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

async function waitUntilVisible() {
  while (document.hidden) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
    });
  }
}

async function run() {
  let waitMs = INTERVAL_MS;
  for (;;) {
    await waitUntilVisible();
    try {
      show(await askAll());
      waitMs = INTERVAL_MS;
    } catch (error) {
      showAway(error);
      waitMs = Math.min(waitMs * 2, INTERVAL_MAX_MS);
    }
    await sleep(waitMs);
  }
}

run();
