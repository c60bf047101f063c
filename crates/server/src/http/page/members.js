// @ts-check
// The leader, and the table of members.

/** @param {Sample} now */
function showLeader({ status, members }) {
  const isOwn = status.leader === status.nodeID;
  const who = status.leader === null ? "No node leads" : `Node ${status.leader} leads`;
  setText("leader", isOwn ? `${who}: this node` : who);
  const term = `In term ${status.term}`;
  if (status.leader === null || status.leader_age_ms === null) {
    setText("leader-since", `${term}.`);
  } else {
    const since = new Date(Date.now() - status.leader_age_ms).toLocaleString();
    // Another node may have led before this one heard of it.
    const known = isOwn ? "for" : "known to this node for";
    const age = duration(status.leader_age_ms / 1000);
    setText("leader-since", `${term}, ${known} ${age}: since ${since}.`);
  }
  const leader = members.find((member) => member.nodeID === status.leader);
  showLeaderPage(isOwn ? undefined : leader);
  const title = `Esker node ${status.nodeID}: ${who}`;
  if (document.title !== title) document.title = title;
}

/** @param {Member | undefined} leader The leader, if it is another node. */
function showLeaderPage(leader) {
  const place = element("leader-page");
  place.hidden = !leader;
  if (!leader) return;
  const link = memberLink(leader);
  if (place.querySelector("a")?.href === link.href) return;
  const rest = ", which takes changes, and knows how far the others lag.";
  place.replaceChildren("The leader's page: ", link, rest);
}

/**
 * @typedef {{
 *   row: HTMLElement, title: HTMLElement, cells: Record<string, HTMLElement>,
 *   buttons: HTMLButtonElement[],
 * }} Row
 */
/** The rows of members, by their numbers. @type {Map<string, Row>} */
const rows = new Map();

/**
 * @param {Member} member
 * @returns {Row}
 */
function addRow(member) {
  const row = document.createElement("tr");
  const title = document.createElement("th");
  title.scope = "row";
  row.append(title);
  /** @type {Record<string, HTMLElement>} */
  const cells = {};
  for (const name of ["role", "answers", "lag", "disk", "change"]) {
    const cell = document.createElement("td");
    cell.className = name;
    row.append(cell);
    cells[name] = cell;
  }
  const buttons = [changeButton("transfer", member.nodeID), changeButton("remove", member.nodeID)];
  cells.change?.append(...buttons);
  return { row, title, cells, buttons };
}

/**
 * Returns what the cells of a member say.
 *
 * @param {Member} member
 * @param {Sample} now
 */
function describeMember(member, now) {
  const { status } = now;
  const isOwn = member.nodeID === status.nodeID;
  const leads = member.nodeID === status.leader;
  const follower = status.followers.find(({ nodeID }) => nodeID === member.nodeID);
  const role = leads ? "leader" : member.voter ? "follower" : "learner, no vote yet";
  const unknown = status.leader === null ? "not known" : "the leader knows";
  const disk = isOwn ? describeDisk(now) : "on its page";
  if (isOwn) {
    const lag = leads ? "none" : unknown;
    return { role: leads ? role : status.role, answers: "this node", lag, disk, isAway: false };
  }
  if (!follower) {
    return {
      role,
      answers: leads ? "yes" : unknown,
      lag: leads ? "none" : unknown,
      disk,
      isAway: false,
    };
  }
  const { heard_ms: heardMs, matched } = follower;
  const away = isAway(follower);
  const silence =
    heardMs === null ? "not since this node leads" : `not for ${duration(heardMs / 1000)}`;
  const lag =
    matched === null ? "not known" : `${count(Math.max((status.last ?? 0) - matched, 0))} entries`;
  return { role, answers: away ? silence : "yes", lag, disk, isAway: away };
}

/** @param {Sample} now */
function describeDisk(now) {
  const { sync99 } = syncTimes(now);
  const bytes = mebibytes(value(now, "esker_log_disk_bytes"));
  return sync99 === null ? bytes : `${bytes}, sync ${duration(sync99)}`;
}

/** @param {Sample} now */
function showMembers(now) {
  const { status, members } = now;
  const leads = status.leader === status.nodeID;
  for (const [node, { row }] of rows) {
    if (members.some((member) => member.nodeID === node)) continue;
    row.remove();
    rows.delete(node);
    addEvent(`Node ${node} is no member any more.`);
  }
  for (const member of members) {
    let shown = rows.get(member.nodeID);
    if (!shown) {
      shown = addRow(member);
      rows.set(member.nodeID, shown);
      element("members").append(shown.row);
      if (samples.length > 1) addEvent(`Node ${member.nodeID} is a member.`);
    }
    showMember(shown, member, now);
  }
  setText(
    "members-note",
    leads ? "" : "Changes are made on the leader's page, which also shows how far nodes lag.",
  );
}

/**
 * @param {Row} shown
 * @param {Member} member
 * @param {Sample} now
 */
function showMember({ row, title, cells, buttons }, member, now) {
  if (title.textContent !== `node ${member.nodeID} ${member.addr}`) {
    const address = document.createElement("span");
    address.className = "note";
    address.textContent = member.addr;
    title.replaceChildren(memberLink(member), " ", address);
  }
  const { isAway: away, ...texts } = describeMember(member, now);
  for (const [name, text] of Object.entries(texts)) if (cells[name]) setText(cells[name], text);
  const leads = member.nodeID === now.status.leader;
  row.className = [leads ? "leads" : "", away ? "away" : ""].join(" ").trim();
  for (const button of buttons) button.hidden = now.status.leader !== now.status.nodeID || leads;
  const [transfer] = buttons;
  if (transfer) transfer.disabled = !member.voter || away;
}
