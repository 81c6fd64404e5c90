// The keyboard: everywhere the same keys, and what a page adds is in the same list (?).

import { go } from "./router.js";
import { signal, useEffect } from "./lib.js";

/** What is open above the page: `help`, `palette`, or nothing. */
export const overlay = signal(/** @type {"help" | "palette" | null} */ (null));

/** @typedef {{keys: string, does: string}} Key */

/** The keys that work everywhere. Two letters are pressed one after the other. */
export const KEYS = /** @type {Key[]} */ ([
  { keys: "/", does: "search on this page" },
  { keys: "j", does: "next row" },
  { keys: "k", does: "previous row" },
  { keys: "enter", does: "open the row" },
  { keys: "x", does: "choose the row" },
  { keys: "r", does: "replay or retry: the row, else what the page shows" },
  { keys: "Ctrl K", does: "go anywhere (⌘K on a Mac)" },
  { keys: "g o", does: "overview" },
  { keys: "g g", does: "groups" },
  { keys: "g l", does: "letters" },
  { keys: "g r", does: "replays" },
  { keys: "g s", does: "sources" },
  { keys: "g i", does: "incidents" },
  { keys: "g a", does: "approvals" },
  { keys: "?", does: "this list" },
  { keys: "esc", does: "close (twice where something was typed), or leave the field" },
]);

const GO = /** @type {Record<string, string>} */ ({ o: "/", g: "/groups", l: "/letters", r: "/replays", s: "/sources", i: "/incidents", a: "/approvals" });

/** What the page that is shown adds. */
export const pageKeys = signal(/** @type {(Key & {act: () => void})[]} */ ([]));

/**
 * Keys of a page, as long as it is shown; they come before those of everywhere.
 * @param {(Key & {act: () => void})[]} keys one letter each, such as `{keys: "e", does: "edit", act}`
 */
export function useKeys(keys) {
  useEffect(() => {
    pageKeys.value = keys;
    return () => void (pageKeys.value = []);
  });
}

let before = ""; // the `g` that waits for its second letter

export function listen() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (overlay.value === "palette") overlay.value = null;
      else if (!document.querySelector("dialog[open]")) overlay.value = "palette"; // what is typed into another is not left behind
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.closest("input, textarea, select, [contenteditable]") && !target.matches("input[type=checkbox]")) {
      if (event.key === "Escape" && !target.closest("dialog")) target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (pressed(event.key, target)) event.preventDefault();
  });
}

/** Whether the key did something. */
function pressed(/** @type {string} */ key, /** @type {HTMLElement} */ target) {
  const first = before;
  before = "";
  if (first === "g" && GO[key]) return go(/** @type {string} */ (GO[key])), true;
  const own = pageKeys.value.find((one) => one.keys === key);
  if (own) return own.act(), true;
  const row = target.closest("[data-row]");
  if (key === "g") return (before = "g"), true;
  if (key === "?") return (overlay.value = "help"), true;
  if (key === "/") return focus(document.querySelector("[data-search]"));
  if (key === "j") return step(row, 1);
  if (key === "k") return step(row, -1);
  if (key === "x") return click(row?.querySelector("[data-box]"));
  if (key === "r") return follow(row, "replay") || click(row?.querySelector("[data-hotkey=r]") ?? document.querySelector("main [data-hotkey=r]"));
  if (key === "Enter" && row === target) return follow(row, "to");
  return false;
}

/** Goes where the row leads, if it does. */
function follow(/** @type {Element | null} */ row, /** @type {"to" | "replay"} */ name) {
  const to = row instanceof HTMLElement && row.dataset[name];
  if (!to) return false;
  go(to.replace(/^\/console/, ""));
  return true;
}

function step(/** @type {Element | null} */ row, /** @type {number} */ by) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  const at = row ? rows.indexOf(row) + by : by > 0 ? 0 : rows.length - 1;
  return focus(rows[Math.max(0, Math.min(at, rows.length - 1))] ?? null);
}

function focus(/** @type {Element | null} */ found) {
  if (!(found instanceof HTMLElement)) return false;
  found.focus();
  found.scrollIntoView({ block: "nearest" });
  return true;
}

function click(/** @type {Element | null | undefined} */ found) {
  if (!(found instanceof HTMLElement) || found.matches(":disabled")) return false;
  found.click();
  return true;
}
