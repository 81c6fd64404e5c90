// The address is the state: pages, filters and what is open, so that a link can be sent and a reload changes nothing.

import { computed, signal, useEffect } from "./lib.js";
import { part, queryOf } from "./api.js";
import { visible } from "./hidden.js";

const BASE = "/console";

/** The path of a page in the address bar: `/groups/7` is at `/console/groups/7`, the overview at `/`. */
export const href = (/** @type {string} */ to) => (to === "/" || to.startsWith("/?") ? to : BASE + to);

/**
 * The page of a source. A browser takes `.` and `..` in a path for ways, however they are written: such a name stands behind the `?`.
 * @param {string} name
 */
export function sourceAt(name, transport = "default") {
  const isWay = ["", ".", ".."].includes(name);
  const asked = new URLSearchParams(isWay ? { name } : {});
  if (transport !== "default") asked.set("transport", transport);
  return `/sources/${isWay ? "-" : part(name)}${asked.size ? `?${asked}` : ""}`;
}

const current = signal(read());

function read() {
  const path = location.pathname.startsWith(`${BASE}/`) ? location.pathname.slice(BASE.length) : "/";
  return { path: path.replace(/(.)\/+$/, "$1"), search: location.search };
}

/** The path of the page that is shown. */
export const path = computed(() => current.value.path);

/** What the address asks for, after the `?`. */
export const query = computed(() => new URLSearchParams(current.value.search));

/** Goes to a page: `go("/letters?states=pending")`. */
export function go(/** @type {string} */ to, { replace = false } = {}) {
  const target = href(to);
  const from = location.pathname + location.search;
  if (target === from) return;
  if (!replace) leave();
  history[replace ? "replaceState" : "pushState"](replace ? history.state : { from }, "", target);
  const before = current.value.path;
  current.value = read();
  if (current.value.path !== before) scrollTo(0, 0);
}

/* ---- Back leads to the place on the page that somebody left, and to the row that they were at ---- */

const SOON = 1000; // milliseconds in which the rows of a page that is come back to are there, once it has its answer
const PATIENCE = 10 * SOON;

/** Keeps with this entry of the history where somebody is on the page. */
function leave() {
  const row = document.activeElement?.closest("[data-row]");
  history.replaceState({ ...history.state, top: scrollY, row: row instanceof HTMLElement ? row.dataset.row : undefined }, "");
}

let returning = /** @type {AbortController | null} */ (null);

/** Goes to that place once the page is there, unless somebody does something first. */
function comeBack(/** @type {{top?: number, row?: string} | null} */ place) {
  returning?.abort();
  if (!place?.top && !place?.row) return;
  const { signal } = (returning = new AbortController());
  const began = performance.now();
  for (const name of ["wheel", "keydown", "pointerdown", "popstate"]) addEventListener(name, () => returning?.abort(), { signal, capture: true });
  const look = () => {
    const waited = performance.now() - began;
    if (signal.aborted || waited > PATIENCE) return;
    const isShort = document.documentElement.scrollHeight < (place.top ?? 0) + innerHeight && waited < SOON;
    if (document.querySelector("main .skeleton") || isShort) return void requestAnimationFrame(look);
    scrollTo(0, place.top ?? 0);
    const row = place.row && document.querySelector(`main [data-row="${CSS.escape(place.row)}"]`);
    if (row instanceof HTMLElement) row.focus({ preventScroll: true });
    returning?.abort();
  };
  requestAnimationFrame(() => requestAnimationFrame(look)); // what is there now is the page that was left
}

/**
 * Changes the filters in the address, the others stay; what is empty leaves it. Typing replaces the entry of the
 * history, a choice makes one.
 * @param {import("./api.js").Parameters} changes
 */
export function setQuery(changes, { replace = true } = {}) {
  const kept = new URLSearchParams(current.value.search);
  for (const name of Object.keys(changes)) kept.delete(name);
  for (const [name, value] of new URLSearchParams(queryOf(changes))) kept.append(name, value);
  go(current.value.path + (kept.size ? `?${kept}` : ""), { replace });
}

/** The page of that pattern (`/letters/:id`), if the path is one of it: what stands in the places that it names. */
export function match(/** @type {string} */ pattern, /** @type {string} */ at) {
  const wanted = pattern.split("/");
  const found = at.split("/");
  if (wanted.length !== found.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, name] of wanted.entries()) {
    const value = /** @type {string} */ (found[index]);
    if (name.startsWith(":")) params[name.slice(1)] = unescaped(value);
    else if (name !== value) return null;
  }
  return params;
}

function unescaped(/** @type {string} */ text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function useTitle(/** @type {string} */ title) {
  useEffect(() => void (document.title = title ? `${visible(title)} · Redrive` : "Redrive"), [title]);
}

/** Links within the console change the page without loading it; those that are to open elsewhere do. */
export function listen() {
  addEventListener("popstate", ({ state }) => {
    current.value = read();
    comeBack(state);
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download") || event.defaultPrevented) return;
    if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const { origin, pathname, search, hash } = new URL(link.href);
    if (origin !== location.origin || hash || !(pathname === "/" || pathname.startsWith(`${BASE}/`))) return;
    event.preventDefault();
    if (link.classList.contains("back") && history.state?.from === pathname + search) return history.back();
    go((pathname === "/" ? "/" : pathname.slice(BASE.length)) + search);
  });
}
