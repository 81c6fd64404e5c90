// Sources: queues and topics, how full they are, who works on them, and what is paused or held.

import { part, post } from "../api.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, sourceAt, useTitle } from "../router.js";
import { changed, may } from "../state.js";
import { DeadQueues } from "./dead_queues.js";
import { Graph } from "./graph.js";
import { Button, Chip, Empty, Field, FormDialog, Head, Panel, Pill, Table, Time, number, plural, toast } from "../ui.js";
import { Text } from "../tree.js";

export default function Sources() {
  useTitle("Sources");
  const sources = useResource("sources", {}, { on: ["sources", "letters"], every: 15 });
  const workers = useResource("workers", {}, { on: ["sources"], every: 15 });
  const systems = useResource("systems");
  const [asks, setAsks] = useState(/** @type {any} */ (null));
  const uses = (name) => (systems.data ?? []).some((one) => one.name === name);
  return html`<${Head} title="Sources" about="Queues and topics: depth, rates, workers, pauses and storms" />
    <${Away} unanswered=${sources.data?.unanswered ?? []} />
    ${uses("pipeline") && html`<${Graph} />`}
    <${Panel} id="sources" flush from=${sources} empty=${(found) => !found.details.length && html`<${Empty} title="No source yet">A source appears here when a handler is registered for it, or a letter of it dies.<//>`}>
      ${(found) => html`<${Table} caption="Sources" rows=${found.details} id=${nameOf} open=${addressOf} columns=${columns(setAsks)} />`}<//>
    <div class="columns"><div>${uses("files") && may("admin") && html`<${DeadQueues} />`}<${Workers} workers=${workers} /></div><div><${Breakers} sources=${sources} /><${Held} /><${Turns} /></div></div>
    ${asks && html`<${PauseDialog} source=${asks} close=${() => setAsks(null)} />`}`;
}

/** As statistics and commands name it: with its transport, where that is not the default one. */
const nameOf = (one) => (one.transport === "default" ? one.source : `${one.transport}/${one.source}`);
const addressOf = (one) => href(sourceAt(one.source, one.transport));

/** Backends that did not answer: what they would say is missing here, and nothing else. */
export const Away = ({ unanswered }) => unanswered.length > 0 && html`<div class="trouble" role="status" id="away"><p><strong>Not everything answers</strong>: what is shown is from the others.</p>
  <ul>${unanswered.map((one) => html`<li key=${one.backend}><strong>${one.backend}</strong>: <${Text} value=${one.why} /></li>`)}</ul></div>`;

export const stateOf = (one) => (one.paused ? (one.paused.storm ? "storm" : "paused") : one.workers ? "running" : "idle");
export const rateOf = (one) => (one.workers ? (one.rate >= 10 || one.rate === 0 ? number(Math.round(one.rate)) : one.rate.toFixed(1)) : "–");
const OPEN = ["pending", "retrying", "replaying", "exhausted"];

const columns = (ask) => [
  { name: "source", title: "Source", kind: "grow", cell: (one) => html`<a class="title" href=${addressOf(one)}><${Text} value=${nameOf(one)} /></a>
      ${one.paused && html`<span class="message"><${Standing} paused=${one.paused} /></span>`}` },
  { name: "state", title: "State", cell: (one) => html`<${Pill} state=${stateOf(one)} />` },
  { name: "ready", title: "Ready", number: true, label: "ready", cell: (one) => number(one.queued?.ready) },
  { name: "delayed", title: "Delayed", number: true, label: "delayed", cell: (one) => number(one.queued?.delayed) },
  { name: "leased", title: "In hand", number: true, label: "in hand", cell: (one) => number(one.queued?.leased ?? one.in_hand) },
  { name: "rate", title: "Finish a second", number: true, label: "finish a second", cell: rateOf },
  { name: "letters", title: "Open letters", number: true, label: "open letters", cell: (one) => html`<a href=${href(`/letters?sources=${part(one.source)}`)}>${number(OPEN.reduce((sum, state) => sum + (one.states[state] ?? 0), 0))}</a>` },
  { name: "workers", title: "Workers", number: true, label: "workers", cell: (one) => number(one.workers) },
  { name: "versions", title: "Versions", kind: "wrap", label: "versions", cell: (one) => one.versions.map((version) => html`<${Chip}>${version}<//> `) },
  { name: "acts", title: html`<span class="unseen">Acts</span>`, kind: "acts", cell: (one) => html`<${PauseButton} source=${one} ask=${ask} />` },
];

/** Who has paused it, and when it goes on. */
export const Standing = ({ paused }) => html`${paused.storm ? "held by the storm guard" : `paused by ${paused.by}`}<${Text} value=${paused.why ? `: ${paused.why}` : ""} />
  ${paused.until && html`, until <${Time} at=${paused.until} coming />`}${paused.probe_at && html`, tries one message <${Time} at=${paused.probe_at} coming />`}`;

export const PauseButton = ({ source: one, ask }) => may("operator") && (one.paused
  ? html`<${Button} aria-label=${`Resume ${one.source}`} act=${async () => {
      const { ended } = await post("pauses/resume", { source: one.source, transport: one.transport });
      toast(ended ? `${one.source} goes on` : `${one.source} was not paused any more`);
      changed("sources");
    }}>Resume<//>`
  : html`<button type="button" class="button" aria-label=${`Pause ${one.source}`} onClick=${() => ask(one)}>Pause…</button>`);

export const PauseDialog = ({ source: one, close }) => html`<${FormDialog} title=${`Pause ${one.source}`} verb="Pause" close=${close} act=${async ({ why, minutes }) => {
  const report = await post("pauses", { source: one.source, transport: one.transport, why, seconds: Number(minutes) ? 60 * Number(minutes) : null });
  toast(report.is_new ? `${one.source} is paused: no worker receives from it` : `${one.source} was paused already, by ${report.pause.by}`);
  changed("sources");
}}>
  <p>No worker receives from it until it is resumed; what is in hand is finished.</p>
  <${Field} label="Why"><input type="text" name="why" maxlength="2000" /><//>
  <${Field} label="Minutes" about="empty: until somebody resumes it"><input type="number" name="minutes" min="1" max="527040" /><//><//>`;

const WORKER = [
  { name: "worker", title: "Worker", kind: "grow", cell: (worker) => html`<strong><${Text} value=${worker.worker} /></strong> <span class="faint">${worker.host}, pid ${worker.pid}</span>` },
  { name: "state", title: "State", cell: (worker) => html`<${Pill} state=${worker.state} />` },
  { name: "version", title: "Version", label: "version", cell: (worker) => worker.version && html`<${Chip}>${worker.version}<//>` },
  { name: "hand", title: "In hand", number: true, label: "in hand", cell: (worker) => number(worker.in_hand) },
  { name: "sources", title: "Sources", kind: "wrap", label: "sources", cell: (worker) => worker.sources.map((one) => one.source).join(", ") },
  { name: "beat", title: "Heard", kind: "nowrap faint", label: "heard", cell: (worker) => html`<${Time} at=${worker.beat_at} />` },
];

export const Workers = ({ workers, source }) => html`<${Panel} id="workers" title="Workers" flush from=${workers} empty=${(found) => !chosen(found, source).length && html`<${Empty} title="No worker is known">Start one with redrive run, or embed one.<//>`}>
  ${(found) => html`<${Table} caption="Workers" rows=${chosen(found, source)} columns=${WORKER} />`}<//>`;

const chosen = (workers, source) => (source ? workers.filter((worker) => worker.sources.some((one) => one.source === source)) : workers);

/** Circuit breakers that let nothing through: what keeps failing is left alone for a while. */
const Breakers = ({ sources }) => html`<${Panel} id="breakers" title="Circuit breakers" from=${sources} empty=${({ breakers }) => !breakers.length && html`<p class="faint">All are closed: nothing is left alone.</p>`}>
  ${({ breakers }) => html`<ul class="stack">${breakers.map((one) => html`<li key=${one.target + one.worker}><div class="row"><${Pill} state=${one.position} /> <strong><${Text} value=${one.target} /></strong></div>
    <p class="faint">${one.position === "open" ? "left alone" : "tries one letter"} since <${Time} at=${one.since} />${one.worker && html`, says <${Text} value=${one.worker} />`}</p></li>`)}</ul>`}<//>`;

/** Keys of which a message is dead: those behind it wait, as one bundle. */
export function Held({ source }) {
  const held = useResource("held-keys", { source }, { on: ["letters", "sources"] });
  return html`<${Panel} id="held" title="Held keys" from=${held} empty=${(found) => !found.length && html`<p class="faint">None: nothing waits behind a dead message of its key.</p>`}>
    ${(found) => html`<ul class="stack">${found.map((one) => html`<li key=${one.source + one.key}><div class="row"><code><${Text} value=${one.key} /></code> <span class="faint">of ${one.source}</span></div>
      <p><a href=${href(`/letters/${part(one.letter)}`)}><${Text} value=${one.error_type} /></a> ${one.behind ? `holds ${plural(one.behind, "letter")} behind it` : "comes first; nothing waits behind it yet"}</p></li>`)}</ul>`}<//>`;
}

/** The tenants of each source that is shared: who waits longest for a turn comes first. */
function Turns() {
  const fair = useResource("fairness", {}, { on: ["sources"], every: 15 });
  return html`<${Panel} id="turns" title="Whose turn it is" about="where tenants share a source fairly" from=${fair} empty=${({ sources, unanswered }) => !sources.length && !unanswered.length && html`<p class="faint">No transport shares a source between tenants.</p>`}>
    ${({ sources, unanswered }) => html`${unanswered.map((one) => html`<p class="caution" key=${one.backend}><strong>${one.backend}</strong> does not answer: <${Text} value=${one.why} /></p>`)}
      ${sources.map((one) => html`<${TurnsOf} key=${one.source} source=${one.source} tenants=${[...one.tenants].sort(longestWait)} />`)}`}<//>`;
}

const AT_ONCE = 12;
const longestWait = (a, b) => Number(b.waiting > 0) - Number(a.waiting > 0) || b.rounds_without_processing - a.rounds_without_processing || b.waiting - a.waiting;

const TurnsOf = ({ source, tenants }) => html`<h3><${Text} value=${source} /></h3>
  <ul class="stack">${tenants.slice(0, AT_ONCE).map(turn)}</ul>
  ${tenants.length > AT_ONCE && html`<details><summary>${number(tenants.length - AT_ONCE)} more</summary><ul class="stack">${tenants.slice(AT_ONCE).map(turn)}</ul></details>`}`;

const turn = (one) => html`<li key=${one.tenant}><div class="row"><strong>${one.tenant ? html`<${Text} value=${one.tenant} />` : "without a tenant"}</strong> <span>${number(one.waiting)} wait</span></div>
  <p class="faint">${one.last_processed_at ? html`last turn <${Time} at=${one.last_processed_at} />, ` : "no turn yet, "}${number(one.total_processed)} taken in all${one.waiting > 0 && `, passed by in ${plural(one.rounds_without_processing, "round")}, priority ${one.current_priority}`}</p></li>`;
