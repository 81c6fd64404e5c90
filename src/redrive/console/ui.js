// The parts that pages are made of. Pages import all of them from here.

import { Problem, inWords, mayPass } from "./api.js";
import { ago, due, exact, number } from "./format.js";
import { Icon } from "./icons.js";
import { html, useComputed, useErrorBoundary, useState } from "./lib.js";
import { dismiss, now, toast, toasts } from "./state.js";

export * from "./dialog.js";
export * from "./format.js";
export * from "./table.js";
export { Icon } from "./icons.js";
export { toast } from "./state.js";

/** @typedef {any} Children */

/**
 * A button that cannot be pressed twice while its act is under way; what the act throws is said in words.
 * @param {{act: () => unknown, children?: Children, kind?: "primary"|"danger"|"quiet"|"", [more: string]: any}} props
 */
export function Button({ act, children, kind = "", disabled = false, ...more }) {
  const [busy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    try {
      await act();
    } catch (error) {
      toast(inWords(error), "error");
    }
    setBusy(false);
  };
  return html`<button type="button" class=${`button ${kind}`} disabled=${disabled || busy} aria-busy=${busy} onClick=${press} ...${more}>${children}</button>`;
}

/** A state of something, in its colour: letters, replays, incidents, workers, groups. */
export const Pill = (/** @type {{state: string, children?: Children}} */ { state, children }) =>
  html`<span class="pill" data-state=${state}>${children ?? state}</span>`;

/** A word that describes: a category, a version, a tag. */
export const Chip = (/** @type {{children?: Children, [more: string]: any}} */ { children, ...more }) => html`<span class="chip" ...${more}>${children}</span>`;

/**
 * `3m ago` with the exact time: beside it on a phone, where nobody hovers, and anywhere with `full`.
 * @param {{at: string | null | undefined, full?: boolean, coming?: boolean}} props coming: something that is due then
 */
export function Time({ at, full = false, coming = false }) {
  const said = useComputed(() => (at ? (coming ? due : ago)(at, now.value) : ""));
  if (!at) return html`<span class="faint">–</span>`;
  return html`<time class=${full ? "time full" : "time"} dateTime=${at} title=${exact(at)}><span>${said}</span> <span class="exact">${exact(at)}</span></time>`;
}

/** What there is to see where there is nothing, and what to do. */
export const Empty = (/** @type {{title: string, children?: Children}} */ { title, children }) =>
  html`<div class="empty"><p class="empty-title">${title}</p>${children && html`<p>${children}</p>`}</div>`;

/** What the server advises: what is between backticks, and a command alone, as something to type. */
export const Advice = (/** @type {{text: string}} */ { text }) =>
  html`${(/^redrive [a-z]/.test(text) ? `\`${text}\`` : text).split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part))}`;

const WRONG = /** @type {Record<number, string>} */ ({ 400: "Not understood", 403: "Not allowed", 404: "Not found", 422: "Not understood" });

/** What went wrong, and what to do about it. */
export const Trouble = (/** @type {{error: Problem, again?: () => void}} */ { error, again }) => html`<div class="trouble" role="alert">
  <p><strong>${WRONG[error.status] ?? "Not available now"}</strong>: <${Advice} text=${error.message} /></p>
  ${error.hint && html`<p class="faint"><${Advice} text=${error.hint} /></p>`}
  ${again && mayPass(error) && html`<button type="button" class="button" onClick=${again}>Try again</button>`}
</div>`;

/**
 * A card with what one question to the API answers. It has a state of its own: while it waits, where it fails (the last
 * answer stays in sight), and where there is nothing (`empty` says what then).
 * @param {{title?: Children, about?: Children, from?: import("./resource.js").Resource<any>, aside?: Children,
 *   children?: Children | ((data: any) => Children), empty?: (data: any) => Children, id?: string, flush?: boolean}} props
 *   flush: without padding, for tables
 */
export function Panel({ title, about, from, aside, children, empty, id, flush = false }) {
  return html`<section class="panel" id=${id} aria-label=${typeof title === "string" ? title : undefined} aria-busy=${Boolean(from?.loading)}>
    ${(title || aside) && html`<header class="panel-head"><h2>${title}</h2>${about && html`<p class="about">${about}</p>`}<div class="panel-aside">${aside}</div></header>`}
    <div class=${flush ? "panel-body flush" : "panel-body"}>
      ${from?.error && html`<${Trouble} error=${from.error} again=${from.reload} />`}
      <${Guarded}>${() => filled({ from, children, empty })}<//>
    </div>
  </section>`;
}

function filled(/** @type {any} */ { from, children, empty }) {
  if (!from) return typeof children === "function" ? children() : children;
  if (from.data === null) return from.error ? null : html`<${Skeleton} />`;
  const nothing = empty?.(from.data);
  return nothing || (typeof children === "function" ? children(from.data) : children);
}

/** A mistake of ours in one panel is told there, and the others stay. */
function Guarded(/** @type {{children: any}} */ { children }) {
  const [error, reset] = useErrorBoundary((/** @type {unknown} */ thrown) => console.error(thrown));
  if (error) return html`<${Trouble} error=${new Problem(`this cannot be shown: ${inWords(error)}`, "the answer of the server is not what this page expects", 0)} again=${reset} />`;
  return html`<${Called} made=${Array.isArray(children) ? children[0] : children} />`;
}

const Called = (/** @type {{made: () => any}} */ { made }) => made();

export const Skeleton = ({ rows = 3 }) => html`<div class="skeleton" role="status" aria-label="Loading">${Array.from({ length: rows }, () => html`<span />`)}</div>`;

/** A number with its name, and how it changed. */
export function Stat(/** @type {{name: string, value: Children, about?: Children, to?: string, tone?: string}} */ { name, value, about, to, tone }) {
  const inner = html`<span class="stat-name">${name}</span><span class="stat-value">${value}</span><span class="stat-about">${about}</span>`;
  return to ? html`<a class="stat" href=${to} data-tone=${tone}>${inner}</a>` : html`<div class="stat" data-tone=${tone}>${inner}</div>`;
}

/** Bars over time, small. Its numbers are in its label. */
export function Sparkline(/** @type {{counts: number[] | null | undefined, label?: string, tone?: string}} */ { counts, label = "", tone = "" }) {
  if (!counts?.length) return html`<span class="faint">–</span>`;
  const most = Math.max(1, ...counts);
  const path = counts.map((count, at) => (count ? `M${4 * at + 1.5} 24V${24 - Math.max(1.5, (22 * count) / most)}` : "")).join("");
  const said = `${label} ${number(counts.reduce((sum, count) => sum + count, 0))} in all, at most ${number(most)} at once, ${number(counts.at(-1))} now`;
  return html`<svg class="spark" data-tone=${tone} viewBox=${`0 0 ${4 * counts.length} 24`} preserveAspectRatio="none" role="img" aria-label=${said.trim()}>
    <path d=${`M0 23.5H${4 * counts.length}`} class="spark-base" /><path d=${path} /></svg>`;
}

/**
 * Parts of a whole as one bar.
 * @param {{parts: {name: string, count: number}[], total?: number}} props
 */
export function Shares({ parts, total }) {
  const some = parts.filter((part) => part.count > 0);
  const all = Math.max(1, total ?? some.reduce((sum, part) => sum + part.count, 0));
  const said = some.map((part) => `${part.name} ${number(part.count)}`).join(", ");
  return html`<span class="shares" role="img" aria-label=${said || "nothing"} title=${said}>
    ${some.map((part) => html`<span data-state=${part.name} style=${{ width: `${(100 * part.count) / all}%` }} />`)}</span>`;
}

/** Tabs whose choice is in the address or wherever the page keeps it. */
export const Tabs = (/** @type {{tabs: [string, Children][], chosen: string, choose: (name: string) => void, label: string}} */ { tabs, chosen, choose, label }) =>
  html`<div class="tabs" role="group" aria-label=${label}>${tabs.map(([name, text]) =>
    html`<button type="button" aria-pressed=${name === chosen} onClick=${() => choose(name)}>${text}</button>`)}</div>`;

/** A label with what it labels. */
export const Field = (/** @type {{label: Children, children?: Children, about?: Children}} */ { label, children, about }) =>
  html`<label class="field"><span class="field-name">${label}</span>${children}${about && html`<span class="faint">${about}</span>`}</label>`;

/** Names and values; those without a value are left out. */
export const Facts = (/** @type {{rows: [Children, Children][]}} */ { rows }) => html`<dl class="facts">
  ${rows.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
</dl>`;

/** Copies a text; says so only if it was copied. */
export function Copy(/** @type {{text: string, children?: Children, what?: string}} */ { text, children, what = "it" }) {
  const act = async () => {
    await copied(text);
    toast(`Copied ${what}`);
  };
  return html`<${Button} act=${act} kind="quiet" aria-label=${`Copy ${what}`}><${Icon} name="copy" />${children}<//>`;
}

async function copied(/** @type {string} */ text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  let taken = false; // plain http to another machine has no clipboard, only the old command
  const give = (/** @type {ClipboardEvent} */ event) => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
    taken = true;
  };
  document.addEventListener("copy", give);
  document.execCommand("copy");
  document.removeEventListener("copy", give);
  if (!taken) throw new Error("this browser lets no page copy here: select the text, and copy it by hand");
}

/** The head of a page: its name, what leads back, and its acts. */
export const Head = (/** @type {{title: Children, about?: Children, back?: [string, string], children?: Children}} */ { title, about, back, children }) =>
  html`<header class="page-head"><div>
    ${back && html`<a class="back" href=${back[0]}><${Icon} name="left" size=${13} />${back[1]}</a>`}
    <h1 tabindex="-1">${title}</h1>${about && html`<p class="about">${about}</p>`}</div>
    <div class="page-acts">${children}</div></header>`;

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">
  ${toasts.value.map((one) => html`<p class="toast" data-kind=${one.kind} key=${one.id}>
    <span>${one.text}${one.to && html` <a href=${one.to}>Show</a>`}</span>
    ${one.undo && html`<${Button} kind="quiet" act=${async () => (await one.undo?.(), dismiss(one.id))}>Undo<//>`}
    <button type="button" aria-label="Dismiss" onClick=${() => dismiss(one.id)}><${Icon} name="close" size=${12} /></button></p>`)}
</div>`;
