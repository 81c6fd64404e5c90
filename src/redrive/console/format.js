// Numbers, spans and sizes in words.

export const number = (/** @type {number | null | undefined} */ value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

/** `1,234`, `12.3k`, `4.5M`: for places without room. */
export function short(/** @type {number} */ value) {
  if (Math.abs(value) < 10_000) return number(value);
  return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export const percent = (/** @type {number | null | undefined} */ share) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

export const plural = (/** @type {number} */ count, /** @type {string} */ one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const letters = (/** @type {number} */ count) => plural(count, "letter");

export function bytes(/** @type {number} */ size) {
  const units = ["bytes", "KB", "MB", "GB"];
  let at = 0;
  while (size >= 1000 && at < units.length - 1) (size /= 1000), (at += 1);
  return `${at ? size.toFixed(1) : size} ${units[at]}`;
}

const SPANS = /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]);

/** `3m`, `2h`: the largest unit alone. */
export function span(/** @type {number} */ seconds) {
  const [unit, size] = SPANS.find(([, size]) => Math.abs(seconds) >= size) ?? ["s", 1];
  return `${Math.floor(Math.abs(seconds) / size)}${unit}`;
}

/** `1h 12m`, `350 ms`: for the time between two things. */
export function duration(/** @type {number} */ seconds) {
  if (Math.abs(seconds) < 1) return `${Math.round(1000 * seconds)} ms`;
  const at = Math.max(SPANS.findIndex(([, size]) => Math.abs(seconds) >= size), 0);
  const rest = Math.abs(seconds) % /** @type {[string, number]} */ (SPANS[at])[1];
  const next = SPANS[at + 1];
  return span(seconds) + (next && rest >= next[1] ? ` ${Math.floor(rest / next[1])}${next[0]}` : "");
}

/** `18 Nov 13:20:05`, in the time of who looks; with the year where it is another. */
export function exact(/** @type {string | number} */ at) {
  const date = new Date(at);
  const year = date.getFullYear() === new Date().getFullYear() ? {} : /** @type {const} */ ({ year: "numeric" });
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short", ...year });
  return `${day} ${date.toLocaleTimeString("en-GB")}`;
}

/** `3m ago`, `in 5s`, `now`. */
export function ago(/** @type {string} */ at, /** @type {number} */ now) {
  const seconds = (now - Date.parse(at)) / 1000;
  return seconds < -1 ? `in ${span(seconds)}` : seconds < 1 ? "now" : `${span(seconds)} ago`;
}

/** The same of what is to come: `in 5s`, and `overdue 3m` where nobody did it. */
export function due(/** @type {string} */ at, /** @type {number} */ now) {
  const seconds = (now - Date.parse(at)) / 1000;
  return seconds < -1 ? `in ${span(seconds)}` : seconds < 5 ? "now" : `overdue ${span(seconds)}`;
}
