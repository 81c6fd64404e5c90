// What cannot be seen in a text is written out, wherever the text is shown: a mark that turns its direction could make
// `gpj.exe` of `exe.jpg`.

/* Control characters but for line end and tab, marks that turn the direction of text, and those without a width. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

const escapeOf = (/** @type {string} */ mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** The text with what cannot be seen in it as escapes: `\u202e`. */
export const visible = (/** @type {string} */ text) => text.replace(HIDDEN, escapeOf);

/** The parts of a text: what is shown as it is, and at the odd places what cannot be seen, as escapes. */
export function partsOf(/** @type {string} */ text) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    parts.push(text.slice(from, found.index), escapeOf(found[0]));
    from = found.index + found[0].length;
  }
  return [...parts, text.slice(from)];
}
