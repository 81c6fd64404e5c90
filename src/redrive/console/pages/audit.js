// The audit trail: who did what, and whether the chain of it is whole.

import { get } from "../api.js";
import { download } from "../download.js";
import { html, useEffect, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { query, setQuery, useTitle } from "../router.js";
import { may, serverNow } from "../state.js";
import { useTyped } from "../typed.js";
import { Button, Empty, Head, Pager, Panel, Pill, Table, Time, number } from "../ui.js";
import { Text } from "../tree.js";

const SIZE = 50;
const OUTCOMES = ["done", "refused", "waits", "failed", "interrupted", "began"];

export default function Audit() {
  useTitle("Audit");
  const address = query.value;
  const [verdict, setVerdict] = useState(/** @type {any} */ (null));
  const [pages, setPages] = useState(/** @type {(number | null)[]} */ ([null]));
  const filters = { actor_has: address.get("who"), action: address.get("action"), about: address.get("about"), outcome: address.get("outcome") };
  const key = JSON.stringify(filters);
  useEffect(() => setPages([null]), [key]);
  const lines = useResource("audit", { ...filters, before: pages.at(-1), limit: SIZE }, { on: ["letters", "groups", "replays", "incidents", "sources", "approvals"], every: 15 });
  const last = lines.data?.at(-1)?.seq;
  const next = lines.data?.length === SIZE && last ? () => setPages([...pages, last]) : null;
  return html`<${Head} title="Audit" about="Every act, refusal, unmasking and login, each line bound to the one before it">
      ${may("admin") && html`<${Button} act=${() => download("audit/lines?name=console", `audit-${new Date(serverNow()).toISOString().slice(0, 10)}.jsonl`)}>Export<//>
        <${Button} act=${async () => setVerdict(await get("audit/verify"))}>Verify the chain<//>`}<//>
    ${verdict && html`<p class=${verdict.broken || verdict.older_changed ? "trouble" : "verified"} role="status">${verdict.broken
      ? html`<strong>Not as it was written</strong>: line ${number(verdict.broken.seq)}: <${Text} value=${verdict.broken.why} />`
      : verdict.older_changed ? "Lines from before the chain were changed" : `Whole: ${number(verdict.lines)} lines follow each other, from ${number(verdict.first)} to ${number(verdict.head.seq)}`}</p>`}
    <${Panel} id="audit" flush from=${lines} aside=${html`<div class="filters" role="search">
        <${Typed} name="who" label="Who" placeholder="Who" data-search />
        <${Typed} name="action" label="Act" placeholder="Act, such as replay" />
        <${Typed} name="about" label="About" placeholder="Letter, replay or token" />
        <select aria-label="Outcome" onChange=${(event) => setQuery({ outcome: event.target.value })}><option value="">any outcome</option>${OUTCOMES.map((name) => html`<option value=${name} selected=${address.get("outcome") === name}>${name}</option>`)}</select></div>`}
      empty=${(rows) => !rows.length && nothing(Object.values(filters).some(Boolean))}>
      ${(rows) => html`<${Table} caption="Audit trail" rows=${rows} id=${(line) => String(line.seq ?? line.at)} columns=${COLUMNS} />
        <${Pager} what="the trail" first=${(pages.length - 1) * SIZE} count=${rows.length} prev=${pages.length > 1 ? () => setPages(pages.slice(0, -1)) : null} next=${next} />`}<//>`;
}

/** A field whose text is in the address once it has rested. */
function Typed({ name, label, ...more }) {
  const [typed, setTyped] = useTyped(name);
  return html`<input type="search" aria-label=${label} value=${typed} onInput=${(event) => setTyped(event.target.value)} ...${more} />`;
}

const nothing = (/** @type {boolean} */ narrowed) => (narrowed
  ? html`<${Empty} title="No line matches">Take one of the filters away; an act is written as one word, such as replay or archive.<//>`
  : html`<${Empty} title="Nobody has done anything yet">Every act, refusal, unmasking and login from now on is a line here.<//>`);

const COLUMNS = [
  { name: "at", title: "When", kind: "nowrap faint", cell: (line) => html`<${Time} at=${line.at} full />` },
  { name: "actor", title: "Who", kind: "wrap", label: "who", cell: (line) => html`<${Text} value=${line.actor} />${line.via === "store" && html` <span class="faint">on the store itself</span>`}` },
  { name: "action", title: "Act", kind: "nowrap", label: "act", cell: (line) => line.action },
  { name: "outcome", title: "Outcome", label: "outcome", cell: (line) => line.outcome && html`<${Pill} state=${line.outcome} />` },
  { name: "detail", title: "What", kind: "grow", cell: (line) => html`<${Text} value=${line.detail ?? ""} />${line.reason && html`<span class="message">because: <${Text} value=${line.reason} /></span>`}` },
];
