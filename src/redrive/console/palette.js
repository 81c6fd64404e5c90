// Go anywhere (Ctrl K), and the list of keys (?).

import { Dialog } from "./dialog.js";
import { Icon } from "./icons.js";
import { KEYS, overlay, pageKeys } from "./keys.js";
import { html, useState } from "./lib.js";
import { useRested, useResource } from "./resource.js";
import { go, sourceAt } from "./router.js";
import { MENU } from "./routes.js";
import { may } from "./state.js";

const MOST = 6; // of a kind

const close = () => void (overlay.value = null);

export const Overlays = () => (overlay.value === "palette" ? html`<${Palette} />` : overlay.value === "help" ? html`<${Help} />` : null);

/** @typedef {{to: string, icon: string, text: string, about?: string}} Place */

function Palette() {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const text = typed.trim().toLowerCase();
  const rested = useRested(text);
  const groups = useResource(rested.length > 1 ? "groups" : null, { text: rested, limit: MOST });
  const sources = useResource("sources");
  const replays = useResource("replays", { limit: 50 });
  const has = (/** @type {string} */ name) => text.length > 1 && name.toLowerCase().includes(text);
  const pages = MENU.filter((entry) => !entry.role || may(entry.role)).filter((entry) => entry.name.toLowerCase().includes(text));
  const found = /** @type {Place[]} */ ([
    ...pages.map((entry) => ({ to: entry.path, icon: entry.icon, text: entry.name })),
    ...(text ? [{ to: `/letters?text=${encodeURIComponent(typed.trim())}`, icon: "search", text: `Letters with “${typed.trim()}”` }] : []),
    ...(/^[\w.:-]{12,}$/.test(text) ? [{ to: `/letters/${encodeURIComponent(typed.trim())}`, icon: "letters", text: `Letter ${typed.trim()}` }] : []),
    ...(sources.data?.sources ?? []).filter(has).slice(0, MOST).map((/** @type {string} */ name) => ({ to: sourceAt(name), icon: "sources", text: name, about: "source" })),
    ...(replays.data ?? []).filter((/** @type {any} */ replay) => has(`${replay.reason} ${replay.id}`)).slice(0, MOST).map((/** @type {any} */ replay) => ({ to: `/replays/${replay.id}`, icon: "replays", text: replay.reason || replay.id, about: `replay, ${replay.state}` })),
    ...(groups.data ?? []).map((/** @type {any} */ group) => ({ to: `/groups/${group.id}`, icon: "groups", text: group.error_type, about: group.message })),
  ]);
  const chosen = Math.min(at, found.length - 1);
  const take = (/** @type {Place | undefined} */ place) => place && (close(), go(place.to));
  const press = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) event.preventDefault(), setAt(Math.max(0, Math.min(chosen + by, found.length - 1)));
    if (event.key === "Enter") event.preventDefault(), take(found[chosen]);
  };
  return html`<${Dialog} title="Go to" close=${close} fleeting id="palette">
    <input class="palette-input" type="text" autofocus placeholder="A page, a source, a replay, a group, a letter, or any text" aria-label="Where to"
      role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${`palette-${chosen}`} autocomplete="off" spellcheck=${false}
      value=${typed} onInput=${(/** @type {any} */ event) => (setTyped(event.target.value), setAt(0))} onKeyDown=${press} />
    <ul id="palette-list" class="palette-list" role="listbox" aria-label="Places">${found.map((place, index) => html`
      <li key=${place.to} id=${`palette-${index}`} role="option" aria-selected=${index === chosen} onClick=${() => take(place)} onPointerMove=${() => index !== chosen && setAt(index)}>
        <${Icon} name=${place.icon} /><span class="palette-text">${place.text} <span class="faint">${place.about}</span></span></li>`)}
    </ul><//>`;
}

const Help = () => html`<${Dialog} title="Keys" close=${close} id="help">
  ${pageKeys.value.length > 0 && html`<h3>On this page</h3><${List} keys=${pageKeys.value} /><h3>Everywhere</h3>`}
  <${List} keys=${KEYS} /><//>`;

const List = (/** @type {{keys: import("./keys.js").Key[]}} */ { keys }) => html`<dl class="keys">
  ${keys.map(({ keys: names, does }) => html`<dt>${names.split(" ").map((name) => html`<kbd>${name}</kbd>`)}</dt><dd>${does}</dd>`)}</dl>`;
