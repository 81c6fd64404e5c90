// Groups: one row for each cause, over all brokers.

import { Brief } from "../clamped.js";
import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { may } from "../state.js";
import { useTyped } from "../typed.js";
import { Chip, Empty, Head, Pager, Panel, Pill, Sparkline, Table, Tabs, Time, number, short } from "../ui.js";
import { Text } from "../tree.js";
import { said } from "./letter_filters.js";
import { replayable, standing, tenantsOf, toneOfTrend } from "./group_parts.js";

const LASTS = /** @type {[string, string][]} */ ([["1h", "1 h"], ["24h", "24 h"], ["7d", "7 d"], ["30d", "30 d"]]);
const SIZE = 50;
const OPEN = ["pending", "retrying", "replaying", "exhausted"];
const NARROW = ["sources", "categories", "tenants", "error_type", "code"]; // that a link may have

export default function Groups() {
  useTitle("Groups");
  const asked = query.value;
  const last = asked.get("last") ?? "24h";
  const sort = asked.get("sort") ?? "letters";
  const every = asked.get("every") === "yes";
  const skip = Math.max(0, Number.parseInt(asked.get("skip") ?? "0", 10) || 0);
  const text = asked.get("text");
  const [typed, setTyped] = useTyped("text", { also: { skip: null } });
  const page = (/** @type {number} */ from) => () => setQuery({ skip: from || null }, { replace: false });
  const narrow = /** @type {Record<string, string[]>} */ (Object.fromEntries(NARROW.map((name) => [name, asked.getAll(name)]).filter(([, values]) => values?.length)));
  const filters = { text, ...narrow, states: every ? [] : OPEN };
  const narrowed = Boolean(text || Object.keys(narrow).length);
  const groups = useResource("groups", { ...filters, with_muted: every, limit: SIZE + 1, skip, spark: 24, last, sort }, { on: ["groups", "letters"], every: 60 });

  return html`
    <${Head} title="Groups" about="Letters that died of one cause are one group, over all brokers">
      <${Tabs} label="Time that the sparklines show" tabs=${LASTS} chosen=${last} choose=${(name) => setQuery({ last: name }, { replace: false })} />
    <//>
    <${Panel} id="groups" flush from=${groups} title="By cause" aside=${html`<div class="filters" role="search">
        <input type="search" data-search placeholder="Error, message, body" aria-label="Search groups" value=${typed} autocomplete="off" spellcheck=${false}
          onInput=${(event) => setTyped(event.target.value)} />
        ${Object.entries(narrow).map(([name, values]) => html`<button type="button" class="chip" aria-label=${`Remove the filter ${name}`}
          onClick=${() => setQuery({ [name]: null, skip: null }, { replace: false })}>${name}: ${said(values)} ×</button>`)}
        <label class="row"><input type="checkbox" checked=${every} onChange=${(event) => setQuery({ every: event.target.checked && "yes", skip: null }, { replace: false })} /> Also muted and done</label>
      </div>`}
      empty=${(found) => !found.length && skip > 0 ? html`<${Empty} title="There are no more"><a href=${href("/groups")}>To the first page</a><//>` : !found.length && !narrowed && !every ? html`<${NoneOpen} />` : !found.length && html`<${Empty} title=${narrowed ? "No group matches" : "No letters. Nothing has died."}>${narrowed ? `Search for less${every ? "" : ", or also among those that are muted and done"}.` : "What fails for good from now on appears here by itself."}<//>`}>
      ${(found) => html`<${Table} caption="Groups" rows=${found.slice(0, SIZE)} columns=${columns(last)} open=${(group) => href(`/groups/${group.id}`)}
        sort=${sort} sortBy=${(name) => setQuery({ sort: name, skip: null }, { replace: false })} />
        ${(skip > 0 || found.length > SIZE) && html`<${Pager} what="groups" first=${skip} count=${Math.min(found.length, SIZE)}
          prev=${skip > 0 ? page(Math.max(0, skip - SIZE)) : null} next=${found.length > SIZE ? page(skip + SIZE) : null} />`}`}
    <//>`;
}

/** Muted groups are left out: whether they are all that there is has to be asked. */
function NoneOpen() {
  const muted = useResource("groups", { states: OPEN, with_muted: true, limit: 1 }, { on: ["groups"] });
  if (muted.data?.length) return html`<${Empty} title="Every group with open letters is muted"><a href=${href("/groups?every=yes")}>Show those, too</a><//>`;
  return muted.data && html`<${Empty} title="No open letters. Nothing is dead.">What fails for good from now on appears here by itself.<//>`;
}

/** @returns {import("../table.js").Column[]} */
const columns = (last) => [
  { name: "error", title: "Error", kind: "grow", cell: (group) => html`<a class="title" href=${href(`/groups/${group.id}`)}><${Brief} value=${group.error_type} /></a> <${Chip}>${group.category}<//>
      <span class="message"><${Text} value=${group.message} /></span>${standing(group)}` },
  { name: "spark", title: `Last ${last}`, cell: (group) => html`<${Sparkline} counts=${group.spark} tone=${toneOfTrend(group.trend)} label=${`Buried in ${last}:`} />` },
  { name: "standing", title: "State", cell: (group) => html`<${Pill} state=${group.standing} />` },
  { name: "letters", title: "Letters", number: true, sort: true, label: "letters", cell: (group) => html`<strong title=${number(group.count)}>${short(group.count)}</strong>` },
  { name: "sources", title: "Sources", kind: "wrap", cell: (group) => html`<span title=${group.sources.join(", ")}><${Brief} value=${group.sources.join(", ")} /></span>` },
  { name: "tenants", title: "Tenants", kind: "wrap", label: "tenants", cell: (group) => group.tenants.length > 0 && html`<span title=${group.tenants.join(", ")}><${Brief} value=${tenantsOf(group)} /></span>` },
  { name: "first_seen", title: "First seen", kind: "nowrap faint", sort: true, label: "first", cell: (group) => html`<${Time} at=${group.first_at} />` },
  { name: "last_seen", title: "Last seen", kind: "nowrap faint", sort: true, label: "last", cell: (group) => html`<${Time} at=${group.last_at} />` },
  { name: "acts", title: html`<span class="unseen">Acts</span>`, kind: "acts", cell: (group) => may("operator") && replayable(group) > 0 &&
      html`<a class="button" data-hotkey="r" aria-label=${`Replay the group ${group.error_type}`} href=${href(`/replays/new?group=${group.id}`)}>Replay…</a>` },
];
