// Letters: the table that the server pages and filters. The filters are the address, so that a link can be sent.

import { get, post } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { href, query, setQuery, useTitle } from "../router.js";
import { changed, may } from "../state.js";
import { useTyped } from "../typed.js";
import { Button, Empty, Head, Pager, Panel, Table, confirm, exact, letters as counted, number, toast } from "../ui.js";
import { waits } from "./approval_parts.js";
import { COLUMNS, ColumnsMenu, keptColumns, keepColumns } from "./letter_columns.js";
import { CATEGORIES, LASTS, STATES, asked, paramsOf, queryOf, rememberList, said, upToNow } from "./letter_filters.js";

const SIZE = 50;
const FIRST = { after: null, from: null }; // the first page; `from`: how many letters come before the one that is shown
const NAMED = { groups: "group", tenants: "tenant", error_type: "error", ids: "letter", message_ids: "message", parents: "waits for" };

/** The page before each that was gone to, by its filters and its cursor: Previous leads there, and to the first after a reload. */
const cameFrom = /** @type {Map<string, {after: string | null, from: number | null}>} */ (new Map());

export default function Letters() {
  useTitle("Letters");
  const filters = asked(query.value);
  const after = query.value.get("after");
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const [every, setEvery] = useState(false);
  const [columns, setColumns] = useState(keptColumns);
  const key = JSON.stringify(filters);
  const page = useResource("letters", { ...paramsOf(filters), after, limit: SIZE }, { on: ["letters"] });
  const ids = (page.data?.letters ?? []).map((letter) => letter.id);
  useEffect(() => {
    setChosen(new Set());
    setEvery(false);
  }, [key]);
  useEffect(() => rememberList(ids), [ids.join()]);
  const first = after ? Math.max(0, Number.parseInt(query.value.get("from") ?? "0", 10) || 0) : 0;
  const forward = (/** @type {any} */ found) => {
    cameFrom.set(key + found.after, { after, from: first || null });
    setQuery({ after: found.after, from: first + found.letters.length }, { replace: false });
  };
  const next = page.data?.after ? () => page.loading || forward(page.data) : null; // until it is there, what is shown is the page before
  const prev = after ? () => setQuery(cameFrom.get(key + after) ?? FIRST, { replace: false }) : null;
  const choose = (/** @type {Set<string>} */ wanted) => (setEvery(false), setChosen(wanted));

  return html`
    <${Head} title="Letters" about="Every message that died, with all its attempts">
      <${ColumnsMenu} chosen=${columns} choose=${(names) => (keepColumns(names), setColumns(names))} />
    <//>
    <${Panel} id="letters" flush from=${page} aside=${html`<${Filters} filters=${filters} />`}
      empty=${(found) => !found.letters.length && html`<${Nothing} filters=${filters} after=${after} next=${next} />`}>
      ${(found) => html`
        <${Chosen} chosen=${chosen} every=${every} setEvery=${setEvery} filters=${filters} clear=${() => choose(new Set())} />
        <${Table} caption="Letters" rows=${found.letters} open=${(letter) => href(`/letters/${letter.id}`)}
          replay=${may("operator") && !chosen.size && !every ? (letter) => href(`/replays/new?ids=${letter.id}`) : undefined} chosen=${every ? new Set(ids) : chosen}
          choose=${may("operator") ? choose : undefined} columns=${COLUMNS.filter((column) => columns.includes(column.name))} />
        <${Pager} what="letters" first=${first} count=${found.letters.length} prev=${prev} next=${next} />`}
    <//>`;
}

/** A text that many letters have is looked for in so many of them at once: then a page may be short, or empty, and not the last. */
function Nothing({ filters, after, next }) {
  if (next) return html`<${Empty} title="None among those that were looked at so far"><button type="button" class="button" onClick=${next}>Look further</button><//>`;
  if (after) return html`<${Empty} title="There are no more"><a href=${href("/letters")}>To the first page</a><//>`;
  const narrowed = Object.values(filters).some((value) => (Array.isArray(value) ? value.length : value));
  return narrowed
    ? html`<${Empty} title="No letter matches">Take one of the filters away, or <a href=${href("/letters")}>look at all</a>.<//>`
    : html`<${Empty} title="No letters. Nothing has died.">What fails for good from now on appears here by itself.<//>`;
}

function Filters({ filters }) {
  const [typed, setTyped] = useTyped("text", { wait: 350, also: FIRST });
  const sources = useResource("sources", {}, { on: ["sources"] });
  const set = (name) => (event) => setQuery({ [name]: event.target.value ? [event.target.value] : [], ...FIRST }, { replace: false });
  const known = (names, chosen) => (chosen && !names.includes(chosen) ? [chosen, ...names] : names); // what a link asks for is shown, whatever it is
  const options = (names, chosen) => known(names, chosen).map((name) => html`<option value=${name} selected=${name === chosen}>${name}</option>`);
  return html`<div class="filters" role="search">
    <input type="search" data-search placeholder="Error, id, key, body" aria-label="Search letters" value=${typed} autocomplete="off" spellcheck=${false} maxlength="500"
      onInput=${(event) => setTyped(event.target.value)} />
    <select aria-label="State" onChange=${set("states")}><option value="">any state</option>${options(STATES, filters.states.length === 1 && filters.states[0])}
      ${filters.states.length > 1 && html`<option selected value=${filters.states[0]}>${filters.states.join(", ")}</option>`}</select>
    <select aria-label="Category" onChange=${set("categories")}><option value="">any category</option>${options(CATEGORIES, filters.categories[0])}</select>
    <select aria-label="Source" onChange=${set("sources")}><option value="">any source</option>${options(sources.data?.sources ?? [], filters.sources[0])}</select>
    <select aria-label="Time" onChange=${(event) => setQuery({ last: event.target.value || null, ...FIRST }, { replace: false })}>
      <option value="">any time</option>${known(LASTS.map(([name]) => name), filters.last).map((name) => html`<option value=${name} selected=${name === filters.last}>${new Map(LASTS).get(name) ?? `last ${name}`}</option>`)}</select>
    ${["groups", "tenants", "error_type", "code", "since", "before", "ids", "message_ids", "parents"].filter((name) => filters[name]?.length).map((name) => html`<button type="button" class="chip" aria-label=${`Remove the filter ${name}`}
      onClick=${() => setQuery({ [name]: Array.isArray(filters[name]) ? [] : null, ...FIRST }, { replace: false })}>${NAMED[name] ?? name}: ${name === "since" || name === "before" ? exact(filters[name]) : said(filters[name])} ×</button>`)}
  </div>`;
}

/** What is chosen, and what can be done with it: rows, or all that match. */
function Chosen({ chosen, every, setEvery, filters, clear }) {
  const [frozen, setFrozen] = useState(/** @type {{query: any, total: number} | null} */ (null)); // all that matched when they were chosen
  const key = JSON.stringify(filters);
  useEffect(() => setFrozen(null), [key]);
  if (!may("operator") || (!chosen.size && !every)) return null;
  const total = frozen?.total ?? null;
  const count = every ? total : chosen.size;
  const selection = every ? { query: frozen?.query } : { ids: [...chosen] };
  const chooseAll = async () => {
    const query = upToNow(queryOf(filters));
    setFrozen({ query, total: (await post("count", query)).count });
    setEvery(true);
  };
  const archive = () => confirm({
    title: `Archive ${every ? `all ${number(total)} that match` : counted(chosen.size)}?`,
    body: html`<p>They are done with: no retry and no replay takes them. Unarchive brings them back.</p>`,
    verb: "Archive",
    danger: true,
    act: async () => {
      const answer = await post("letters/archive", selection);
      clear();
      if (waits(answer)) return;
      const { archived, ids } = answer;
      toast(archived === count ? `${counted(archived)} archived` : `${counted(archived)} of ${number(count)} archived; the others were on their way or archived before`,
        "info", undefined, ids?.length ? () => takeBack(ids) : undefined);
      changed("letters", "groups");
    },
  });
  const unarchive = async () => {
    const answer = await post("letters/unarchive", selection);
    if (waits(answer)) return;
    const { unarchived } = answer;
    toast(unarchived ? `${counted(unarchived)} back as they were` : "None of them was archived");
    clear();
    changed("letters", "groups");
  };
  const wizard = every ? `/replays/new?${new URLSearchParams(flat(paramsOf(filters)))}` : `/replays/new?${new URLSearchParams([...chosen].map((id) => ["ids", id]))}`;
  return html`<div class="chosen" role="status">
    <strong>${every ? `All ${number(total)} that match` : counted(chosen.size)}</strong>
    ${!every && html`<${Button} act=${chooseAll} kind="quiet">Choose all that match<//>`}
    <span class="chosen-acts">
      <a class="button primary" data-hotkey="r" aria-keyshortcuts="r" href=${href(wizard)}>Replay…</a>
      <button type="button" class="button" onClick=${archive}>Archive…</button>
      <${Button} act=${unarchive}>Unarchive<//>
      <${Button} act=${() => saveAll(every ? frozen?.query : { ids: [...chosen] })}>Export<//>
      <button type="button" class="button quiet" onClick=${clear}>Clear</button>
    </span></div>`;
}

const NAMED_AT_ONCE = 1000;

/** Exactly these, and not what others had archived before. */
async function takeBack(/** @type {string[]} */ ids) {
  let back = 0;
  for (let from = 0; from < ids.length; from += NAMED_AT_ONCE) {
    const answer = await post("letters/unarchive", { ids: ids.slice(from, from + NAMED_AT_ONCE) });
    if (!waits(answer)) back += answer.unarchived;
  }
  toast(back === ids.length ? `${counted(back)} back as they were` : `${counted(back)} of ${number(ids.length)} back as they were`);
  changed("letters", "groups");
}

const flat = (parameters) => Object.entries(parameters).flatMap(([name, value]) => (Array.isArray(value) ? value.map((one) => [name, String(one)]) : value ? [[name, String(value)]] : []));

/** The letters as they are shown, masked, as JSON lines: as many as a browser should hold. */
async function saveAll(wanted) {
  const { exported, blob, more } = await exportOf(wanted);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "letters.jsonl";
  link.click();
  URL.revokeObjectURL(link.href);
  toast(more ? `The newest ${counted(exported)} exported, as they are shown; redrive export has them all` : `${counted(exported)} exported, as they are shown`);
}

const MOST = 10_000;

async function exportOf(wanted) {
  /** @type {string[]} */
  const lines = [];
  let after = /** @type {string | null} */ (null);
  do {
    const page = await get("letters", { ...wanted, after, limit: 1000 });
    lines.push(...page.letters.map((letter) => JSON.stringify(letter)));
    after = page.after;
  } while (after && lines.length < MOST);
  const beyond = after === null ? null : await get("letters", { ...wanted, after, limit: 1 }); // a full page does not say that there is another
  return { exported: lines.length, more: Boolean(beyond?.letters.length || beyond?.after), blob: new Blob([lines.map((line) => `${line}\n`).join("")], { type: "application/x-ndjson" }) };
}
