// Incidents: what somebody should know of, who works on it, and what was written down beside it.

import { part, post } from "../api.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, sourceAt, useTitle } from "../router.js";
import { changed, may } from "../state.js";
import { Button, Empty, Facts, Head, Panel, Pill, Skeleton, Table, Tabs, Time, Trouble, number, toast } from "../ui.js";
import { Text } from "../tree.js";

const TABS = /** @type {[string, string][]} */ ([["open", "Open"], ["", "All"]]);
const OPEN = ["open", "acknowledged"];

export default function Incidents({ id }) {
  return id ? html`<${One} id=${id} />` : html`<${All} />`;
}

function All() {
  useTitle("Incidents");
  const which = query.value.get("show") ?? "open";
  const found = useResource("incidents", { states: which === "open" ? OPEN : [], limit: 200 }, { on: ["incidents"] });
  return html`<${Head} title="Incidents" about="What somebody should know of: each is told once, until it is over">
      <${Tabs} label="Which incidents" tabs=${TABS} chosen=${which} choose=${(name) => setQuery({ show: name || "all" }, { replace: false })} /><//>
    <${Panel} id="incidents" flush from=${found} empty=${(rows) => !rows.length && html`<${Empty} title=${which === "open" ? "Nothing is wrong that anybody has to know of" : "There was none yet"}>A source that dies too often, a backend that is away, a storm: each becomes one line here, and is told to whom the settings under alerts name.<//>`}>
      ${(rows) => html`<${Table} caption="Incidents" rows=${rows} columns=${COLUMNS} open=${(incident) => href(`/incidents/${incident.id}`)} />`}<//>`;
}

const COLUMNS = [
  { name: "alert", title: "Incident", kind: "grow", cell: (incident) => html`<a class="title" href=${href(`/incidents/${incident.id}`)}>${incident.alert.name}</a> <span class="message"><${Text} value=${incident.alert.summary} /></span>` },
  { name: "severity", title: "Severity", cell: (incident) => html`<${Pill} state=${incident.alert.severity} />` },
  { name: "state", title: "State", cell: (incident) => html`<${Pill} state=${incident.state} />` },
  { name: "source", title: "Source", kind: "wrap", label: "source", cell: (incident) => incident.alert.source },
  { name: "times", title: "Times", number: true, label: "times", cell: (incident) => number(incident.count) },
  { name: "by", title: "Seen to by", kind: "wrap", label: "by", cell: (incident) => incident.acknowledged_by },
  { name: "opened", title: "Opened", kind: "nowrap faint", label: "opened", cell: (incident) => html`<${Time} at=${incident.opened_at} />` },
  { name: "seen", title: "Last seen", kind: "nowrap faint", label: "last seen", cell: (incident) => html`<${Time} at=${incident.seen_at} />` },
];

function One({ id }) {
  const found = useResource(`incidents/${part(id)}`, {}, { on: ["incidents"] });
  const incident = found.data;
  useTitle(incident ? incident.alert.name : "Incident");
  const back = /** @type {[string, string]} */ ([href("/incidents"), "Incidents"]);
  if (!incident) return html`<${Head} title="Incident" back=${back} />${found.error ? html`<${Trouble} error=${found.error} again=${found.reload} />` : html`<${Skeleton} />`}`;
  const { alert } = incident;
  const act = (verb, said) => async () => {
    const after = await post(`incidents/${part(incident.id)}/${verb}`);
    toast(`${said}: it is ${after.state}`);
    changed("incidents");
  };
  return html`<${Head} back=${back} title=${html`${alert.name} <${Pill} state=${incident.state} />`} about=${html`<${Text} value=${alert.summary} />`}>
      ${may("operator") && OPEN.includes(incident.state) && html`
        ${incident.state === "open" && html`<${Button} act=${act("acknowledge", "You work on it")}>I work on it<//>`}
        <${Button} kind="primary" act=${act("resolve", "Resolved")}>Resolve<//>`}<//>
    <div class="columns"><div>
      <${Panel} title="What it is"><${Facts} rows=${[
        ["Severity", html`<${Pill} state=${alert.severity} />`],
        ["Group", alert.group && html`<a href=${href(`/groups/${part(alert.group)}`)}>${alert.group}</a>`],
        ["Source", alert.source && html`<a href=${href(sourceAt(alert.source))}>${alert.source}</a>`],
        ["Times", number(incident.count)],
        ["Since", html`<${Time} at=${alert.starts_at} full />`],
        ["Last seen", html`<${Time} at=${incident.seen_at} full />`],
        ["Resolved", incident.resolved_at && html`<${Time} at=${incident.resolved_at} full /> by ${incident.resolved_by}`],
        ...Object.entries(alert.details).filter(([name]) => !["group", "source"].includes(name)).map(([name, value]) => [inWords(name), detail(name, String(value))]),
      ]} /><//></div>
      <div><${Notes} incident=${incident} reload=${found.reload} /></div></div>`;
}

const inWords = (/** @type {string} */ name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

/** A letter or replay that an alert names leads to its page. */
const detail = (/** @type {string} */ name, /** @type {string} */ value) =>
  (["letter", "replay"].includes(name) ? html`<a class="code" href=${href(`/${name}s/${part(value)}`)}>${value}</a>` : html`<${Text} value=${value} />`);

function Notes({ incident, reload }) {
  const [text, setText] = useState("");
  const add = async () => {
    await post(`incidents/${part(incident.id)}/notes`, { text: text.trim() });
    setText("");
    toast("Noted");
    reload();
  };
  return html`<${Panel} id="notes" title="Notes">${incident.notes.length === 0 && html`<p class="faint">None yet.</p>`}
    <ul class="stack">${incident.notes.map((note) => html`<li><p class="faint"><strong>${note.actor ?? note.by}</strong> <${Time} at=${note.at} full /></p><p class="said"><${Text} value=${note.text} /></p></li>`)}</ul>
    ${may("operator") && html`<div class="note"><textarea class="prose" rows="2" aria-label="A note" maxlength="2000" value=${text} onInput=${(event) => setText(event.target.value)} />
      <${Button} act=${add} disabled=${!text.trim()}>Add a note<//></div>`}<//>`;
}
