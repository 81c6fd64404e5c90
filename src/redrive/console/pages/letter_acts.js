// What is done with one letter in a dialog: another body, and a look at its secrets.

import { inWords, part, post } from "../api.js";
import { html, useState } from "../lib.js";
import { changed } from "../state.js";
import { Button, Dialog, Field, FormDialog, bytes, toast } from "../ui.js";
import { bytesOf } from "../tree.js";
import { Diff } from "./letter.js";

const LONG = 300_000; // characters that a browser edits at once
const KINDS = /** @type {[string, string][]} */ ([["body", "The whole body"], ["patch", "JSON Patch"]]);

/** The body as text, if that is all of it as it is; null where something is masked, cut, or no text. */
function wholeOf(letter, unmasked) {
  if (!unmasked) return letter.body_exact ? letter.body : null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytesOf(unmasked.body));
  } catch {
    return null;
  }
}

/**
 * Another body: its diff is shown before it is kept. What is not shown as it is cannot be edited as text; a patch leaves
 * it alone. It takes the place of the version that was there when somebody began.
 */
export function EditDialog({ letter, unmasked, close }) {
  const [version] = useState(letter.version);
  const [whole] = useState(() => wholeOf(letter, unmasked));
  const [kind, setKind] = useState(whole === null || whole.length > LONG ? "patch" : "body");
  const [text, setText] = useState(whole ?? "");
  const [patch, setPatch] = useState('[\n  {"op": "replace", "path": "/field", "value": 1}\n]');
  const [reason, setReason] = useState("");
  const [diff, setDiff] = useState(/** @type {string[] | null} */ (null));
  const [why, setWhy] = useState("");
  const wanted = () => ({ version, reason, ...(kind === "body" ? { body: text } : { patch: JSON.parse(patch) }) });
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
    const kept = await post(`letters/${part(letter.id)}/edit`, wanted());
    toast(`Version ${kept.version} is kept, and is what will be sent`);
    changed("letters");
    close();
  });
  const typed = (set) => (event) => (set(event.target.value), setDiff(null));
  return html`<${Dialog} wide title="Edit the message" close=${close}>
    ${letter.version !== version && html`<p class="caution" role="alert">Somebody else has edited it since you began: version ${letter.version} is there now. Close this, and look at it first; copy what you want to keep.</p>`}
    ${whole === null && html`<p class="caution">The body is not shown as it is: something of it is masked, cut, or no text. A JSON Patch changes the real body and leaves the rest as it is; a whole body takes the place of all of it.</p>`}
    ${whole !== null && whole.length > LONG && html`<p class="caution">The body has ${bytes(letter.body_size)}: as a whole it keeps a browser busy for a while. A JSON Patch changes what it names and leaves the rest as it is.</p>`}
    <div class="tabs" role="group" aria-label="What is edited">${KINDS.map(([name, words]) => html`<button type="button" aria-pressed=${kind === name} onClick=${() => (setKind(name), setDiff(null))}>${words}</button>`)}</div>
    <${Field} label=${kind === "body" ? "Body" : "Patch (RFC 6902)"}><textarea class="code" rows="14" spellcheck=${false} autofocus value=${kind === "body" ? text : patch} onInput=${typed(kind === "body" ? setText : setPatch)} /><//>
    <${Field} label="Why" about="kept with the version"><input type="text" maxlength="1000" value=${reason} onInput=${typed(setReason)} /><//>
    ${why && html`<p class="caution" role="alert">${why}</p>`}
    ${diff && html`<h3>What it changes</h3><${Diff} lines=${diff} />`}
    <div class="dialog-acts"><button type="button" class="button" onClick=${close}>Cancel</button>
      ${diff ? html`<${Button} act=${keep} kind="primary">Keep this version<//>` : html`<${Button} act=${preview} kind="primary">Show the diff<//>`}</div><//>`;
}

/** The secrets of one letter, for a reason that is kept. */
export const UnmaskDialog = ({ letter, show, close }) => html`<${FormDialog} title="Unmask this letter" verb="Unmask" close=${close}
  act=${async ({ reason }) => show(await post(`letters/${part(letter.id)}/unmask`, { reason }))}>
  <p>Its body and headers are shown to you as they are. That you looked, and why, is written into the audit trail first.</p>
  <${Field} label="Why"><input type="text" name="reason" required maxlength="1000" autocomplete="off" /><//><//>`;
