// What somebody else wrote, shown as it is: JSON as a tree, text, bytes. Never as markup, and nothing hides in it.

import { number } from "./format.js";
import { html, useMemo, useState } from "./lib.js";

/* Control characters but for line end and tab, marks that turn the direction of text, and those without a width. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** A text in which what cannot be seen is written as an escape: `\u202e`. */
export function Text(/** @type {{value: string}} */ { value }) {
  const parts = [];
  let from = 0;
  for (const found of value.matchAll(HIDDEN)) {
    parts.push(value.slice(from, found.index), html`<span class="escape">${escapeOf(found[0])}</span>`);
    from = found.index + found[0].length;
  }
  return parts.length ? [...parts, value.slice(from)] : value;
}

const escapeOf = (/** @type {string} */ mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** The same as plain text, for titles and labels. */
export const visible = (/** @type {string} */ value) => value.replace(HIDDEN, escapeOf);

/* ---- JSON as it was written: a parser would change numbers and drop repeated keys ---- */

/** @typedef {{key: string | null, raw: string, kind: "object"|"array"|"string"|"number"|"word", children: Node[] | null}} Node */

const TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;

/** The tree of a JSON text; null if it is none. */
export function treeOf(/** @type {string} */ text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  /** @type {Node} */
  const root = { key: null, raw: "", kind: "array", children: [] };
  const above = [root];
  let key = /** @type {string | null} */ (null);
  for (const [token] of text.matchAll(TOKENS)) {
    const parent = /** @type {Node} */ (above.at(-1));
    if (token === "}" || token === "]") above.pop();
    else if (token === ",") key = null;
    else if (token === ":") key = /** @type {Node} */ (/** @type {Node[]} */ (parent.children).pop()).raw;
    else {
      const made = nodeOf(key, token);
      /** @type {Node[]} */ (parent.children).push(made);
      if (made.children) above.push(made);
      key = null;
    }
  }
  return /** @type {Node[]} */ (root.children)[0] ?? null;
}

/** @returns {Node} */
function nodeOf(/** @type {string | null} */ key, /** @type {string} */ token) {
  if (token === "{") return { key, raw: "", kind: "object", children: [] };
  if (token === "[") return { key, raw: "", kind: "array", children: [] };
  return { key, raw: token, kind: token.startsWith('"') ? "string" : /^-?\d/.test(token) ? "number" : "word", children: null };
}

const AT_ONCE = 100;
const OPEN_TO = 3;
const SMALL = 50;

/** JSON to open and close; only what is open is made, so five megabytes of it do no harm. */
export function JsonTree(/** @type {{text: string}} */ { text }) {
  const root = useMemo(() => treeOf(text), [text]);
  if (!root) return html`<${Plain} text=${text} />`;
  return html`<div class="tree" role="group" aria-label="JSON"><${Branch} node=${root} level=${0} /></div>`;
}

function Branch(/** @type {{node: Node, level: number}} */ { node, level }) {
  const children = node.children ?? [];
  const [open, setOpen] = useState(level === 0 || (level < OPEN_TO && children.length <= SMALL));
  const [most, setMost] = useState(AT_ONCE);
  const key = node.key !== null && html`<span class="tree-key"><${Text} value=${node.key} /></span>: `;
  if (!node.children) return html`<div class="tree-leaf">${key}<span data-kind=${node.kind}><${Text} value=${node.raw} /></span></div>`;
  const [left, right] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  if (!children.length) return html`<div class="tree-leaf">${key}${left}${right}</div>`;
  return html`<div class="tree-node">
    <button type="button" class="tree-fold" aria-expanded=${open} onClick=${() => setOpen(!open)}>${key}${left}${!open && html`<span class="faint"> ${number(children.length)} … </span>${right}`}</button>
    ${open && html`<div class="tree-inner">${children.slice(0, most).map((child, index) => html`<${Branch} key=${index} node=${child} level=${level + 1} />`)}
      ${children.length > most && html`<button type="button" class="button quiet" onClick=${() => setMost(most + 10 * AT_ONCE)}>${number(children.length - most)} more</button>`}</div>${right}`}
  </div>`;
}

const LONGEST = 100_000;

/** Text as it is; the end of a very long one on request. */
export function Plain(/** @type {{text: string}} */ { text }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, LONGEST);
  return html`<pre class="plain" tabindex="0"><${Text} value=${shown} /></pre>
    ${shown.length < text.length && html`<button type="button" class="button" onClick=${() => setWhole(true)}>Show all ${number(text.length)} characters</button>`}`;
}

const ROWS = 64;

/** Bytes in hexadecimal, sixteen a row, with what of them can be read. */
export function Hex(/** @type {{bytes: Uint8Array}} */ { bytes }) {
  const [rows, setRows] = useState(ROWS);
  const lines = Array.from({ length: Math.min(rows, Math.ceil(bytes.length / 16)) }, (_, row) => {
    const part = [...bytes.subarray(16 * row, 16 * row + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    return `${(16 * row).toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`;
  });
  return html`<pre class="plain" tabindex="0">${lines.join("\n")}</pre>
    ${bytes.length > 16 * rows && html`<button type="button" class="button" onClick=${() => setRows(rows * 8)}>More of ${number(bytes.length)} bytes</button>`}`;
}

/** Bytes of what the API writes in base64. */
export const bytesOf = (/** @type {string} */ base64) => Uint8Array.from(atob(base64), (mark) => mark.charCodeAt(0));
