// What all pages share: who is here, whether the server answers, what has changed, what was said.

import { computed, signal } from "./lib.js";

/**
 * @typedef {{name: string, role: "viewer"|"operator"|"admin", csrf?: string, may_unmask?: boolean, id?: string, via?: string}} Me
 * @typedef {{position: "wait"|"on"|"part"|"off", text: string}} Live
 * @typedef {{id: number, text: string, kind: "info"|"error", to?: string, undo?: () => unknown}} Toast
 */

/** Who the server says that we are; null before it has. */
export const me = signal(/** @type {Me | null} */ (null));

/** Why somebody has to sign in; null while nobody has to. */
export const asksToSignIn = signal(/** @type {string | null} */ (null));

export const live = signal(/** @type {Live} */ ({ position: "wait", text: "connecting" }));

const RANKS = ["viewer", "operator", "admin"];

/** Whether our role allows what needs that one. The server decides; this only hides what it would refuse. */
export const may = (/** @type {string} */ role) => me.value !== null && RANKS.indexOf(me.value.role) >= RANKS.indexOf(role);

/* ---- changes: a number for each kind of thing, one more whenever the server says that it changed ---- */

/** mine: the last of them was an act of this page, whose outcome somebody waits to see */
export const changes = signal({ counts: /** @type {Record<string, number>} */ ({}), mine: false });

function count(/** @type {string[]} */ what, /** @type {boolean} */ mine) {
  const counts = { ...changes.value.counts };
  for (const name of what.length ? what : ["all"]) counts[name] = (counts[name] ?? 0) + 1;
  changes.value = { counts, mine };
}

/** After an act: whatever shows one of these asks again at once; without a name, everything. */
export const changed = (/** @type {string[]} */ ...what) => count(what, true);

/** The server says that these changed: whatever shows one of them asks again soon. */
export const heard = (/** @type {string[]} */ ...what) => count(what, false);

/* ---- the server's clock ---- */

let ahead = 0; // milliseconds that the server's clock is ahead of ours

/** What the server's clock says now, in milliseconds: the browser's may be wrong by an hour. */
export const serverNow = () => Date.now() + ahead;

/** Takes over the server's time; one second is what the `Date` header of an answer is exact to. */
export function setServerTime(/** @type {number} */ at, exact = false) {
  const found = at - Date.now();
  if (Number.isFinite(found) && (exact || Math.abs(found - ahead) > 2000)) ahead = found;
}

/** Ticks once a second while somebody looks. */
export const now = signal(serverNow());
setInterval(() => document.hidden || (now.value = serverNow()), 1000);

/* ---- toasts ---- */

export const toasts = signal(/** @type {Toast[]} */ ([]));
let said = 0;

/**
 * Says it at the lower edge for a while. Say what the answer says, and nothing that it does not.
 * @param {string} text
 * @param {"info"|"error"} kind
 * @param {string} [to] where more of it is
 * @param {() => unknown} [undo] takes back what was done: there is more time to choose it
 */
export function toast(text, kind = "info", to, undo) {
  const id = ++said;
  toasts.value = [...toasts.value.slice(-4), { id, text, kind, to, undo }];
  setTimeout(() => dismiss(id), undo ? 60_000 : kind === "error" ? 12_000 : 6000);
}

export const dismiss = (/** @type {number} */ id) => void (toasts.value = toasts.value.filter((one) => one.id !== id));

/* ---- light and dark ---- */

const SCHEME = "redrive-scheme";

/** `light`, `dark`, or empty for what the system says. */
export const scheme = signal(localStorage.getItem(SCHEME) ?? "");

export function chooseScheme(/** @type {string} */ name) {
  scheme.value = name;
  if (name) localStorage.setItem(SCHEME, name);
  else localStorage.removeItem(SCHEME);
  showScheme();
}

export function showScheme() {
  if (scheme.value) document.documentElement.dataset.scheme = scheme.value;
  else delete document.documentElement.dataset.scheme;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(dark.matches);
dark.addEventListener("change", () => (systemDark.value = dark.matches));

/** Whether the page is dark now: for what is drawn and cannot be styled. */
export const isDark = computed(() => (scheme.value ? scheme.value === "dark" : systemDark.value));
