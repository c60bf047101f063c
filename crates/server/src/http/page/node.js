// @ts-check
// Asks the node what every client may ask, and computes figures of its answers.

/**
 * Numbers of nodes are text: they have 64 bits.
 *
 * @typedef {{ nodeID: string, matched: number | null, heard_ms: number | null, answers: boolean }} Follower
 * @typedef {{ nodeID: string, addr: string, voter: boolean }} Member
 * @typedef {{
 *   nodeID: string, cluster: string, role: string, term: number, leader: string | null,
 *   leader_age_ms: number | null, last: number | null, blocked?: string, reverted: number[],
 *   followers: Follower[], disk_wait_ms: number, version: string, run: string,
 * }} Status
 * @typedef {{ clock_ns: number, epoch: number, spread_ns: number | null, step_ns: number }} Clock
 * @typedef {Map<string, number>} Metrics
 * @typedef {{
 *   at: number, status: Status, members: Member[], changing: boolean, clock: Clock, metrics: Metrics,
 * }} Sample
 */

/** The time of all questions of a round. */
const ROUND_TIMEOUT_MS = 2000;
/** The samples that are kept: those of a minute. */
const SAMPLES_MAX = 121;

/** The last samples, the newest at the end. @type {Sample[]} */
let samples = [];

/**
 * @param {string} path
 * @param {AbortSignal} signal
 */
async function ask(path, signal) {
  const answer = await fetch(path, { cache: "no-store", signal });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${answer.status} ${text}`);
  return text;
}

/**
 * Parses JSON, with the numbers of nodes as text.
 *
 * @param {string} text
 */
function parse(text) {
  return JSON.parse(text.replace(/"(nodeID|leader)":(\d+)/g, '"$1":"$2"'));
}

/**
 * @param {string} text The text format of Prometheus.
 * @returns {Metrics}
 */
function parseMetrics(text) {
  const metrics = new Map();
  for (const line of text.split("\n")) {
    const space = line.lastIndexOf(" ");
    if (space > 0 && !line.startsWith("#")) {
      metrics.set(line.slice(0, space), Number(line.slice(space + 1)));
    }
  }
  return metrics;
}

/**
 * Asks all questions, one after another.
 *
 * @returns {Promise<Sample>}
 */
async function askAll() {
  const signal = AbortSignal.timeout(ROUND_TIMEOUT_MS);
  const status = parse(await ask("status", signal));
  const { members, changing } = parse(await ask("members", signal));
  const clock = parse(await ask("clock", signal));
  const metrics = parseMetrics(await ask("metrics", signal));
  return { at: performance.now(), status, members, changing, clock, metrics };
}

/**
 * Returns the newest sample that is as old as this, or else the oldest.
 *
 * @param {Sample} now
 * @param {number} ageMs
 */
function sampleBefore(now, ageMs) {
  return samples.findLast((sample) => now.at - sample.at >= ageMs) ?? samples[0] ?? now;
}

/**
 * Returns a metric without labels; 0 if there is none.
 *
 * @param {Sample} sample
 * @param {string} name
 */
function value(sample, name) {
  return sample.metrics.get(name) ?? 0;
}

/**
 * Returns the sum of the metrics whose names begin so.
 *
 * @param {Sample} sample
 * @param {string} prefix
 */
function sum(sample, prefix) {
  let total = 0;
  for (const [name, value] of sample.metrics) if (name.startsWith(prefix)) total += value;
  return total;
}

/**
 * @param {Sample} now
 * @param {Sample} before
 * @param {string[]} prefixes
 */
function increase(now, before, ...prefixes) {
  return prefixes.reduce((total, prefix) => total + sum(now, prefix) - sum(before, prefix), 0);
}

/**
 * @param {Sample} now
 * @param {Sample} before
 */
function timestampRate(now, before) {
  const seconds = (now.at - before.at) / 1000;
  const issued = value(now, "esker_timestamps_total") - value(before, "esker_timestamps_total");
  return seconds > 0 ? issued / seconds : 0;
}

/**
 * Returns a quantile of a histogram in seconds, between two samples; `null` if it has no value.
 *
 * @param {string} name
 * @param {number} quantile
 * @param {Sample} now
 * @param {Sample} before
 */
function quantileBetween(name, quantile, now, before) {
  const prefix = `${name}_bucket{le="`;
  const buckets = [];
  for (const [key, value] of now.metrics) {
    if (!key.startsWith(prefix)) continue;
    const end = key.slice(prefix.length, -2);
    const values = value - (before.metrics.get(key) ?? 0);
    buckets.push({ end: end === "+Inf" ? Number.POSITIVE_INFINITY : Number(end), values });
  }
  const rank = quantile * (buckets.at(-1)?.values ?? 0);
  if (!(rank > 0)) return null;
  let [begin, below] = [0, 0];
  for (const { end, values } of buckets) {
    if (values >= rank) {
      return end === Number.POSITIVE_INFINITY
        ? begin
        : begin + ((end - begin) * (rank - below)) / (values - below);
    }
    [begin, below] = [end, values];
  }
  return begin;
}
