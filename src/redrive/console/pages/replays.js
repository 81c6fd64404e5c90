// Replays: those that run or wait, and those that are over.

import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { href, useTitle } from "../router.js";
import { may } from "../state.js";
import { Empty, Head, Panel, Pill, Table, Time, number } from "../ui.js";
import { Text } from "../tree.js";
import { HowFar, newsOf } from "./replay_parts.js";

const OPEN = ["freezing", "running", "paused"];
const MOST = 200;

export default function Replays() {
  useTitle("Replays");
  const replays = useResource("replays", { limit: MOST }, { on: ["replays"] });
  const stateOf = (replay) => newsOf(replay.id, replays)?.state ?? replay.state;
  const isOpen = (replay) => OPEN.includes(stateOf(replay));
  const columns = columnsOf(stateOf);
  return html`<${Head} title="Replays" about="Letters that are sent back: planned, a few first, then more, and guarded">
      ${may("operator") && html`<a class="button primary" href=${href("/replays/new")}>New replay…</a>`}<//>
    <${Panel} id="open" title="Running and waiting" flush from=${replays} empty=${(found) => !found.some(isOpen) && html`<${Empty} title="No replay runs or waits" />`}>
      ${(found) => html`<${Rows} caption="Running and waiting" rows=${found.filter(isOpen)} columns=${[...columns.slice(0, 3), FAR, ...columns.slice(3, 5)]} />`}<//>
    <${Panel} id="ended" title="Over" flush from=${replays} empty=${(found) => found.every(isOpen) && html`<${Empty} title="None yet">${may("operator") ? "A replay starts from a group, from letters that are chosen, or with New replay." : "An operator starts one: from a group, or from letters that are chosen."}<//>`}>
      ${(found) => html`<${Rows} caption="Over" rows=${found.filter((one) => !isOpen(one))} columns=${columns} />
        ${found.length === MOST && html`<p class="faint note-line">The newest ${number(MOST)} replays; <code>redrive replays --limit 1000</code> lists older ones, and each keeps its page.</p>`}`}<//>`;
}

const Rows = ({ rows, caption, columns }) => html`<${Table} caption=${caption} rows=${rows} columns=${columns} open=${(replay) => href(`/replays/${replay.id}`)} />`;

const FAR = { name: "far", title: "How far", kind: "wrap", label: "how far", cell: (replay) => html`<${HowFar} replay=${replay} />` };

const columnsOf = (/** @type {(replay: any) => string} */ stateOf) => [
  { name: "replay", title: "Replay", kind: "grow", cell: (replay) => html`<a class="title" href=${href(`/replays/${replay.id}`)}><${Text} value=${replay.reason || replay.id} /></a>
      ${replay.paused && stateOf(replay) === "paused" && html`<span class="message"><${Text} value=${replay.paused.why} /></span>`}${replay.awaits && stateOf(replay) === "running" && html`<span class="message"><${Text} value=${replay.awaits} /></span>`}` },
  { name: "state", title: "State", cell: (replay) => html`<${Pill} state=${stateOf(replay)} />` },
  { name: "letters", title: "Letters", number: true, label: "letters", cell: (replay) => number(replay.total) },
  { name: "by", title: "By", kind: "wrap", label: "by", cell: (replay) => replay.actor },
  { name: "begun", title: "Begun", kind: "nowrap faint", label: "begun", cell: (replay) => html`<${Time} at=${replay.created_at} />` },
  { name: "ended", title: "Ended", kind: "nowrap faint", label: "ended", cell: (replay) => replay.ended_at && html`<${Time} at=${replay.ended_at} />` },
];
