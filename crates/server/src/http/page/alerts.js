// @ts-check
// Alerts in words, with the remedy: those of packaging/prometheus/alerts.yml that a node sees by
// itself.

/** The time after which a node that does not acknowledge its leader is away. */
const AWAY_MS = 1000;

/** Since when a condition holds, by its name. @type {Map<string, number>} */
const heldSince = new Map();
/** When terms changed, in the last ten minutes. @type {number[]} */
let termChanges = [];

/**
 * Returns for how many milliseconds a condition has held; 0 if it does not.
 *
 * @param {string} name
 * @param {boolean} holds
 */
function heldFor(name, holds) {
  if (!holds) {
    heldSince.delete(name);
    return 0;
  }
  const since = heldSince.get(name) ?? performance.now();
  heldSince.set(name, since);
  return Math.max(performance.now() - since, 1);
}

/** @param {Follower} follower */
function isAway(follower) {
  return heldFor(`away ${follower.nodeID}`, !follower.answers) >= AWAY_MS;
}

/** @typedef {{ now: Sample, before: Sample, away: string[], lagging: string[] }} Situation */

/**
 * `find` describes what is wrong, and returns nothing if it is not. `afterMs` is how long that has
 * to hold.
 *
 * @type {{
 *   name: string, afterMs?: number, find: (situation: Situation) => string | false, remedy: string,
 * }[]}
 */
const ALERTS = [
  {
    name: "no leader",
    afterMs: 5000,
    find: ({ now }) => now.status.leader === null && "This node knows no leader.",
    remedy:
      "No timestamp is issued. Start the voters that are down, and look at the network: more than " +
      "half of them have to reach one another.",
  },
  {
    name: "no timestamp can be issued",
    find: ({ now }) => now.status.blocked ?? false,
    remedy: "Set the clock of this node right. Timestamps come with the next request.",
  },
  {
    name: "this node was removed",
    find: ({ now }) => now.status.role === "removed" && "Its cluster goes without it.",
    remedy: "Stop it. A node that is to replace it needs an empty folder and a new number.",
  },
  {
    name: "a node is away",
    find: ({ away }) => away.length > 0 && `No answer from ${away.join(", ")}.`,
    remedy:
      "Start it on its data: the last line of its log says why it ended. If its data is lost, " +
      "remove it, and let a node with a new number join.",
  },
  {
    name: "the log of a node was reverted",
    find: ({ now }) =>
      now.status.reverted.length > 0 &&
      `Node ${now.status.reverted.join(", node ")} lacked what it had acknowledged.`,
    remedy:
      "Its data is of an earlier time, and timestamps may have come twice. Stop it, remove it, and " +
      "let a node with an empty folder and a new number join.",
  },
  {
    name: "a change of the members is not completed",
    afterMs: 60_000,
    find: ({ now }) => now.changing && "The voters are being changed.",
    remedy:
      "More than half of the old and of the new voters have to run: start those that are down.",
  },
  {
    name: "leadership moves",
    find: () => termChanges.length > 3 && `${termChanges.length} terms in ten minutes.`,
    remedy:
      "Look at network and processors of the nodes. If a host is slow for good, raise --rtt-ms.",
  },
  {
    name: "a node lags",
    afterMs: 60_000,
    find: ({ lagging }) => lagging.length > 0 && `More than 1,000 entries: ${lagging.join(", ")}.`,
    remedy: "It catches up by itself, unless its disk or network is slower than the others'.",
  },
  {
    name: "the disk is slow",
    afterMs: 5000,
    find: ({ now, before }) => {
      const sync = quantileBetween("esker_log_sync_duration_seconds", 0.99, now, before) ?? 0;
      if (now.status.disk_wait_ms > 200) return `An entry waits: ${now.status.disk_wait_ms} ms.`;
      return sync > 0.05 && `One sync of a hundred takes ${duration(sync)}.`;
    },
    remedy: "Look at the disk of this node, and at what else writes to it.",
  },
  {
    name: "the disk is full, or too small",
    find: ({ now }) => {
      const reserve = value(now, "esker_log_reserve_bytes");
      const isLow = reserve < 0.9 * value(now, "esker_log_reserve_wanted_bytes");
      return isLow && `${mebibytes(reserve)} are left of the reserve.`;
    },
    remedy: "Make room on the disk of this node. Without it the node ends.",
  },
  {
    name: "clients are refused",
    find: ({ now, before }) => {
      const prefix = "esker_http_answers_total{status=";
      const refused = increase(now, before, `${prefix}"500"`, `${prefix}"503"`);
      return refused > 0 && `${count(refused)} answers of 500 or 503 in the last minute.`;
    },
    remedy:
      "For more than a second without an election: look at disks and network of all nodes, at " +
      "--timestamp-request-buffer, and at the log of this node.",
  },
  {
    name: "all connections are in use",
    find: ({ now, before }) =>
      increase(now, before, "esker_http_connections_over_limit_total") > 0 &&
      `${count(value(now, "esker_http_connections"))} are open.`,
    remedy: "Find the client that opens them, or raise --connections and the limit of open files.",
  },
  {
    name: "a clock is wrong",
    find: ({ now }) => {
      const spread = (now.clock.spread_ns ?? 0) / 1e9;
      return spread > 1 && `The clocks of two nodes differ by ${duration(spread)}.`;
    },
    remedy: "Find the host whose clock is wrong, and set it right (chrony or NTP).",
  },
  {
    name: "epochs do not follow the clock",
    afterMs: 60_000,
    find: ({ now }) => {
      const step = now.clock.step_ns / 1e9;
      return step !== 0 && `The clock of this node is ${duration(step)} ahead of the epoch.`;
    },
    remedy: "Set the clock right. If it is right, and far ahead: esker cluster follow-clock.",
  },
  {
    name: "a task failed",
    find: ({ now }) => value(now, "esker_tasks_failed_total") > 0 && "A bug in this node.",
    remedy: "Keep the log of this node, which has the panic, and report it.",
  },
  {
    name: "a certificate ends",
    find: ({ now }) => {
      const ends = ["esker_certificate_expiry_seconds", "esker_peer_certificate_expiry_seconds"];
      const left = ends.map((name) => now.metrics.get(name) ?? Number.POSITIVE_INFINITY);
      const seconds = Math.min(...left) - now.clock.clock_ns / 1e9;
      return seconds < 14 * 86_400 && (seconds > 0 ? `In ${duration(seconds)}.` : "It has ended.");
    },
    remedy: "Replace its files: esker cluster certs renew, or your authority. They are read again.",
  },
  {
    name: "changed files cannot be used",
    afterMs: 60_000,
    find: ({ now }) => {
      const names = ["certificate", "peer_certificate", "client_ca", "admin_tokens"];
      const failing = names.filter((name) => value(now, `esker_reload_failing{file="${name}"}`) > 0);
      return failing.length > 0 && `Those of ${failing.join(", ")}.`;
    },
    remedy: "The log of this node says why. It keeps what it had, but allows no admin token.",
  },
  {
    name: "callers are refused",
    find: ({ now, before }) => {
      const tls = increase(now, before, "esker_tls_refused_total");
      const denied = increase(now, before, "esker_changes_denied_total");
      const isMany = denied > 0 || tls > 60;
      return isMany && `${count(denied)} changes and ${count(tls)} connections in the last minute.`;
    },
    remedy: "The log of this node says who and why: a token, a certificate, or a stranger.",
  },
];

/**
 * Returns the alerts that are to be shown, with what each found.
 *
 * @param {Situation} situation
 */
function findAlerts(situation) {
  return ALERTS.flatMap((alert) => {
    const found = alert.find(situation);
    const heldMs = heldFor(alert.name, found !== false);
    return found !== false && heldMs >= (alert.afterMs ?? 0) ? [{ ...alert, found }] : [];
  });
}

/** The shown alerts, by their names. @type {Map<string, HTMLElement>} */
const alertItems = new Map();

/** @param {{ name: string, found: string, remedy: string }[]} alerts */
function showAlerts(alerts) {
  for (const [name, item] of alertItems) {
    if (alerts.some((alert) => alert.name === name)) continue;
    item.remove();
    alertItems.delete(name);
    addEvent(`No longer: ${name}.`);
  }
  for (const { name, found, remedy } of alerts) {
    let item = alertItems.get(name);
    if (!item) {
      item = document.createElement("li");
      const title = document.createElement("strong");
      title.textContent = `${name[0]?.toUpperCase()}${name.slice(1)}. `;
      const what = document.createElement("span");
      const how = document.createElement("div");
      how.textContent = remedy;
      item.append(title, what, how);
      element("alerts").append(item);
      alertItems.set(name, item);
      addEvent(`Alert: ${name}. ${found}`);
    }
    if (item.children[1]) setText(item.children[1], found);
  }
  element("no-alerts").hidden = alerts.length > 0;
}
