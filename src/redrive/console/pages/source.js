// One source: its queue as it stands, its letters over time, its workers.

import { part } from "../api.js";
import { StackedChart } from "../chart.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { Empty, Head, Pager, Panel, Pill, Stat, Table, Tabs, Time, number } from "../ui.js";
import { Text } from "../tree.js";
import { Away, Held, PauseButton, PauseDialog, Standing, Workers } from "./sources.js";

const LASTS = /** @type {[string, string][]} */ ([["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]]);

export default function Source({ name }) {
  useTitle(name);
  const stats = useResource("stats", {}, { on: ["sources", "letters"] });
  const workers = useResource("workers", {}, { on: ["sources"] });
  const [asks, setAsks] = useState(false);
  const found = stats.data?.sources.find((one) => one.source === name);
  return html`<${Head} title=${html`<${Text} value=${name} /> ${found && html`<${Pill} state=${found.paused ? (found.paused.storm ? "storm" : "paused") : "running"} />`}`} back=${[href("/sources"), "Sources"]}
      about=${found?.paused && html`<${Standing} paused=${found.paused} />`}>
      <a class="button" href=${href(`/letters?sources=${part(name)}`)}>Its letters</a>${found && html`<${PauseButton} source=${name} paused=${found.paused} ask=${() => setAsks(true)} />`}<//>
    <${Away} unanswered=${stats.data?.unanswered ?? []} />
    ${stats.data && !found && html`<${Empty} title="This source is not known now">It has no handler here, no letter and no message that waits.<//>`}
    ${found && html`<section class="stats" aria-label="Summary">
      <${Stat} name="Ready" value=${number(found.queued?.ready)} /><${Stat} name="Delayed" value=${number(found.queued?.delayed)} /><${Stat} name="In hand" value=${number(found.queued?.leased)} />
      ${Object.entries(found.states).map(([state, count]) => html`<${Stat} key=${state} name=${state} value=${number(count)} to=${href(`/letters?sources=${part(name)}&states=${state}`)} />`)}</section>`}
    <div class="columns"><div><${OverTime} source=${name} /><${Queue} source=${name} /></div><div><${Workers} workers=${workers} source=${name} /><${Held} source=${name} /></div></div>
    ${asks && html`<${PauseDialog} source=${name} close=${() => setAsks(false)} />`}`;
}

function OverTime({ source }) {
  const last = query.value.get("last") ?? "24h";
  const series = useResource("series", { source: [source], by: "outcome", last }, { on: ["letters"] });
  return html`<${Panel} id="over-time" title="Over time" from=${series} aside=${html`<${Tabs} label="Time" tabs=${LASTS} chosen=${last} choose=${(name) => setQuery({ last: name })} />`}
    empty=${({ lines }) => !lines.some((line) => line.total) && html`<${Empty} title="Nothing happened here in this time" />`}>
    ${(found) => html`<${StackedChart} series=${found} height=${150} label=${`Letters of ${source}`} />`}<//>`;
}

/** What waits in it, as its transport can tell. */
function Queue({ source }) {
  const [pages, setPages] = useState(/** @type {(string | null)[]} */ ([null]));
  const queue = useResource("queue", { source, after: pages.at(-1), limit: 25 }, { on: ["sources"] });
  const columns = [
    { name: "id", title: "Message", kind: "grow", cell: (one) => html`<code><${Text} value=${one.id} /></code>${one.error_type && html`<span class="message"><${Text} value=${`${one.error_type} ${one.error_message}`} /></span>`}` },
    { name: "state", title: "State", cell: (one) => html`<${Pill} state=${one.state} />` },
    { name: "attempt", title: "Attempt", number: true, label: "attempt", cell: (one) => number(one.attempt) },
    { name: "by", title: "Leased by", kind: "wrap", label: "by", cell: (one) => one.leased_by },
    { name: "at", title: "Next", kind: "nowrap faint", label: "next", cell: (one) => one.next_attempt_at && html`<${Time} at=${one.next_attempt_at} coming />` },
  ];
  return html`<${Panel} id="queue" title="Queue" flush from=${queue} empty=${({ messages, notes }) => !messages.length && html`<${Empty} title="Nothing waits in it">${notes.join(" ")}<//>`}>
    ${({ messages, after, notes }) => html`${notes.map((note) => html`<p class="faint note-line"><${Text} value=${note} /></p>`)}<${Table} caption="Queue" rows=${messages} columns=${columns} />
      <${Pager} what="the queue" first=${(pages.length - 1) * 25} count=${messages.length} prev=${pages.length > 1 ? () => setPages(pages.slice(0, -1)) : null} next=${after ? () => setPages([...pages, after]) : null} />`}<//>`;
}
