// What somebody else wrote, shown as it is: JSON as a tree, text, bytes. Never as markup, and nothing hides in it.

import { Clamped } from "./clamped.js";
import { number } from "./format.js";
import { partsOf } from "./hidden.js";
import { html, useMemo, useState } from "./lib.js";

/** A text in which what cannot be seen stands out, as an escape: `\u202e`. */
export const Text = (/** @type {{value: string}} */ { value }) =>
  partsOf(value).map((part, index) => (index % 2 ? html`<span class="escape">${part}</span>` : part));

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
const LONGEST_LEAF = 2000;

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
  const key = node.key !== null && html`<span class="tree-key"><${Clamped} value=${node.key} most=${LONGEST_LEAF} /></span>: `;
  if (!node.children) return html`<div class="tree-leaf">${key}<span data-kind=${node.kind}><${Clamped} value=${node.raw} most=${LONGEST_LEAF} /></span></div>`;
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
