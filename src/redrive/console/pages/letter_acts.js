// What is done with one letter in a dialog: another body, and a look at its secrets.

import { inWords, part, post } from "../api.js";
import { html, useState } from "../lib.js";
import { changed } from "../state.js";
import { Button, Dialog, Field, FormDialog, toast } from "../ui.js";
import { Diff } from "./letter.js";

const MASK = "[redacted";
const KINDS = /** @type {[string, string][]} */ ([["body", "The whole body"], ["patch", "JSON Patch"]]);

/** Another body: its diff is shown before it is kept. What is masked cannot be kept; a patch leaves it alone. */
export function EditDialog({ letter, unmasked, close }) {
  const base = unmasked ? new TextDecoder().decode(Uint8Array.from(atob(unmasked.body), (mark) => mark.charCodeAt(0))) : letter.body;
  const masked = !unmasked && base.includes(MASK);
  const [kind, setKind] = useState(masked ? "patch" : "body");
  const [text, setText] = useState(base);
  const [patch, setPatch] = useState('[\n  {"op": "replace", "path": "/field", "value": 1}\n]');
  const [reason, setReason] = useState("");
  const [diff, setDiff] = useState(/** @type {string[] | null} */ (null));
  const [why, setWhy] = useState("");
  const wanted = () => ({ version: letter.version, reason, ...(kind === "body" ? { body: text } : { patch: JSON.parse(patch) }) });
  const tried = (work) => async () => {
    setWhy("");
    try {
      await work();
    } catch (error) {
      setWhy(error instanceof SyntaxError ? `That is no JSON: ${error.message}` : inWords(error));
    }
  };
  const preview = tried(async () => setDiff((await post(`letters/${part(letter.id)}/preview`, wanted())).diff));
  const keep = tried(async () => {
    const { version } = await post(`letters/${part(letter.id)}/edit`, wanted());
    toast(`Version ${version} is kept, and is what will be sent`);
    changed("letters");
    close();
  });
  const typed = (set) => (event) => (set(event.target.value), setDiff(null));
  return html`<${Dialog} wide title="Edit the message" close=${close}>
    ${masked && html`<p class="caution">Secrets of it are masked here. A JSON Patch changes the real body and leaves them as they are.</p>`}
    <div class="tabs" role="group" aria-label="What is edited">${KINDS.map(([name, words]) => html`<button type="button" aria-pressed=${kind === name} onClick=${() => (setKind(name), setDiff(null))}>${words}</button>`)}</div>
    <${Field} label=${kind === "body" ? "Body" : "Patch (RFC 6902)"}><textarea class="code" rows="14" spellcheck=${false} autofocus value=${kind === "body" ? text : patch} onInput=${typed(kind === "body" ? setText : setPatch)} /><//>
    <${Field} label="Why" about="kept with the version"><input type="text" maxlength="1000" value=${reason} onInput=${typed(setReason)} /><//>
    ${why && html`<p class="caution" role="alert">${why}</p>`}
    ${diff && (diff.length ? html`<h3>What it changes</h3><${Diff} lines=${diff} />` : html`<p class="faint">It changes nothing.</p>`)}
    <div class="dialog-acts"><button type="button" class="button" onClick=${close}>Cancel</button>
      ${diff?.length ? html`<${Button} act=${keep} kind="primary">Keep this version<//>` : html`<${Button} act=${preview} kind="primary">Show the diff<//>`}</div><//>`;
}

/** The secrets of one letter, for a reason that is kept. */
export const UnmaskDialog = ({ letter, show, close }) => html`<${FormDialog} title="Unmask this letter" verb="Unmask" close=${close}
  act=${async ({ reason }) => show(await post(`letters/${part(letter.id)}/unmask`, { reason }))}>
  <p>Its body and headers are shown to you as they are. That you looked, and why, is written into the audit trail first.</p>
  <${Field} label="Why"><input type="text" name="reason" required maxlength="1000" autocomplete="off" /><//><//>`;
