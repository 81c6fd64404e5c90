// One letter: why it died, what it carried, where it came from, and what can be done with it.

import { part, post } from "../api.js";
import { useKeys } from "../keys.js";
import { Brief, Clamped } from "../clamped.js";
import { html, useMemo, useState } from "../lib.js";
import { useResource } from "../resource.js";
import { go, href, sourceAt, useTitle } from "../router.js";
import { changed, may, me } from "../state.js";
import { Button, Chip, Copy, Empty, Facts, Head, Icon, Panel, Pill, Skeleton, Tabs, Time, Trouble, bytes, letters, number, plural, toast } from "../ui.js";
import { Hex, JsonTree, Plain, Text, bytesOf } from "../tree.js";
import { listOf } from "./letter_filters.js";
import { EditDialog, UnmaskDialog } from "./letter_acts.js";
import { Timeline } from "./letter_attempts.js";

const SENDABLE = ["pending", "exhausted", "sent"];
const EDITABLE = [...SENDABLE, "archived"];

export default function Letter({ id }) {
  const letter = useResource(`letters/${part(id)}`, {}, { on: ["letters"] });
  const found = letter.data;
  const [shown, setShown] = useState(/** @type {any} */ (null)); // its message unmasked
  const { at, prev, next } = listOf(found?.id ?? id);
  const to = (other) => other && go(`/letters/${part(other)}`);
  useTitle(found ? found.error_type : "Letter");
  useKeys([
    { keys: "]", does: "next letter of the list", act: () => to(next) },
    { keys: "[", does: "previous letter of the list", act: () => to(prev) },
  ]);
  const back = /** @type {[string, string]} */ ([at || href("/letters"), at ? "Back to the list" : "Letters"]);
  if (!found) return html`<${Head} title="Letter" back=${back} />${letter.error ? html`<${Gone} error=${letter.error} again=${letter.reload} />` : html`<${Skeleton} rows=${8} />`}`;
  const unmasked = shown?.letter === found.id && shown.version === found.version ? shown : null;
  return html`
    <${Head} back=${back} title=${html`<${Clamped} value=${found.error_type} most=${200} /> <${Pill} state=${found.state} />`}
      about=${html`<${Chip}>${found.category}<//> <code>${found.id}</code> <${Copy} text=${found.id} what="the letter's id" />`}>
      <span class="beside"><button type="button" class="button" disabled=${!prev} aria-label="Previous letter of the list" onClick=${() => to(prev)}><${Icon} name="left" size=${13} /></button>
        <button type="button" class="button" disabled=${!next} aria-label="Next letter of the list" onClick=${() => to(next)}><${Icon} name="right" size=${13} /></button></span>
      <${Acts} letter=${found} unmasked=${unmasked} setShown=${setShown} />
    <//>
    ${letter.error && html`<${Trouble} error=${letter.error} again=${letter.reload} />`}
    <p class="headline"><${Clamped} value=${found.error_message} /></p>
    <div class="columns">
      <div><${Timeline} letter=${found} /><${Body} letter=${found} unmasked=${unmasked} hide=${() => setShown(null)} /><${Headers} letter=${found} unmasked=${unmasked} /></div>
      <div><${About} letter=${found} /><${Lineage} letter=${found} /><${Versions} letter=${found} /><${Takeaway} letter=${found} /></div>
    </div>`;
}

/** A link to what is gone. */
const Gone = ({ error, again }) => html`<${Trouble} error=${error} again=${again} />${error.status === 404 && html`
  <${Empty} title="There is no such letter any more">It may have been deleted when its time was over, or it is not yours to see. <a href=${href("/letters")}>All letters</a><//>`}`;

/** What the ledger says of a letter that was to be sent back: nothing is claimed beyond it. */
export function tellRetry(report) {
  const [one] = report.letters ?? [];
  const said = /** @type {Record<string, string>} */ ({ sent: "Sent back", resolved: "Sent back, and resolved", failed: "Sent back, and it died again", waiting: "It waits to be sent" });
  if (!one) toast(`Replay ${report.replay.id} has it`, "info", href(`/replays/${report.replay.id}`));
  else if (said[one.status]) toast(said[one.status] + (one.why ? `: ${one.why}` : ""), "info", href(`/replays/${report.replay.id}`));
  else toast(`Not sent: ${one.status}${one.why ? `, ${one.why}` : ""}`, "error", href(`/replays/${report.replay.id}`));
}

function Acts({ letter, unmasked, setShown }) {
  const [asks, setAsks] = useState(/** @type {"edit" | "unmask" | null} */ (null));
  const done = (...what) => changed("letters", "groups", ...what);
  const retry = async () => {
    tellRetry(await post("letters/retry", { ids: [letter.id] }));
    done("replays");
  };
  const move = (verb, word, other) => async () => {
    const answer = await post(`letters/${verb}`, { ids: [letter.id] });
    toast(Object.values(answer)[0] ? word : other, Object.values(answer)[0] ? "info" : "error");
    done();
  };
  const undo = async () => {
    const { version } = await post(`letters/${part(letter.id)}/undo`, { version: letter.version });
    toast(`Version ${version} is the one before`);
    done();
  };
  return html`
    ${me.value?.may_unmask && !unmasked && html`<button type="button" class="button" onClick=${() => setAsks("unmask")}>Unmask…</button>`}
    ${may("operator") && html`
      ${letter.version > 0 && EDITABLE.includes(letter.state) && html`<${Button} act=${undo}>Undo edit<//>`}
      ${EDITABLE.includes(letter.state) && html`<button type="button" class="button" onClick=${() => setAsks("edit")}>Edit…</button>`}
      ${letter.state === "archived"
        ? html`<${Button} act=${move("unarchive", "It is back as it was", "It was not archived any more")}>Unarchive<//>`
        : html`<${Button} act=${move("archive", "Archived; Unarchive brings it back", "Not archived: it is on its way")}>Archive<//>`}
      <${Button} act=${retry} kind="primary" data-hotkey="r" aria-keyshortcuts="r" id="retry" disabled=${!SENDABLE.includes(letter.state)}>Retry now<//>`}
    ${asks === "edit" && html`<${EditDialog} letter=${letter} unmasked=${unmasked} close=${() => setAsks(null)} />`}
    ${asks === "unmask" && html`<${UnmaskDialog} letter=${letter} show=${setShown} close=${() => setAsks(null)} />`}`;
}

const VIEWS = /** @type {[string, string][]} */ ([["tree", "Tree"], ["text", "Text"], ["hex", "Hex"]]);

function Body({ letter, unmasked, hide }) {
  const { decoded } = unmasked ?? letter; // in its schema, where that is known
  const views = /** @type {[string, string][]} */ (decoded ? [["decoded", decoded.format], ...VIEWS] : VIEWS);
  const [chosen, setChosen] = useState("");
  const view = views.some(([name]) => name === chosen) ? chosen : decoded ? "decoded" : "tree";
  const raw = useMemo(() => (unmasked ? bytesOf(unmasked.body) : null), [unmasked]);
  const text = useMemo(() => (raw ? new TextDecoder().decode(raw) : letter.body), [raw, letter.body]);
  const shown = view === "decoded" ? html`<p class="faint"><code>${decoded.schema}</code></p><${JsonTree} text=${decoded.text} />`
    : view === "hex" ? html`<${Hex} bytes=${raw ?? new TextEncoder().encode(letter.body)} />` : view === "text" ? html`<${Plain} text=${text} />` : html`<${JsonTree} text=${text} />`;
  return html`<${Panel} id="body" title="Body" about=${bytes(letter.body_size)} aside=${html`<${Tabs} label="How the body is shown" tabs=${views} chosen=${view} choose=${setChosen} />`}>
    ${unmasked && html`<p class="caution">Unmasked: what you see is in the audit trail. <button type="button" class="button quiet" onClick=${hide}>Mask again</button></p>`}
    ${view === "hex" && !raw && html`<p class="faint">The bytes of what is shown, with its secrets masked.</p>`}
    <div class="body">${letter.body_size ? shown : html`<p class="faint">It is empty.</p>`}</div><//>`;
}

function Headers({ letter, unmasked }) {
  const pairs = unmasked ? unmasked.headers.map(([name, value]) => [name, new TextDecoder().decode(bytesOf(value))]) : letter.headers;
  return html`<${Panel} id="headers" title="Headers" about=${number(pairs.length)}>
    ${pairs.length ? html`<${Facts} rows=${pairs.map(([name, value]) => [html`<code><${Text} value=${name} /></code>`, html`<code><${Clamped} value=${value} most=${2000} /></code>`])} />` : html`<p class="faint">None.</p>`}<//>`;
}

const link = (id, to) => id && html`<a class="code" href=${href(to)}>${id}</a>`;

/** An address of the settings; one that is no page leads nowhere. */
const safe = (address) => (/^https?:\/\//.test(address) ? address : undefined);

const About = ({ letter }) => html`<${Panel} id="about" title="About"><${Facts} rows=${[
  ["Source", html`<a href=${href(sourceAt(letter.source))}><${Brief} value=${letter.source} /></a>${letter.transport !== "default" ? ` on ${letter.transport}` : ""}`],
  ["Message", html`<code><${Clamped} value=${letter.message_id} most=${200} /></code>`],
  ["Why it was buried", letter.reason],
  ["Group", link(letter.group, `/groups/${part(letter.group)}`)],
  ["Code", letter.code && html`<${Clamped} value=${letter.code} most=${200} />`],
  ["Tenant", letter.tenant && html`<${Clamped} value=${letter.tenant} most=${200} />`],
  ["Key", letter.key && html`<code><${Clamped} value=${letter.key} most=${200} /></code>`],
  ["Correlation", letter.correlation_id && html`<code><${Clamped} value=${letter.correlation_id} most=${200} /></code>`],
  ["Sent first", html`<${Time} at=${letter.enqueued_at} full />`],
  ["Buried", html`<${Time} at=${letter.created_at} full />`],
  ["Next retry", letter.state === "pending" && letter.next_retry_at && html`<${Time} at=${letter.next_retry_at} coming full />`],
  ["Automatic retries", letter.max_retries > 0 && `${letter.retries} of ${letter.max_retries}`],
  ["Kept until", letter.expires_at && html`<${Time} at=${letter.expires_at} coming full />`],
  ["On its way with", letter.owner],
  ["Trace", letter.trace_id && html`${letter.trace_url ? html`<a class="code" href=${safe(letter.trace_url)} target="_blank" rel="noreferrer">${letter.trace_id}</a>` : html`<code>${letter.trace_id}</code>`} <${Copy} text=${letter.trace_id} what="the trace's id" />`],
]} /><//>`;

const relative = (letter) => html`${link(letter.id, `/letters/${part(letter.id)}`)} <${Pill} state=${letter.state} /> <span class="faint">${letter.source}</span>`;

/** Where it came from, what came of it, and what waits for what. */
function Lineage({ letter }) {
  const found = useResource(`letters/${part(letter.id)}/lineage`, {}, { on: ["letters", "replays"] });
  return html`<${Panel} id="lineage" title="Lineage" from=${found}>
    ${({ parents, children, is_all_children: all, replays }) => html`<${Facts} rows=${[
      ["Sent back", letter.resends > 0 && plural(letter.resends, "time")],
      ["Parents", parents.length > 0 && html`<ul class="stack">${parents.map(({ message_id: id, letter: of }) => html`<li class="row" key=${id}>${of ? relative(of) : html`<code><${Text} value=${id} /></code> <span class="faint">has no letter</span>`}</li>`)}</ul>`],
      ["Children", (children.length > 0 || !all) && html`<ul class="stack">${children.map((child) => html`<li class="row" key=${child.id}>${relative(child)}</li>`)}
        ${!all && html`<li><a href=${href(`/letters?parents=${part(letter.message_id)}`)}>${children.length ? "All that wait for it" : "Look for those that wait for it"}</a></li>`}</ul>`],
      ["Behind letter", link(letter.head, `/letters/${part(letter.head ?? "")}`)],
      ["Behind it", letter.behind > 0 && `${letters(letter.behind)} of its key`],
    ]} />
    ${replays.length ? html`<ul class="stack">${replays.map((entry) => html`<li class="row" key=${entry.id}><${Pill} state=${entry.status} />${link(entry.id, `/replays/${part(entry.id)}`)}
        <span class="faint"><${Time} at=${entry.at} /></span>${entry.note && html`<span class="faint"><${Text} value=${entry.note} /></span>`}</li>`)}</ul>` : html`<p class="faint">No replay has taken it yet.</p>`}`}<//>`;
}

const Versions = ({ letter }) => letter.versions.length > 0 && html`<${Panel} id="versions" title="Versions" about=${`${letter.version} is sent`}>
  ${[...letter.versions].reverse().map(({ number: nth, size, edit, diff }) => html`<details class="fold" key=${nth}><summary><strong>Version ${nth}</strong>
    <span class="faint">${edit ? html`<${Text} value=${[edit.by, edit.why, edit.repair && `repair ${edit.repair}`].filter(Boolean).join(" · ")} /> <${Time} at=${edit.at} />` : "as it came"} · ${bytes(size)}</span></summary>
    ${diff.length > 0 ? html`<${Diff} lines=${diff} />` : html`<p class="faint">The same bytes.</p>`}</details>`)}<//>`;

/** Lines that were taken away and added, as a diff writes them. */
export const Diff = ({ lines }) => html`<pre class="plain diff" tabindex="0">${lines.map((line) => html`<span data-tone=${line.startsWith("+") ? "green" : line.startsWith("-") ? "red" : ""}><${Text} value=${`${line}\n`} /></span>`)}</pre>`;

/** The letter for elsewhere: a request, a test, a debugger. No token is in any of them. */
function Takeaway({ letter }) {
  const at = location.origin;
  const name = letter.source.replace(/\W+/g, "_").slice(0, 60); // a name that every file system takes
  const lines = [
    ["curl", `curl -H "Authorization: Bearer $REDRIVE_TOKEN" ${at}/api/letters/${letter.id}`],
    ["pytest", `redrive debug ${letter.id} --server ${at} --handler MODULE:FUNCTION --pytest tests/test_${name}.py`],
    ["debugger", `redrive debug ${letter.id} --server ${at} --handler MODULE:FUNCTION`],
  ];
  return html`<${Panel} id="takeaway" title="Take it with you"><ul class="stack">${lines.map(([what, line]) => html`<li key=${what}><div class="row takeaway-head"><span class="faint">${what}</span><${Copy} text=${line} what=${`the line for ${what}`} /></div><code class="line">${line}</code></li>`)}</ul><//>`;
}
