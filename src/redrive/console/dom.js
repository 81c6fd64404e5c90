// Every value becomes text, never markup: an error message is somebody else's words.

export const find = (id) => document.getElementById(id);

/** An element with properties and children; a child that is no element becomes text. */
export function el(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && !key.startsWith("aria") && key !== "role") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** New content, with the focus where it was, and not while somebody is marking text in it. */
export function fill(container, children) {
  const selection = getSelection();
  if (!selection.isCollapsed && container.contains(selection.anchorNode)) return;
  const key = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  container.replaceChildren(...children);
  focusOn(container, key);
}

/** Opens it. When it is closed the focus goes back, also if what had it was made anew meanwhile. */
export function openDialog(dialog) {
  if (dialog.open) return;
  const key = document.activeElement?.dataset.key;
  dialog.addEventListener("close", () => focusOn(document, key), { once: true });
  dialog.showModal();
}

function focusOn(container, key) {
  if (key !== undefined) container.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

/** An element that keeps its focus over `fill`. */
export function keyed(key, made) {
  made.dataset.key = key;
  return made;
}

export const number = (value) => value.toLocaleString("en");

const SPANS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** `3m ago`, `in 5s`, as an element that says the exact time to who asks. */
export function moment(text, now = Date.now()) {
  if (!text) return el("span.faint", {}, "–");
  const seconds = (now - Date.parse(text)) / 1000;
  return time(text, seconds < -1 ? `in ${span(seconds)}` : seconds < 1 ? "now" : `${span(seconds)} ago`);
}

/** The same of what is to come: `in 5s`, and `overdue 3m` where nobody did it. */
export function due(text, now = Date.now()) {
  if (!text) return moment(text);
  const seconds = (now - Date.parse(text)) / 1000;
  return time(text, seconds < -1 ? `in ${span(seconds)}` : seconds < 5 ? "now" : `overdue ${span(seconds)}`);
}

const time = (text, said) => el("time", { dateTime: text, title: new Date(text).toLocaleString() }, said);

function span(seconds) {
  const [unit, size] = SPANS.find(([, size]) => Math.abs(seconds) >= size) ?? ["s", 1];
  return `${Math.floor(Math.abs(seconds) / size)}${unit}`;
}

export function toast(text, kind = "info") {
  const made = el("p.toast", { "data-kind": kind }, text);
  find("toasts").append(made);
  setTimeout(() => made.remove(), kind === "error" ? 10000 : 5000);
}
