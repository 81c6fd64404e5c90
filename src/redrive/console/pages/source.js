// One source: its queue as it stands, its letters over time, its workers.

import { part } from "../api.js";
import { StackedChart, inOrder } from "../chart.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { Empty, Head, Pager, Panel, Pill, Stat, Table, Tabs, Time, Trouble, number, plural } from "../ui.js";
import { Text } from "../tree.js";
import { Away, Held, PauseButton, PauseDialog, Standing, Workers, rateOf, stateOf } from "./sources.js";

const LASTS = /** @type {[string, string][]} */ ([["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]]);

export default function Source({ name: inPath }) {
  const name = query.value.get("name") ?? inPath;
  useTitle(name);
  const transport = query.value.get("transport");
  const sources = useResource("sources", {}, { on: ["sources", "letters"], every: 15 });
  const workers = useResource("workers", {}, { on: ["sources"], every: 15 });
  const [asks, setAsks] = useState(false);
  const named = sources.data?.details.filter((one) => one.source === name) ?? [];
  const found = named.find((one) => one.transport === (transport ?? "default")) ?? (transport ? null : named[0]);
  return html`<${Head} title=${html`<${Text} value=${name} /> ${found && html`<${Pill} state=${stateOf(found)} />`}`} back=${[href("/sources"), "Sources"]}
      about=${found && html`of the transport ${found.transport}${found.paused && html`, <${Standing} paused=${found.paused} />`}`}>
      <a class="button" href=${href(`/letters?sources=${part(name)}`)}>Its letters</a>${found && html`<${PauseButton} source=${found} ask=${() => setAsks(true)} />`}<//>
    <${Away} unanswered=${sources.data?.unanswered ?? []} />
    ${sources.error && html`<${Trouble} error=${sources.error} again=${sources.reload} />`}
    ${sources.data && !found && html`<${Empty} title="This source is not known now">It has no handler here, no letter and no message that waits.<//>`}
    ${found && html`<section class="stats" aria-label="Summary">
      <${Stat} name="Ready" value=${number(found.queued?.ready)} /><${Stat} name="Delayed" value=${number(found.queued?.delayed)} /><${Stat} name="In hand" value=${number(found.queued?.leased ?? found.in_hand)} />
      <${Stat} name="Finish a second" value=${rateOf(found)} about=${found.workers ? `${plural(found.workers, "worker")}, ${number(found.concurrency)} at once` : "nobody works on it"} />
      ${Object.entries(found.states).map(([state, count]) => html`<${Stat} key=${state} name=${`Letters ${state}`} value=${number(count)} to=${href(`/letters?sources=${part(name)}&states=${state}`)} />`)}</section>`}
    <div class="columns"><div><${OverTime} source=${name} /><${Queue} source=${name} transport=${found?.transport ?? transport} queued=${found?.queued} /><${Workers} workers=${workers} source=${name} /></div><div><${Held} source=${name} /></div></div>
    ${asks && html`<${PauseDialog} source=${found} close=${() => setAsks(false)} />`}`;
}

function OverTime({ source }) {
  const last = query.value.get("last") ?? "24h";
  const series = useResource("series", { source: [source], by: "outcome", last }, { on: ["letters"] });
  return html`<${Panel} id="over-time" title="Over time" from=${series} aside=${html`<${Tabs} label="Time" tabs=${LASTS} chosen=${last} choose=${(name) => setQuery({ last: name })} />`}
    empty=${({ lines }) => !lines.some((line) => line.total) && html`<${Empty} title="Nothing happened here in this time" />`}>
    ${(found) => html`<${StackedChart} series=${inOrder(found)} height=${150} label=${`Letters of ${source}`} />`}<//>`;
}

/** What waits in it, as its transport can tell. */
function Queue({ source, transport, queued }) {
  const [pages, setPages] = useState(/** @type {(string | null)[]} */ ([null]));
  const queue = useResource("queue", { source, transport, after: pages.at(-1), limit: 25 }, { on: ["sources", "letters"], every: 15 });
  const columns = [
    { name: "id", title: "Message", kind: "grow", cell: (one) => html`<code><${Text} value=${one.id} /></code>${one.error_type && html`<span class="message"><${Text} value=${`${one.error_type} ${one.error_message}`} /></span>`}` },
    { name: "state", title: "State", cell: (one) => html`<${Pill} state=${one.state} />` },
    { name: "attempt", title: "Attempt", number: true, label: "attempt", cell: (one) => number(one.attempt) },
    { name: "by", title: "Leased by", kind: "wrap", label: "by", cell: (one) => one.leased_by },
    { name: "at", title: "Next", kind: "nowrap faint", label: "next", cell: (one) => one.next_attempt_at && html`<${Time} at=${one.next_attempt_at} coming />` },
  ];
  return html`<${Panel} id="queue" title="Queue" flush from=${queue} empty=${({ messages, notes }) => !messages.length && html`<${Empty} title=${queued?.ready || queued?.delayed || queued?.leased ? "What is in it cannot be listed" : "Nothing waits in it"}>${notes.join(" ")}<//>`}>
    ${({ messages, after, notes }) => html`${notes.map((note) => html`<p class="faint note-line"><${Text} value=${note} /></p>`)}<${Table} caption="Queue" rows=${messages} columns=${columns} />
      <${Pager} what="the queue" first=${(pages.length - 1) * 25} count=${messages.length} prev=${pages.length > 1 ? () => setPages(pages.slice(0, -1)) : null} next=${after ? () => setPages([...pages, after]) : null} />`}<//>`;
}
