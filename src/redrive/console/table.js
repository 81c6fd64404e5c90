// Tables that the server pages, sorts and filters: what is shown is what it answered.

import { number } from "./format.js";
import { Icon } from "./icons.js";
import { html } from "./lib.js";

/**
 * @typedef {any} Children
 * @typedef {{name: string, title: Children, cell: (row: any) => Children, number?: boolean, kind?: string, label?: string, sort?: boolean}} Column
 *   kind: a class of the cell (`grow`, `nowrap`, `acts`); label: what a phone writes before it; sort: its head sorts
 */

/**
 * Rows keep their place and the focus when they are shown anew: each has its id. j and k go through them, enter opens.
 * @param {{columns: Column[], rows: any[], id?: (row: any) => string, open?: (row: any) => string, replay?: (row: any) => string, caption: string,
 *   chosen?: Set<string>, choose?: (ids: Set<string>) => void, sort?: string, sortBy?: (name: string) => void}} props
 *   open, replay: the addresses that enter and r lead to from a row; chosen and choose: rows have a box to choose them
 */
export function Table({ columns, rows, id = (row) => row.id, open, replay, caption, chosen, choose, sort, sortBy }) {
  const all = rows.map(id);
  const toggle = (/** @type {string[]} */ ids, /** @type {boolean} */ on) => {
    const next = new Set(chosen);
    for (const one of ids) on ? next.add(one) : next.delete(one);
    choose?.(next);
  };
  const box = (/** @type {string[]} */ ids, /** @type {string} */ label) => html`<input type="checkbox" aria-label=${label} data-box
    checked=${ids.length > 0 && ids.every((one) => chosen?.has(one))} onChange=${(/** @type {any} */ event) => toggle(ids, event.target.checked)} />`;
  return html`<div class="scroll"><table class="rows">
    <caption class="unseen">${caption}</caption>
    <thead><tr>
      ${choose && html`<th scope="col" class="box">${box(all, "Choose all rows that are shown")}</th>`}
      ${columns.map((column) => head(column, sort, sortBy))}
    </tr></thead>
    <tbody>${rows.map((row, index) => html`<tr key=${id(row)} tabindex=${index ? -1 : 0} data-row=${id(row)} data-to=${open?.(row)} data-replay=${replay?.(row)} aria-selected=${choose ? Boolean(chosen?.has(id(row))) : undefined}>
      ${choose && html`<td class="box">${box([id(row)], `Choose ${id(row)}`)}</td>`}
      ${columns.map((column) => html`<td key=${column.name} class=${`${column.number ? "number" : ""} ${column.kind ?? ""}`} data-label=${column.label}>${column.cell(row)}</td>`)}
    </tr>`)}</tbody></table></div>`;
}

function head(/** @type {Column} */ { name, title, number: right, kind, sort: sorts }, /** @type {string | undefined} */ sort, /** @type {((name: string) => void) | undefined} */ sortBy) {
  const order = sorts && sort === name ? "descending" : undefined;
  return html`<th key=${name} scope="col" class=${`${right ? "number" : ""} ${kind ?? ""}`} aria-sort=${order}>
    ${sorts && sortBy ? html`<button type="button" class="sort" onClick=${() => sortBy(name)}>${title}${order && html`<${Icon} name="down" size=${10} />`}</button>` : title}</th>`;
}

/**
 * Which part of all is shown, and the way to the others.
 * @param {{first: number, count: number, total?: number | null, prev?: (() => void) | null, next?: (() => void) | null, what?: string}} props
 */
export const Pager = ({ first, count, total = null, prev, next, what = "rows" }) => html`<nav class="pager" aria-label=${`Pages of ${what}`}>
  <span class="faint">${count ? `${number(first + 1)}–${number(first + count)}` : "none"}${total !== null && ` of ${number(total)}`}</span>
  <button type="button" class="button" disabled=${!prev} onClick=${prev} aria-label="Previous page"><${Icon} name="left" size=${13} /></button>
  <button type="button" class="button" disabled=${!next} onClick=${next} aria-label="Next page"><${Icon} name="right" size=${13} /></button>
</nav>`;
