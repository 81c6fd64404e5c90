// The columns that the table of letters can have, and which of them somebody wants.

import { Brief } from "../clamped.js";
import { html } from "../lib.js";
import { href } from "../router.js";
import { part } from "../api.js";
import { Chip, Pill, Time, number } from "../ui.js";
import { Text } from "../tree.js";

const KEY = "redrive-columns";
const FIRST = ["error", "state", "source", "attempts", "buried", "next"];

/** @type {(import("../table.js").Column & {words: string})[]} */
export const COLUMNS = [
  { name: "error", words: "Error", title: "Error", kind: "grow", cell: (letter) => html`<a class="title" href=${href(`/letters/${part(letter.id)}`)}><${Brief} value=${letter.error_type} /></a> <${Chip}>${letter.category}<//>
      <span class="message"><${Text} value=${letter.error_message} /></span>` },
  { name: "id", words: "Letter", title: "Letter", kind: "nowrap code", label: "letter", cell: (letter) => letter.id },
  { name: "state", words: "State", title: "State", cell: (letter) => html`<${Pill} state=${letter.state} />` },
  { name: "source", words: "Source", title: "Source", kind: "wrap", label: "source", cell: (letter) => html`<${Brief} value=${letter.source} />` },
  { name: "transport", words: "Transport", title: "Transport", label: "transport", cell: (letter) => letter.transport },
  { name: "tenant", words: "Tenant", title: "Tenant", kind: "wrap", label: "tenant", cell: (letter) => letter.tenant && html`<${Brief} value=${letter.tenant} />` },
  { name: "message", words: "Message id", title: "Message", kind: "wrap code", label: "message", cell: (letter) => html`<${Brief} value=${letter.message_id} />` },
  { name: "code", words: "Code", title: "Code", label: "code", cell: (letter) => letter.code && html`<${Brief} value=${letter.code} />` },
  { name: "reason", words: "Why it was buried", title: "Why", label: "why", cell: (letter) => letter.reason },
  { name: "group", words: "Group", title: "Group", kind: "code", label: "group", cell: (letter) => html`<a href=${href(`/groups/${part(letter.group)}`)}>${letter.group.slice(0, 12)}</a>` },
  { name: "attempts", words: "Attempts", title: "Attempts", number: true, label: "attempts", cell: (letter) => number(letter.attempts) },
  { name: "buried", words: "Buried", title: "Buried", kind: "nowrap faint", label: "buried", cell: (letter) => html`<${Time} at=${letter.created_at} />` },
  { name: "updated", words: "Changed", title: "Changed", kind: "nowrap faint", label: "changed", cell: (letter) => html`<${Time} at=${letter.updated_at} />` },
  { name: "next", words: "Next retry", title: "Next retry", kind: "nowrap faint", label: "next retry", cell: (letter) => letter.state === "pending" && letter.next_retry_at && html`<${Time} at=${letter.next_retry_at} coming />` },
];

export function keptColumns() {
  const kept = (localStorage.getItem(KEY) ?? "").split(",").filter((name) => COLUMNS.some((column) => column.name === name));
  return kept.length ? kept : FIRST;
}

export const keepColumns = (/** @type {string[]} */ names) => localStorage.setItem(KEY, names.join(","));

export function ColumnsMenu({ chosen, choose }) {
  const toggle = (name) => (event) => choose(event.target.checked ? [...chosen, name] : chosen.filter((one) => one !== name));
  return html`<details class="drop"><summary class="button">Columns</summary><div class="drop-list">
    ${COLUMNS.map(({ name, words }) => html`<label class="row"><input type="checkbox" checked=${chosen.includes(name)} disabled=${name === "error"} onChange=${toggle(name)} /> ${words}</label>`)}
  </div></details>`;
}
