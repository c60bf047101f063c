// @ts-check
// Quantities as text.

/**
 * @param {number} seconds
 * @returns {string}
 */
function duration(seconds) {
  const short = (/** @type {number} */ value) => Number(value.toPrecision(3));
  if (seconds === 0) return "0 s";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 1e-3) return `${short(seconds * 1e6)} µs`;
  if (seconds < 1) return `${short(seconds * 1e3)} ms`;
  if (seconds < 120) return `${short(Math.floor(seconds * 10) / 10)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

/** @param {number | null} seconds */
function durationOrNone(seconds) {
  return seconds === null ? "–" : duration(seconds);
}

/** @param {number} value */
function count(value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

/** @param {number} bytes */
function mebibytes(bytes) {
  return `${count(bytes / 1_048_576)} MiB`;
}

/** @param {number} ns Unix time. */
function utc(ns) {
  const date = new Date(ns / 1e6);
  return Number.isNaN(date.getTime()) ? `${ns} ns` : date.toISOString().replace("T", " ");
}
