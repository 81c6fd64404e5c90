// One group: what its letters died of, what they have in common, and what people do about it.

import { part, post } from "../api.js";
import { StackedChart } from "../chart.js";
import { Brief, Clamped } from "../clamped.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { changed, may, me, serverNow, toast } from "../state.js";
import { Button, Chip, Copy, Empty, Facts, Head, Panel, Pill, Shares, Skeleton, Stat, Table, Tabs, Time, Trouble, exact, letters as counted, number, percent, short } from "../ui.js";
import { JsonTree, Text } from "../tree.js";
import { AssignDialog, FixDialog, MuteDialog, replayable, standing, tell } from "./group_parts.js";
import { Stack } from "./letter_attempts.js";

const LASTS = [["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]];
const SECONDS = { "1h": 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400 };
const POINTS = 48;

export default function Group({ id }) {
  const group = useResource(`groups/${part(id)}`, {}, { on: ["groups", "letters"] });
  const found = group.data;
  useTitle(found ? found.error_type : "Group");
  if (!found) return html`<${Head} title="Group" back=${[href("/groups"), "Groups"]} />${group.error ? html`<${Gone} error=${group.error} again=${group.reload} />` : html`<${Skeleton} rows=${6} />`}`;
  return html`
    <${Head} back=${[href("/groups"), "Groups"]} title=${html`<${Clamped} value=${found.error_type} most=${200} />`} about=${html`<${Chip}>${found.category}<//> in <${Clamped} value=${found.sources.join(", ")} most=${200} />`}>
      <${Acts} group=${found} />
    <//>
    ${group.error && html`<${Trouble} error=${group.error} again=${group.reload} />`}
    <${Summary} group=${found} />
    <div class="columns">
      <div><${OverTime} group=${found} /><${Typical} group=${found} /><${Letters} group=${found} /></div>
      <div><${Differs} group=${found} /><${Stands} group=${found} /><${Notes} group=${found} /></div>
    </div>`;
}

/** A link to what is gone: letters that are resolved or deleted take their group with them. */
const Gone = ({ error, again }) => html`<${Trouble} error=${error} again=${again} />${error.status === 404 && html`
  <${Empty} title="This group has no letters any more">They may have been deleted when their time was over. <a href=${href("/groups?every=yes")}>All groups</a><//>`}`;

function Acts({ group }) {
  const [asks, setAsks] = useState(/** @type {"fix" | "mute" | "assign" | null} */ (null));
  const close = () => setAsks(null);
  if (!may("operator")) return html`<a class="button" href=${href(`/letters?groups=${part(group.id)}`)}>Its letters</a>`;
  const act = (verb, said) => async () => tell(said, await post(`groups/${part(group.id)}/${verb}`));
  return html`
    ${group.fix
      ? html`<${Button} act=${act("unfix", "It is not fixed after all")}>Not fixed<//>`
      : html`<button type="button" class="button" onClick=${() => setAsks("fix")}>Fixed in…</button>`}
    ${group.mute
      ? html`<${Button} act=${act("unmute", "It is heard of again")}>Unmute<//>`
      : html`<button type="button" class="button" onClick=${() => setAsks("mute")}>Mute…</button>`}
    <button type="button" class="button" onClick=${() => setAsks("assign")}>${group.assignee ? `Assigned to ${group.assignee}` : "Assign…"}</button>
    ${replayable(group) > 0 && html`<a class="button primary" data-hotkey="r" aria-keyshortcuts="r" href=${href(`/replays/new?group=${part(group.id)}`)}>Replay ${counted(replayable(group))}…</a>`}
    ${asks === "fix" && html`<${FixDialog} group=${group} close=${close} />`}
    ${asks === "mute" && html`<${MuteDialog} group=${group} close=${close} />`}
    ${asks === "assign" && html`<${AssignDialog} group=${group} close=${close} />`}`;
}

function Summary({ group }) {
  const states = Object.entries(group.states).map(([name, count]) => ({ name, count }));
  return html`<section class="stats" id="summary" aria-label="Summary">
    <${Stat} name="Letters" value=${short(group.count)} to=${href(`/letters?groups=${part(group.id)}`)} about=${html`<${Shares} parts=${states} />${states.map(({ name, count }) => `${short(count)} ${name}`).join(", ")}`} />
    <${Stat} name="First seen" value=${html`<${Time} at=${group.first_at} />`} about=${[exact(group.first_at), group.first_version && `in ${group.first_version}`].filter(Boolean).join(", ")} />
    <${Stat} name="Last seen" value=${html`<${Time} at=${group.last_at} />`} about=${[exact(group.last_at), group.last_version && `in ${group.last_version}`].filter(Boolean).join(", ")} />
    <${Stat} name="State" value=${html`<${Pill} state=${group.standing} />`} about=${group.assignee ? `assigned to ${group.assignee}` : "nobody has taken it"} />
  </section>`;
}

function OverTime({ group }) {
  const last = query.value.get("last") ?? "24h";
  const found = useResource("groups", { groups: [group.id], spark: POINTS, last, with_muted: true, limit: 1 }, { on: ["groups", "letters"] });
  return html`<${Panel} id="over-time" title="Over time" about="letters that were buried" from=${found}
    aside=${html`<${Tabs} label="Time" tabs=${LASTS} chosen=${last} choose=${(name) => setQuery({ last: name })} />`}
    empty=${([one]) => !one?.spark?.some(Boolean) && html`<${Empty} title="None was buried in this time" />`}>
    ${([one]) => html`<${StackedChart} series=${seriesOf(one.spark, last)} height=${130} label="Letters of this group that were buried" />`}<//>`;
}

/** A sparkline as a series: its last bucket is the one of now. */
function seriesOf(spark, last) {
  const step = Math.round(SECONDS[last] / spark.length);
  const end = Math.floor(serverNow() / 1000 / step) * step;
  const at = spark.map((_, index) => end - (spark.length - 1 - index) * step);
  return { at, step, lines: [{ name: "buried", counts: spark, total: spark.reduce((sum, count) => sum + count, 0) }] };
}

/** The newest letter stands for all: what it died of, and what was in it. */
function Typical({ group }) {
  const newest = useResource("letters", { groups: [group.id], limit: 1 }, { on: ["letters"] });
  const id = newest.data?.letters[0]?.id ?? null;
  const letter = useResource(id && `letters/${part(id)}`);
  const aside = id && html`<a href=${href(`/letters/${part(id)}`)}>Open it</a>`;
  return html`<${Panel} id="typical" title="Typical letter" about="the newest" aside=${aside} from=${id ? letter : newest}
    empty=${() => !id && html`<${Empty} title="It has no letter that can be shown" />`}>
    ${(found) => html`<p class="headline"><strong><${Brief} value=${found.error_type} /></strong> <${Clamped} value=${found.error_message} /></p>
      ${found.failures?.at(-1)?.stack && html`<${Stack} text=${found.failures.at(-1).stack} frames=${found.failures.at(-1).frames} where=${found.failures.at(-1).where} />`}
      <h3>Body</h3>${found.decoded && html`<p class="faint"><code>${found.decoded.schema}</code></p>`}
      <div class="body">${found.body_size ? html`<${JsonTree} text=${found.decoded?.text ?? found.body} />` : html`<p class="faint">It is empty.</p>`}</div>`}<//>`;
}

function Letters({ group }) {
  const found = useResource("letters", { groups: [group.id], limit: 8 }, { on: ["letters"] });
  const columns = [
    { name: "letter", title: "Letter", kind: "grow", cell: (one) => html`<a class="code" href=${href(`/letters/${part(one.id)}`)}>${one.id}</a>` },
    { name: "state", title: "State", cell: (one) => html`<${Pill} state=${one.state} />` },
    { name: "source", title: "Source", kind: "wrap", cell: (one) => html`<${Brief} value=${one.source} />` },
    { name: "attempts", title: "Attempts", number: true, label: "attempts", cell: (one) => number(one.attempts) },
    { name: "buried", title: "Buried", kind: "nowrap faint", label: "buried", cell: (one) => html`<${Time} at=${one.created_at} />` },
  ];
  return html`<${Panel} id="letters" title="Newest letters" flush from=${found} aside=${html`<a href=${href(`/letters?groups=${part(group.id)}`)}>All ${number(group.count)}</a>`}
    empty=${({ letters }) => !letters.length && html`<${Empty} title="None is left" />`}>
    ${({ letters }) => html`<${Table} caption="Newest letters" rows=${letters} columns=${columns} open=${(one) => href(`/letters/${part(one.id)}`)}
      replay=${may("operator") ? (one) => href(`/replays/new?ids=${part(one.id)}`) : undefined} />`}<//>`;
}

/** Fields and values that its letters have more often than others of their sources. */
function Differs({ group }) {
  const found = useResource(`groups/${part(group.id)}/differs`, {});
  return html`<${Panel} id="differs" title="What differs" about="against others of its sources" from=${found}
    empty=${({ fields, others }) => !fields.length && html`<p class="faint">${others ? "Nothing stands out: its letters are like the others." : "Its sources have no other letters to compare with."}</p>`}>
    ${({ fields, letters, others }) => html`<ul class="differs">${fields.map((one) => html`<li key=${one.field + one.value}>
      <div class="row"><code><${Text} value=${one.field} /></code> <strong><${Text} value=${String(one.value)} /></strong></div>
      <${Share} name="here" share=${one.here} tone="red" /><${Share} name="others" share=${one.elsewhere} /></li>`)}</ul>
      <p class="faint">${`of ${counted(letters)} here and ${number(others)} others`}</p>`}<//>`;
}

const Share = ({ name, share, tone }) => html`<div class="share"><span class="faint">${name}</span><span class="shares" aria-hidden="true"><span data-tone=${tone ?? "blue"} style=${{ width: `${100 * share}%` }} /></span><span class="number">${percent(share)}</span></div>`;

const Stands = ({ group }) => html`<${Panel} title="Where it stands">
  ${standing(group) || html`<p class="faint">Nobody has said anything of it.</p>`}
  <${Facts} rows=${[["Group", html`<code>${group.id}</code> <${Copy} text=${group.id} what="the group's id" />`], ["Sources", html`<${Clamped} value=${group.sources.join(", ")} most=${200} />`], ["Tenants", group.tenants.length > 0 && html`${group.tenants.map((name) => html`<a class="chip" href=${href(`/letters?groups=${part(group.id)}&tenants=${encodeURIComponent(name)}`)}><${Brief} value=${name} /></a> `)}${!group.is_all_tenants && "and more"}`], ["Waits for", group.waits_for?.join("; ")]]} /><//>`;

function Notes({ group }) {
  const notes = useResource(`groups/${part(group.id)}/notes`, {}, { on: ["groups"] });
  const [text, setText] = useState("");
  const add = async () => {
    await post(`groups/${part(group.id)}/notes`, { text: text.trim() });
    setText("");
    toast("Noted");
    changed("groups");
    notes.reload();
  };
  return html`<${Panel} id="notes" title="Notes" from=${notes}>
    ${(found) => html`${found.length === 0 && html`<p class="faint">None yet.</p>`}
      <ul class="stack">${found.map((note) => html`<li><p class="faint"><strong>${note.actor}</strong> <${Time} at=${note.at} full /></p><p class="said"><${Text} value=${note.text} /></p></li>`)}</ul>
      ${may("operator") && html`<div class="note"><textarea class="prose" rows="2" aria-label=${`A note by ${me.value?.name}`} placeholder="What is known, who was asked, what was tried" maxlength="2000" value=${text} onInput=${(event) => setText(event.target.value)} />
        <${Button} act=${add} disabled=${!text.trim()}>Add a note<//></div>`}`}<//>`;
}
