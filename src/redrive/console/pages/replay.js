// One replay: how far it is, why it waits, what became of each letter, and what a person can do about it.

import { part, post } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { replayNews } from "../live.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { changed, may } from "../state.js";
import { useTyped } from "../typed.js";
import { Button, Empty, Facts, Field, FormDialog, Head, Pager, Panel, Pill, Shares, Skeleton, Stat, Table, Tabs, Time, Trouble, confirm, letters, number, percent, toast } from "../ui.js";
import { Text } from "../tree.js";
import { newsOf } from "./replay_parts.js";

const SIZE = 50;
const OPEN = ["freezing", "running", "paused"];
const PARTS = ["resolved", "sent", "failed", "skipped", "selected"];
const WORDS = /** @type {Record<string, string>} */ ({ selected: "Waiting", sent: "On their way", resolved: "Resolved", failed: "Died again", skipped: "Skipped" });

export default function ReplayPage({ id }) {
  const report = useResource(`replays/${part(id)}`, {}, { on: ["replays", "letters"] });
  const told = replayNews.value[id]?.state;
  useEffect(() => void (told && report.reload()), [told]);
  const found = report.data?.replay;
  useTitle(found ? found.reason || "Replay" : "Replay");
  const back = /** @type {[string, string]} */ ([href("/replays"), "Replays"]);
  if (!found) return html`<${Head} title="Replay" back=${back} />${report.error ? html`<${Trouble} error=${report.error} again=${report.reload} />` : html`<${Skeleton} rows=${6} />`}`;
  const news = newsOf(id, report);
  const state = news?.state ?? found.state;
  const tally = news?.tally ?? report.data.entries;
  return html`
    <${Head} back=${back} title=${html`<${Text} value=${found.reason || found.id} /> <${Pill} state=${state} />`} about=${html`by ${found.actor}, <${Time} at=${found.created_at} full />`}>
      ${may("operator") && html`<${Acts} replay=${found} state=${state} />`}<//>
    ${report.error && html`<${Trouble} error=${report.error} again=${report.reload} />`}
    ${state === "paused" && found.paused && html`<${Paused} paused=${found.paused} />`}
    <${Progress} replay=${found} state=${state} tally=${tally} />
    <div class="columns"><div><${Ledger} id=${found.id} /></div><div><${About} replay=${found} state=${state} /></div></div>`;
}

function Acts({ replay, state }) {
  const [asks, setAsks] = useState(false);
  const act = (verb, said, body = {}) => async () => {
    const answer = await post(`replays/${part(replay.id)}/${verb}`, body);
    toast(said(answer.replay ?? replay));
    changed("replays", "letters");
  };
  if (!OPEN.includes(state)) return null;
  const cancel = () => confirm({
    title: "Send no more of it?",
    body: html`<p>What was sent keeps its course; the rest stays where it is. A cancelled replay cannot go on.</p>`,
    verb: "Cancel the replay",
    danger: true,
    act: act("cancel", (after) => (after.state === "cancelled" ? "Cancelled: no more of it is sent" : `It is ${after.state}`)),
  });
  return html`
    ${state === "running" && html`<${Button} act=${act("pause", (after) => (after.state === "paused" ? "Paused" : `It is ${after.state}`))}>Pause<//>`}
    ${state === "paused" && replay.paused?.by === "approval" && html`<a class="button primary" href=${href(`/approvals/${part(replay.id)}`)}>Waits for approval</a>`}
    ${state === "paused" && replay.paused?.by !== "approval" && html`<${Button} kind="primary" act=${act("resume", (after) => (after.state === "running" ? "It goes on" : `It is ${after.state}`))}>Resume<//>`}
    ${state !== "freezing" && html`<button type="button" class="button" onClick=${() => setAsks(true)}>Pace…</button>`}
    <button type="button" class="button danger" onClick=${cancel}>Cancel…</button>
    ${asks && html`<${PaceDialog} replay=${replay} close=${() => setAsks(false)} />`}`;
}

const PaceDialog = ({ replay, close }) => html`<${FormDialog} title="How fast, and how carefully" verb="Change" close=${close} act=${async (form) => {
  const rate = Number(form.rate) || null;
  const guard = form.guarded && form.guard !== "" ? Number(form.guard) : null;
  const { replay: after } = await post(`replays/${part(replay.id)}/pace`, { rate, unlimited: rate === null, guard, guarded: form.guarded });
  toast(`${after.rate ? `${number(after.rate)} a second` : "As fast as it goes"}, ${after.guard ? `pauses over ${percent(after.guard.share)}` : "not guarded"}`);
  changed("replays");
}}>
  <${Field} label="Letters a second" about="empty: as fast as it goes"><input type="number" name="rate" min="0.1" step="any" defaultValue=${replay.rate ?? ""} /><//>
  <label class="row"><input type="checkbox" name="guarded" defaultChecked=${Boolean(replay.guard)} /> Wait for outcomes after each step, and pause when too many die again</label>
  <${Field} label="Pause over percent"><input type="number" name="guard" min="0" max="100" step="any" defaultValue=${replay.guard ? 100 * replay.guard.share : ""} /><//><//>`;

/** Why it waits for a person, with what its letters died of before and now. */
const Paused = ({ paused }) => html`<section class="trouble" id="paused" role="alert" aria-label="Paused">
  <p><strong>Paused ${{ guard: "by its guard", deadline: "because nothing is heard", approval: "for a second person", order: "for the order of keys", hand: `by ${paused.actor}` }[paused.by]}</strong>: <${Text} value=${paused.why} /> <${Time} at=${paused.at} full /></p>
  ${paused.compared.length > 0 && html`<table class="rows compared"><caption class="unseen">What died again</caption><thead><tr><th scope="col" class="number">Letters</th><th scope="col">Before</th><th scope="col">Now</th><th scope="col"></th></tr></thead>
    <tbody>${paused.compared.map((one) => html`<tr><td class="number" data-label="letters">${number(one.letters)}</td>
      <td data-label="before"><a href=${href(`/groups/${part(one.before_group)}`)}><${Text} value=${one.before} /></a></td><td data-label="now"><a href=${href(`/groups/${part(one.now_group)}`)}><${Text} value=${one.now} /></a></td>
      <td><strong>${one.before_group === one.now_group ? "the bug is still there" : "it fails elsewhere now"}</strong></td></tr>`)}</tbody></table>`}
</section>`;

function Progress({ replay, state, tally }) {
  const count = (name) => tally[name] ?? 0;
  const parts = PARTS.map((name) => ({ name, count: count(name) }));
  return html`<${Panel} id="progress" title="Progress" about=${replay.state === "freezing" ? "its letters are being selected" : letters(replay.total)}>
    <div class="bar-large"><${Shares} total=${replay.total || 1} parts=${parts.slice(0, 4)} /></div>
    ${replay.guard && replay.state !== "freezing" && html`<${Steps} replay=${replay} />`}
    <section class="stats" aria-label="Numbers">${PARTS.map((name) => html`<${Stat} key=${name} name=${WORDS[name]} value=${number(count(name))} tone=${name === "failed" && count(name) ? "red" : name === "resolved" && count(name) ? "green" : undefined} about=${replay.total ? percent(count(name) / replay.total) : ""} />`)}</section>
    ${state === "running" && replay.awaits && html`<p class="faint">It waits for <${Text} value=${replay.awaits} /></p>`}
    ${replay.waits?.map((wait) => html`<p class="caution"><${Text} value=${`${wait.source}: ${wait.why}`} /></p>`)}<//>`;
}

/** The canary and the ramp: which step it is at. */
function Steps({ replay }) {
  const ends = [...new Set([replay.guard.canary, ...replay.guard.ramp.map((share) => Math.ceil((replay.total * share) / 100)), replay.total].map((end) => Math.min(end, replay.total)))].sort((a, b) => a - b);
  return html`<ol class="steps" aria-label="Steps">${ends.map((end, index) => html`<li aria-current=${index === replay.step && OPEN.includes(replay.state) ? "step" : undefined} data-done=${index < replay.step || replay.state === "sent"}>
    ${index === 0 ? `${number(end)} first` : index === ends.length - 1 ? `all ${number(end)}` : `to ${number(end)}`}</li>`)}</ol>`;
}

const About = ({ replay, state }) => html`<${Panel} title="About"><${Facts} rows=${[
  ["Replay", html`<code>${replay.id}</code>`],
  ["Speed", replay.rate ? `${number(replay.rate)} a second` : "as fast as it goes"],
  ["Guard", replay.guard ? `pauses when more than ${percent(replay.guard.share)} of a step die again` : "none"],
  ["Order", replay.ordered ? "letters of one key one after the other" : "none"],
  ["Run by", state === "running" && replay.runner],
  ["Ended", replay.ended_at && html`<${Time} at=${replay.ended_at} full />`],
  ["Not told of", replay.untold > 0 && `${letters(replay.untold)} went to consumers that tell no outcome`],
]} /><//>`;

const TABS = /** @type {[string, string][]} */ ([["", "All"], ["failed", "Died again"], ["skipped", "Skipped"], ["sent", "On their way"], ["resolved", "Resolved"], ["selected", "Waiting"]]);

/** What became of each letter, in the order they were selected. */
function Ledger({ id }) {
  const status = query.value.get("status") ?? "";
  const text = query.value.get("text") ?? "";
  const [typed, setTyped] = useTyped("text");
  const [pages, setPages] = useState(/** @type {(string | null)[]} */ ([null]));
  useEffect(() => setPages([null]), [status, text]);
  const found = useResource(`replays/${part(id)}/entries`, { status, text, after: pages.at(-1), limit: SIZE }, { on: ["replays", "letters"] });
  const next = found.data?.after ? () => setPages([...pages, found.data.after]) : null;
  const columns = [
    { name: "letter", title: "Letter", kind: "nowrap", cell: (entry) => html`<a class="code" href=${href(`/letters/${part(entry.letter)}`)}>${entry.letter}</a>` },
    { name: "status", title: "State", cell: (entry) => html`<${Pill} state=${entry.status}>${WORDS[entry.status]}<//>` },
    { name: "note", title: "Why", kind: "grow", cell: (entry) => html`<${Text} value=${entry.note} />` },
    { name: "at", title: "When", kind: "nowrap faint", label: "when", cell: (entry) => html`<${Time} at=${entry.at} />` },
  ];
  return html`<${Panel} id="ledger" title="Ledger" flush from=${found} aside=${html`<input type="search" data-search placeholder="Letter or why" aria-label="Search the ledger" maxlength="200" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <${Tabs} label="Which letters" tabs=${TABS} chosen=${status} choose=${(name) => setQuery({ status: name })} />`}
    empty=${({ entries, after }) => !entries.length && !after && html`<${Empty} title=${text ? "No line has that text" : status ? `None is ${(WORDS[status] ?? status).toLowerCase()}` : "Nothing is selected yet"} />`}>
    ${({ entries }) => html`<${Table} caption="Ledger" rows=${entries} id=${(entry) => entry.letter} columns=${columns} open=${(entry) => href(`/letters/${part(entry.letter)}`)} />
      <${Pager} what="the ledger" first=${(pages.length - 1) * SIZE} count=${entries.length} prev=${pages.length > 1 ? () => setPages(pages.slice(0, -1)) : null} next=${next} />`}<//>`;
}
