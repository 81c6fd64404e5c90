// Dead-letter queues of RabbitMQ, as file processing has them: how full each is, what lies in one, and the way back.

import { part, post } from "../api.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, useTitle } from "../router.js";
import { changed } from "../state.js";
import { Empty, Facts, Field, FormDialog, Head, Panel, Table, number, plural, toast } from "../ui.js";
import { JsonTree, Text } from "../tree.js";

const SHOWN = 20;

/** Every dead-letter queue that may be looked at. */
export function DeadQueues() {
  const queues = useResource("/admin/dlq/queues", {}, { on: ["sources"], every: 15 });
  return html`<${Panel} id="dead-queues" title="Dead-letter queues" about="of RabbitMQ" flush from=${queues} empty=${(found) => !found.length && html`<${Empty} title="None is named">The setting files.queues lists them.<//>`}>
    ${(found) => html`<${Table} caption="Dead-letter queues" rows=${found} id=${(one) => one.queue} columns=${QUEUES} open=${(one) => href(`/dead-letter-queues/${part(one.queue)}`)} />`}<//>`;
}

const QUEUES = [
  { name: "queue", title: "Queue", kind: "grow", cell: (one) => html`<a class="title" href=${href(`/dead-letter-queues/${part(one.queue)}`)}><${Text} value=${one.queue} /></a>` },
  { name: "source", title: "Of", kind: "wrap", label: "of", cell: (one) => html`<${Text} value=${one.source} />` },
  { name: "messages", title: "Messages", number: true, label: "messages", cell: (one) => (one.messages === null ? html`<span class="faint">not on the broker</span>` : number(one.messages)) },
];

/** One of them: what lies in it, as it lies there, and sending it back. */
export default function DeadQueue({ queue }) {
  useTitle(queue);
  const path = `/admin/dlq/queues/${part(queue)}`;
  const messages = useResource(`${path}/messages`, { limit: SHOWN }, { on: ["sources"], every: 15 });
  const plan = useResource(`${path}/re-drive`, { limit: 1_000_000 }, { on: ["sources"], every: 15 });
  const [asks, setAsks] = useState(false);
  return html`<${Head} title=${html`<${Text} value=${queue} />`} back=${[href("/sources"), "Sources"]} about=${plan.data && html`${plural(plan.data.found, "message")}; they go back to <code>${plan.data.source}</code>`}>
      ${plan.data?.found > 0 && html`<button type="button" class="button primary" data-hotkey="r" onClick=${() => setAsks(true)}>Re-drive…</button>`}<//>
    <${Panel} id="messages" title="Its first messages" about="looked at, and left where they are" from=${messages} empty=${(found) => !found.length && html`<${Empty} title="Nothing lies in it" />`}>
      ${(found) => html`<ul class="stack">${found.map((one, index) => html`<${Message} key=${one.message_id ?? index} one=${one} />`)}</ul>`}<//>
    ${asks && html`<${Redrive} plan=${plan.data} path=${path} done=${() => (messages.reload(), plan.reload())} close=${() => setAsks(false)} />`}`;
}

const Message = ({ one }) => html`<li class="dead-message"><p class="row"><strong><${Text} value=${one.message_id ?? "without an id"} /></strong> <span class="faint"><${Text} value=${`${one.exchange || "(default exchange)"} → ${one.routing_key}`} />, ${number(one.size)} bytes</span></p>
  <${Facts} rows=${Object.entries(one.headers).map(([name, value]) => [html`<${Text} value=${name} />`, html`<${Text} value=${typeof value === "string" ? value : JSON.stringify(value)} />`])} />
  <${JsonTree} text=${one.body} /></li>`;

const Redrive = ({ plan, path, done, close }) => html`<${FormDialog} title=${`Send messages of ${plan.queue} back`} verb="Re-drive" close=${close} act=${async ({ limit }) => {
  const told = await post(`${path}/re-drive`, { limit: Number(limit) });
  toast(`${number(told.sent)} of ${number(told.found)} went back to ${plan.source}${told.refused ? `; ${number(told.refused)} stay: ${told.why}` : ""}`, told.refused ? "error" : "info");
  changed("sources");
  done();
}}>
  <p>They go to <code>${plan.source}</code>, where they came from, and to no other queue.</p>
  <p class="caution">${plan.note}</p>
  <${Field} label="How many at most"><input type="number" name="limit" min="1" max="1000000" required defaultValue=${plan.found} /><//><//>`;
