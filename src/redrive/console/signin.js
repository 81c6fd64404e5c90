// Who are you: a token, or a login where the server has one.

import { dropToken, get, keepToken } from "./api.js";
import { Dialog } from "./dialog.js";
import { html, useEffect, useState } from "./lib.js";
import { recognise } from "./live.js";
import { asksToSignIn, me } from "./state.js";

export function SignIn() {
  const why = asksToSignIn.value;
  const [login, setLogin] = useState(/** @type {{url?: string, name?: string} | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    // a server without logins has no such route
    if (why !== null) fetch("/api/login").then((answer) => (answer.ok ? answer.json() : null)).then(setLogin, () => setLogin(null));
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
    ${login?.url && html`<p><a class="button primary" href=${login.url} target="_self">Sign in${login.name ? ` with ${login.name}` : ""}</a></p><p class="faint">or with a token:</p>`}
    <form onSubmit=${submit}>
      ${why && html`<p class="caution" id="sign-in-why" role="alert">${why}</p>`}
      <p class="faint">The server printed an address with a token when it started. Or make one:
        ${" "}<code>redrive token create --role operator --name me</code></p>
      <label class="field"><span class="field-name">Token</span><input id="sign-in-token" name="token" type="password" autocomplete="off" spellcheck=${false} required autofocus aria-describedby=${why ? "sign-in-why" : undefined} /></label>
      <div class="dialog-acts"><button class="button primary" disabled=${busy}>Go on</button></div>
    </form><//>`;
}

/** Forgets the token of this tab, and ends the login if there is one. */
export async function signOut() {
  if (me.value?.csrf) await fetch("/api/logout", { method: "POST", headers: { "X-CSRF-Token": me.value.csrf } }).catch(() => undefined);
  dropToken();
  me.value = null;
  get("me").catch(() => undefined);
  asksToSignIn.value = "";
}
