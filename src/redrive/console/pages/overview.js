// Overview: what is dying now.

import { StackedChart, inOrder } from "../chart.js";
import { Brief } from "../clamped.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { Chip, Empty, Head, Panel, Pill, Sparkline, Stat, Table, Tabs, Time, exact, number, percent, plural, short } from "../ui.js";
import { Text } from "../tree.js";
import { toneOfTrend } from "./group_parts.js";
import { ReplayRow } from "./replay_parts.js";

const LASTS = [["15m", "15 min"], ["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]];
const BYS = [["outcome", "By outcome"], ["source", "By source"], ["category", "By category"]];
const OUTCOMES = ["buried", "retried", "resolved"];
const NAMES = { "15m": "15 minutes", "1h": "hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days" };

export default function Overview() {
  useTitle("Overview");
  const last = query.value.get("last") ?? "24h";
  const overview = useResource("overview", { last }, { on: ["letters", "groups", "replays", "incidents", "sources"], every: 15 });
  const choose = (name) => setQuery({ last: name, since: null, until: null }, { replace: false });
  return html`
    <${Head} title="Overview" about="What is dying now, over all brokers"><${Tabs} label="Time" tabs=${LASTS} chosen=${last} choose=${choose} /><//>
    <${Away} backends=${overview.data?.backends ?? []} />
    <${Totals} overview=${overview} last=${last} />
    <${Over} last=${last} />
    <div class="columns">
      <div><${TopGroups} overview=${overview} last=${last} /></div>
      <div><${Replays} overview=${overview} /><${Incidents} overview=${overview} /><${Backends} overview=${overview} /></div>
    </div>`;
}

/** What does not answer, above all else: the numbers below are without it. */
function Away({ backends }) {
  const away = backends.filter((backend) => !backend.ok);
  return html`<div id="away" class="away" role="status">${away.length > 0 && html`<div class="trouble"><p><strong>Not everything answers</strong>: what is shown is from the others.</p>
    <ul>${away.map((backend) => html`<li key=${backend.name}><strong>${backend.name}</strong>: ${backend.why}</li>`)}</ul></div>`}</div>`;
}

function Totals({ overview, last }) {
  if (overview.data === null) return html`<${Panel} from=${overview} />`;
  const { totals, waiting, oldest, retry_success: success, note } = overview.data;
  const stat = (name, about, to, tone) => html`<${Stat} name=${about} value=${totals[name] ? short(totals[name].now) : "–"} tone=${totals[name]?.now ? tone : undefined} to=${to}
    about=${totals[name] ? html`<${Change} ...${totals[name]} last=${last} good=${name === "resolved"} />` : note || "not known now"} />`;
  return html`<section class="stats" id="totals" aria-label="Totals">
    ${stat("buried", "Buried", href(`/letters?last=${last}`), "red")}
    ${stat("retried", "Retried")}
    ${stat("resolved", "Resolved", href("/letters?states=resolved"), "green")}
    <${Stat} name="Open letters" value=${waiting === null ? "–" : short(waiting)} to=${href("/letters?states=pending&states=retrying&states=replaying&states=exhausted")} about="not resolved, sent or archived" />
    <${Stat} name="Oldest" to=${oldest ? href(`/letters/${oldest.id}`) : undefined} value=${oldest ? html`<${Time} at=${oldest.created_at} />` : "–"} about=${oldest ? html`in <${Brief} value=${oldest.source} />, ${exact(oldest.created_at)}` : "nothing is open"} />
    <${Stat} name="Retry success" value=${percent(success)} about=${success === null ? "nothing came back" : "of letters that came back"} />
  </section>`;
}

/** How a number changed against the span before. */
function Change({ now, before, last, good }) {
  const against = `the ${NAMES[last] ?? last} before`;
  if (!before) return now ? `none in ${against}` : `as in ${against}`;
  const share = (now - before) / before;
  const tone = share === 0 ? "" : share > 0 === good ? "green" : "red";
  return html`<span class="change" data-tone=${tone}>${share > 0 ? "▲" : share < 0 ? "▼" : "="} ${share > 9.99 ? `${short(Math.round(now / before))}×` : percent(Math.abs(share))}</span> ${`from ${short(before)} before`}`;
}

/** The chart, with what it is drawn by and a zoom, both in the address. */
function Over({ last }) {
  const by = query.value.get("by") ?? "outcome";
  const since = query.value.get("since");
  const until = query.value.get("until");
  const outcome = by === "outcome" ? null : query.value.get("outcome") ?? "buried";
  const series = useResource("series", since && until ? { since, until, by, outcome } : { last, by, outcome }, { on: ["letters"], every: 60 });
  const zoom = (from, to) => setQuery({ since: iso(from), until: iso(Math.max(to, from + 60)) }, { replace: false });
  const aside = html`${since && html`<button type="button" class="button" onClick=${() => setQuery({ since: null, until: null }, { replace: false })}>Whole ${NAMES[last] ?? last}</button>`}
    ${outcome && html`<${Tabs} label="What is counted" tabs=${OUTCOMES.map((name) => [name, name])} chosen=${outcome} choose=${(name) => setQuery({ outcome: name })} />`}
    <${Tabs} label="Drawn by" tabs=${BYS} chosen=${by} choose=${(name) => setQuery({ by: name })} />`;
  const about = since && until ? `${exact(since)} to ${exact(until)}` : "drag over a time to look closer";
  return html`<${Panel} id="over-time" title="Over time" about=${about} from=${series} aside=${aside}
    empty=${(found) => !found.lines.some((line) => line.total) && html`<${Empty} title="Nothing happened in this time">${found.note || "Letters that are buried, retried or resolved are counted here."}<//>`}>
    ${(found) => html`<${StackedChart} series=${inOrder(found)} zoom=${zoom} label=${`Letters over time by ${found.by}`} />${found.note && html`<p class="faint">${found.note}</p>`}`}<//>`;
}

const iso = (seconds) => new Date(1000 * seconds).toISOString();

function TopGroups({ overview, last }) {
  return html`<${Panel} id="groups" title="Top groups" about="most letters first" flush from=${overview} aside=${html`<a href=${href("/groups")}>All groups</a>`}
    empty=${({ groups, waiting }) => !groups.length && (waiting ? html`<${Empty} title="Every group with open letters is muted"><a href=${href("/groups?every=yes")}>All groups, also those that are muted</a><//>`
      : waiting === 0 && html`<${Empty} title="No open letters. Nothing is dead.">What fails for good from now on appears here by itself.<//>`)}>
    ${({ groups }) => html`<${Table} caption="Top groups" rows=${groups} columns=${columns(last)} open=${(group) => href(`/groups/${group.id}`)} />`}<//>`;
}

const columns = (last) => [
  { name: "error", title: "Error", kind: "grow", cell: (group) => html`<a class="title" href=${href(`/groups/${group.id}`)}><${Brief} value=${group.error_type} /></a> <${Chip}>${group.category}<//>
    <span class="message one"><${Text} value=${group.message} /></span>` },
  { name: "spark", title: NAMES[last] ?? last, cell: (group) => html`<${Sparkline} counts=${group.spark} tone=${toneOfTrend(group.trend)} label=${`Buried in the last ${NAMES[last] ?? last}:`} />` },
  { name: "standing", title: "State", cell: (group) => html`<${Pill} state=${group.standing} />` },
  { name: "letters", title: "Letters", number: true, label: "letters", cell: (group) => html`<strong title=${number(group.count)}>${short(group.count)}</strong>` },
  { name: "last", title: "Last seen", kind: "nowrap faint", label: "last", cell: (group) => html`<${Time} at=${group.last_at} />` },
];

const Replays = ({ overview }) => html`<${Panel} id="running" title="Replays" from=${overview} aside=${html`<a href=${href("/replays")}>All replays</a>`}
  empty=${({ replays }) => !replays.length && html`<p class="faint">None is running or paused.</p>`}>
  ${({ replays }) => html`<ul class="stack">${replays.map(({ replay, entries }) => html`<${ReplayRow} key=${replay.id} replay=${replay} tally=${entries} from=${overview} />`)}</ul>`}<//>`;

const Incidents = ({ overview }) => html`<${Panel} id="incidents" title="Incidents" from=${overview} aside=${html`<a href=${href("/incidents")}>All incidents</a>`}
  empty=${({ incidents }) => !incidents.length && html`<p class="faint">None is open.</p>`}>
  ${({ incidents }) => html`<ul class="stack">${incidents.map((one) => html`<li key=${one.id}>
    <div class="row"><${Pill} state=${one.alert.severity} /><a class="title" href=${href(`/incidents/${one.id}`)}>${one.alert.name}</a></div>
    <p class="message"><${Text} value=${one.alert.summary} /></p>
    <p class="faint">${one.state === "acknowledged" ? `acknowledged by ${one.acknowledged_by}` : one.state}, seen ${plural(one.count, "time")}, last <${Time} at=${one.seen_at} /></p></li>`)}</ul>`}<//>`;

const Backends = ({ overview }) => html`<${Panel} id="backends" title="Backends" from=${overview}>
  ${({ backends }) => html`<ul class="backends">${backends.map((backend) => html`<li key=${backend.name}>
    <${Pill} state=${backend.ok ? "running" : "lost"}>${backend.name}<//><span class="faint">${backend.ok ? "answers" : backend.why}</span></li>`)}</ul>`}<//>`;
