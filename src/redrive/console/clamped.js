// Texts of strangers that may be very long: the beginning of them, and the rest on request.

import { number } from "./format.js";
import { html, useState } from "./lib.js";
import { Text } from "./tree.js";

const BRIEF = 120;

/** The beginning of a text, whole characters only. */
const beginningOf = (/** @type {string} */ text, /** @type {number} */ most) => (text.length > most ? `${text.slice(0, most).replace(/[\ud800-\udbff]$/, "")}…` : text);

/**
 * A text whose rest is shown on request.
 * @param {{value: string, most?: number}} props
 */
export function Clamped({ value, most = 600 }) {
  const [whole, setWhole] = useState(false);
  return html`<${Text} value=${whole ? value : beginningOf(value, most)} />${value.length > most && html` <button type="button" class="button quiet" aria-expanded=${whole}
    onClick=${() => setWhole(!whole)}>${whole ? "Show less" : `Show all ${number(value.length)} characters`}</button>`}`;
}

/** A text in a list whose row leads to the whole of it. */
export const Brief = (/** @type {{value: string}} */ { value }) => html`<${Text} value=${beginningOf(value, BRIEF)} />`;
