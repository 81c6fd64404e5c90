// Who are you: a token, or a login where the server has one.

import { dropToken, keepToken } from "./api.js";
import { Dialog } from "./dialog.js";
import { html, useEffect, useState } from "./lib.js";
import { follow, recognise } from "./live.js";
import { asksToSignIn, me } from "./state.js";
import { Advice } from "./ui.js";

/** @typedef {{people: boolean, login: string | null, issuer: string | null}} Ways as /api/login answers */

export function SignIn() {
  const why = asksToSignIn.value;
  const [ways, setWays] = useState(/** @type {Ways | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (why !== null) fetch("/api/login").then((answer) => (answer.ok ? answer.json() : null)).then(setWays, () => setWays(null));
  }, [why !== null]);
  if (why === null) return null;
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    keepToken(String(new FormData(form).get("token")));
    setBusy(true);
    asksToSignIn.value = why;
    await recognise();
    setBusy(false);
    if (asksToSignIn.value !== null) form.querySelector("input")?.select();
  };
  return html`<${Dialog} title="Sign in" must close=${() => undefined} id="sign-in">
    ${ways?.login && html`<p><a class="button primary" id="sign-in-link" href=${wayBack(ways.login)} onClick=${dropToken}>Sign in${ways.issuer ? ` with ${new URL(ways.issuer).host}` : ""}</a></p>
      <p class="faint">or with a token:</p>`}
    <form onSubmit=${submit}>
      ${why && html`<p class="caution" id="sign-in-why" role="alert"><${Advice} text=${why} /></p>`}
      <p class="faint">The server printed an address with a token when it started. Or make one:
        ${" "}<code>redrive token create --role operator --name me</code></p>
      <label class="field"><span class="field-name">Token</span><input id="sign-in-token" name="token" type="password" autocomplete="off" spellcheck=${false} required autofocus aria-describedby=${why ? "sign-in-why" : undefined} /></label>
      <div class="dialog-acts"><button class="button primary" disabled=${busy}>Go on</button></div>
    </form><//>`;
}

/** The login, and back to the page that was asked for. */
const wayBack = (/** @type {string} */ login) => `${login}?to=${encodeURIComponent(location.pathname + location.search)}`;

/** Forgets the token of this tab, and ends the session if there is one: here, and where it began. */
export async function signOut() {
  const csrf = me.value?.csrf;
  const answer = csrf ? await fetch("/logout", { method: "POST", headers: { "X-CSRF-Token": csrf } }) : null;
  const at = answer?.ok ? (await answer.json()).at_issuer : null;
  dropToken();
  me.value = null;
  asksToSignIn.value = "";
  follow();
  if (at) location.assign(at);
}
