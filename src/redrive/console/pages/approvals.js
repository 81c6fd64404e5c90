// Approvals: acts past a size wait here for a second person.

import { part, post } from "../api.js";
import { Brief } from "../clamped.js";
import { html, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, useTitle } from "../router.js";
import { changed, me } from "../state.js";
import { Button, Chip, Empty, Facts, Field, FormDialog, Head, Panel, Pill, Skeleton, Table, Time, Trouble, confirm, letters, toast } from "../ui.js";
import { Text } from "../tree.js";
import { addressOf } from "./letter_filters.js";

export default function Approvals({ id }) {
  return id ? html`<${One} id=${id} />` : html`<${All} />`;
}

const nameOf = (actor) => (actor ? actor.name : "");
const isMine = (approval) => approval.by.id === me.value?.id && approval.by.via === me.value?.via;

function All() {
  useTitle("Approvals");
  const found = useResource("approvals", { limit: 200 }, { on: ["approvals", "replays"] });
  const columns = [
    { name: "what", title: "What", kind: "grow", cell: (approval) => html`<a class="title" href=${href(`/approvals/${approval.id}`)}>${approval.action} of ${letters(approval.total)}</a> <span class="message"><${Text} value=${approval.what || approval.reason} /></span>` },
    { name: "state", title: "State", cell: (approval) => html`<${Pill} state=${approval.state} />` },
    { name: "by", title: "Asked by", kind: "wrap", label: "asked by", cell: (approval) => nameOf(approval.by) },
    { name: "decided", title: "Decided by", kind: "wrap", label: "decided by", cell: (approval) => nameOf(approval.decided_by) },
    { name: "at", title: "Asked", kind: "nowrap faint", label: "asked", cell: (approval) => html`<${Time} at=${approval.at} />` },
    { name: "until", title: "Until", kind: "nowrap faint", label: "until", cell: (approval) => approval.state === "waiting" && html`<${Time} at=${approval.expires_at} coming />` },
  ];
  return html`<${Head} title="Approvals" about="Large acts wait for a second person; what is approved is exactly what was frozen" />
    <${Panel} id="approvals" flush from=${found} empty=${(rows) => !rows.length && html`<${Empty} title="Nothing waits for a second person">Acts on more letters than the setting access.approve_over says wait here until somebody else has looked.<//>`}>
      ${(rows) => html`<${Table} caption="Approvals" rows=${rows} columns=${columns} open=${(approval) => href(`/approvals/${approval.id}`)} />`}<//>`;
}

function One({ id }) {
  const found = useResource(`approvals/${part(id)}`, {}, { on: ["approvals", "replays"] });
  const [asks, setAsks] = useState(false);
  const approval = found.data;
  useTitle("Approval");
  const back = /** @type {[string, string]} */ ([href("/approvals"), "Approvals"]);
  if (!approval) return html`<${Head} title="Approval" back=${back} />${found.error ? html`<${Trouble} error=${found.error} again=${found.reload} />` : html`<${Skeleton} />`}`;
  const act = async (verb, body = {}) => {
    const after = await post(`approvals/${part(approval.id)}/${verb}`, body);
    toast(`${after.state}${after.result ? `: ${after.result}` : ""}`);
    changed("approvals", "replays", "letters");
    found.reload();
  };
  const approve = () => confirm({ title: `Approve ${approval.action} of ${letters(approval.total)}?`, body: html`<p>Asked for by <strong>${nameOf(approval.by)}</strong>. It is carried out on exactly what was frozen.</p>`, verb: "Approve", act: () => act("approve") });
  return html`<${Head} back=${back} title=${html`${approval.action} of ${letters(approval.total)} <${Pill} state=${approval.state} />`} about=${`asked for by ${nameOf(approval.by)}`}>
      ${approval.state === "waiting" && (isMine(approval)
        ? html`<span class="faint">Somebody else has to approve it</span><${Button} act=${() => act("withdraw")}>Withdraw<//>`
        : html`<button type="button" class="button" onClick=${() => setAsks(true)}>Refuse…</button><button type="button" class="button primary" onClick=${approve}>Approve…</button>`)}<//>
    <${Panel} title="What exactly"><${Facts} rows=${[
      ["What", approval.what && html`<${Text} value=${approval.what} />`],
      ["Reason", approval.reason && html`<${Text} value=${approval.reason} />`],
      ["Replay", approval.replay && html`<a href=${href(`/replays/${part(approval.replay)}`)}>${approval.replay}</a>`],
      ["Selected by", approval.query && Object.entries(approval.query).map(([name, value]) => html`<${Criterion} key=${name} name=${name} value=${value} />`)],
      ["Letters", (approval.replay || approval.query) && html`<${Selection} approval=${approval} />`],
      ["Of", approval.places.slice(0, 20).map(([source, tenant]) => html`<${Chip}><${Text} value=${tenant ? `${source} / ${tenant}` : source} /><//> `)],
      ["Asked", html`<${Time} at=${approval.at} full />`],
      ["Until", html`<${Time} at=${approval.expires_at} coming full />`],
      ["Decided", approval.decided_by && html`by ${nameOf(approval.decided_by)} <${Time} at=${approval.decided_at} full />`],
      ["Why", approval.why && html`<${Text} value=${approval.why} />`],
      ["Result", approval.result && html`<${Text} value=${approval.result} />`],
    ]} /><//>
    ${asks && html`<${FormDialog} title="Refuse it" verb="Refuse" danger close=${() => setAsks(false)} act=${({ reason }) => act("refuse", { reason })}>
      <${Field} label="Why not"><input type="text" name="reason" required maxlength="1000" /><//><//>`}`;
}

/** One thing that it was selected by; what has a page of its own leads there. */
function Criterion({ name, value }) {
  const some = [value].flat().slice(0, 5);
  if (name === "groups") return some.map((id) => html`<${GroupLink} key=${id} id=${id} />`);
  if (name === "ids") return some.map((id) => html`<a class="chip code" key=${id} href=${href(`/letters/${part(id)}`)}>${id}</a> `);
  return html`<${Chip}><${Text} value=${`${name}: ${some.join(", ")}`} /><//> `;
}

function GroupLink({ id }) {
  const group = useResource(`groups/${part(id)}`, {}, { on: ["groups"] }).data;
  return html`<p><a class="chip" href=${href(`/groups/${part(id)}`)}>group ${id}</a> ${group && html`<strong><${Brief} value=${group.error_type} /></strong> <${Brief} value=${group.message} />`}</p>`;
}

/** Where the letters are seen that it is about: the ledger has exactly those; a query finds those that match it now. */
function Selection({ approval }) {
  if (approval.replay) return html`<a href=${href(`/replays/${part(approval.replay)}`)}>Exactly these, in the ledger of the replay</a>`;
  const at = addressOf(approval.query);
  return at ? html`<a href=${href(at)}>Those that match now</a>` : html`<span class="faint">${letters(approval.total)}, which the page of letters cannot list</span>`;
}
