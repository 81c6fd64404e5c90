// What is around every page: the menu, who is here, whether the server answers.

import { Confirms } from "./dialog.js";
import { Icon } from "./icons.js";
import { overlay } from "./keys.js";
import { html, useEffect, useErrorBoundary, useState } from "./lib.js";
import { Overlays } from "./palette.js";
import { useResource } from "./resource.js";
import { href, match, path } from "./router.js";
import { MENU, ROUTES } from "./routes.js";
import { SignIn, signOut } from "./signin.js";
import { asksToSignIn, chooseScheme, live, may, me, scheme } from "./state.js";
import { Empty, Head, Skeleton, Toasts, Trouble } from "./ui.js";
import { Problem, inWords } from "./api.js";

export function Layout() {
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path.value]);
  return html`<a class="skip" href="#main">Skip to the page</a>
    <div class="frame" data-open=${open}>
      <aside class="side">
        <a class="brand" href="/"><${Mark} /><span>Redrive</span></a>
        <button type="button" class="button quiet menu-button" aria-expanded=${open} aria-controls="menu" aria-label="Menu" onClick=${() => setOpen(!open)}><${Icon} name=${open ? "close" : "menu"} size=${20} /></button>
        <${Status} />
        <${Menu} />
      </aside>
      <main id="main" tabindex="-1"><${Page} /></main>
    </div>
    <${SignIn} /><${Confirms} /><${Overlays} /><${Toasts} />`;
}

const Mark = () => html`<svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#4f46e5" />
  <path d="M6.5 11.5 16 18l9.5-6.5M6.5 10h19v12h-8" fill="none" stroke="#fff" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round" />
  <path d="m12.5 18.5-4 3.8 4 3.8M9 22.3h6" fill="none" stroke="#a5f3c4" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round" /></svg>`;

const Status = () => html`<p id="live" class="live" role="status" data-live=${asksToSignIn.value === null ? live.value.position : "wait"}>${asksToSignIn.value === null ? live.value.text : "signed out"}</p>`;

function Menu() {
  const known = me.value !== null;
  const incidents = useResource(known ? "incidents" : null, { states: ["open"], limit: 100 }, { on: ["incidents"] });
  const approvals = useResource(known && may("operator") ? "approvals" : null, { limit: 100 }, { on: ["approvals"] });
  const counts = /** @type {Record<string, number>} */ ({ "/incidents": incidents.data?.length ?? 0, "/approvals": (approvals.data ?? []).filter((/** @type {any} */ one) => one.state === "waiting").length });
  return html`<nav id="menu" class="menu" aria-label="Pages">
    <button type="button" class="find" aria-keyshortcuts="Control+K Meta+K" onClick=${() => (overlay.value = "palette")}><${Icon} name="search" /><span>Go to…</span><kbd>Ctrl K</kbd></button>
    <ul>${MENU.filter((entry) => !entry.role || may(entry.role)).map((entry) => html`<li key=${entry.path}>
      <a href=${href(entry.path)} aria-current=${isIn(entry.path) ? "page" : undefined}><${Icon} name=${entry.icon} /><span>${entry.name}</span>
      ${(counts[entry.path] ?? 0) > 0 && html`<span class="count">${counts[entry.path]}</span>`}</a></li>`)}</ul>
    <div class="foot">
      <${Schemes} />
      <button type="button" class="button quiet" aria-label="Keys" title="Keys: ?" aria-keyshortcuts="?" onClick=${() => (overlay.value = "help")}><kbd>?</kbd></button>
      ${me.value && html`<p id="who" class="who"><strong>${me.value.name}</strong><span class="faint">${me.value.role}</span></p>
        <button type="button" class="button quiet" id="sign-out" aria-label="Sign out" title="Sign out" onClick=${signOut}><${Icon} name="out" /></button>`}
    </div></nav>`;
}

const isIn = (/** @type {string} */ at) => (at === "/" ? path.value === "/" : path.value === at || path.value.startsWith(`${at}/`));

function Schemes() {
  const [name, next, icon] = scheme.value === "light" ? ["light", "dark", "sun"] : scheme.value === "dark" ? ["dark", "", "moon"] : ["as the system", "light", "auto"];
  return html`<button type="button" class="button quiet" aria-label=${`Colours: ${name}`} title=${`Colours: ${name}`} onClick=${() => chooseScheme(next)}><${Icon} name=${icon} /></button>`;
}

/** The page of the address. A file that cannot be loaded is of a version that is gone: a reload brings the new one. */
function Page() {
  const at = path.value;
  const found = ROUTES.map((route) => ({ route, params: match(route.path, at) })).find((one) => one.params !== null);
  const [shown, setShown] = useState(/** @type {{route: any, page: any} | null} */ (null));
  const [failed, setFailed] = useState(/** @type {unknown} */ (null));
  const [error, reset] = useErrorBoundary((/** @type {unknown} */ thrown) => console.error(thrown));
  const route = found?.route;
  useEffect(() => {
    setFailed(null);
    route?.load().then((loaded) => setShown({ route, page: loaded.default }), setFailed);
  }, [route]);
  useEffect(() => error && reset(), [at]);
  if (me.value === null) return html`<${Skeleton} rows=${6} />`;
  if (!found) return html`<${Head} title="There is no such page" /><${Empty} title=${`Nothing is at ${at}`}><a href="/">To the overview</a><//>`;
  if (failed) return html`<${Trouble} error=${new Problem(`the page cannot be loaded: ${inWords(failed)}`, "the server may have been updated: load it anew", 0)} again=${() => location.reload()} />`;
  if (error) return html`<${Trouble} error=${new Problem(`this page has a mistake: ${inWords(error)}`, "the others work; please report it", 0)} again=${reset} />`;
  if (shown?.route !== route) return html`<${Skeleton} rows=${6} />`;
  return html`<${/** @type {any} */ (shown).page} key=${at} ...${found.params} />`;
}
