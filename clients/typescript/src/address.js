import { isIPv4, isIPv6 } from "node:net";
import { OptionError } from "./errors.js";

/** The longest name of a host, with a colon and a port. */
const ADDRESS_CHARS_MAX = 253 + 6;
const MEMBERS_MAX = 64;

/** @param {string} text @param {boolean} allowsUnspecified */
function isAddress(text, allowsUnspecified) {
  const [, host = "", port = ""] = /^(.*):(\d{1,5})$/.exec(text) ?? [];
  if (text.length > ADDRESS_CHARS_MAX || Number(port) < 1 || Number(port) > 65_535) return false;
  if (isIPv4(host)) return allowsUnspecified || host !== "0.0.0.0";
  const ip = /^\[([0-9a-f:.]+)\]$/i.exec(host)?.[1];
  if (ip !== undefined) return isIPv6(ip) && (allowsUnspecified || !/^[0:.]+$/.test(ip));
  return /^[a-z0-9._-]+$/i.test(host) && /[a-z]/i.test(host);
}

/**
 * Returns the address that a node names, if it is the host and port of one host.
 * @param {unknown} text @returns {string | undefined}
 */
export function parseAddress(text) {
  return typeof text === "string" && isAddress(text, false) ? text : undefined;
}

/** Returns the addresses of endpoints, and their common scheme. @param {string[]} endpoints */
export function parseEndpoints(endpoints) {
  const schemes = new Set();
  const addresses = endpoints.map((endpoint) => {
    const [, scheme, address = ""] = /^(?:(https?):\/\/)?(.*?)\/?$/.exec(endpoint) ?? [];
    if (scheme !== undefined) schemes.add(scheme);
    if (isAddress(address, true)) return address;
    throw new OptionError(`"${endpoint}" is no endpoint; one looks like http://10.0.0.1:8080`);
  });
  if (schemes.size > 1) throw new OptionError("give http:// or https:// endpoints, not both");
  return { addresses, isTls: schemes.has("https") };
}

/**
 * Returns the content of an answer to `GET /members`. The cluster is empty if the node does not
 * know it yet.
 * @param {Buffer} body
 * @returns {{ cluster: string, leader: string | undefined, members: string[] }}
 * @throws {SyntaxError | TypeError}
 */
export function parseMembers(body) {
  const { cluster, leader, members } = JSON.parse(body.toString());
  const parse = (/** @type {any} */ member) => parseAddress(member?.addr) ?? [];
  const addresses = members.slice(0, MEMBERS_MAX).flatMap(parse);
  return { cluster: `${cluster ?? ""}`, leader: parseAddress(leader?.addr), members: addresses };
}
