// Dialogs: the browser's own, which keep the focus inside; it goes back to where it was.

import { inWords } from "./api.js";
import { Icon } from "./icons.js";
import { html, signal, useEffect, useId, useRef, useState } from "./lib.js";

/** @typedef {any} Children */

/**
 * @param {{title: Children, close: () => void, children?: Children, wide?: boolean, must?: boolean, id?: string}} props
 *   must: it cannot be closed without an answer
 */
export function Dialog({ title, close, children, wide = false, must = false, id }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const name = useId();
  useEffect(() => {
    const before = document.activeElement;
    const shown = /** @type {HTMLDialogElement} */ (dialog.current);
    if (!shown.open) shown.showModal();
    return () => {
      shown.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault(); // whether it closes is for who opened it
    if (!must) close();
  };
  const outside = (/** @type {Event} */ event) => event.target === dialog.current && !must && close();
  return html`<dialog ref=${dialog} id=${id} class=${wide ? "dialog wide" : "dialog"} aria-labelledby=${name} onCancel=${cancel} onPointerDown=${outside}>
    <div class="dialog-inner">
      <header class="dialog-head"><h2 id=${name}>${title}</h2>
        ${!must && html`<button type="button" class="button quiet" aria-label="Close" onClick=${close}><${Icon} name="close" /></button>`}</header>
      ${children}
    </div></dialog>`;
}

/**
 * A form in a dialog: its act may fail, which is said in it, and what was typed stays.
 * @param {{title: Children, verb: string, act: (form: Record<string, any>) => unknown, close: () => void, children?: Children, danger?: boolean, wide?: boolean}} props
 */
export function FormDialog({ title, verb, act, close, children, danger = false, wide = false }) {
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    setBusy(true);
    setWhy("");
    try {
      await act(valuesOf(/** @type {HTMLFormElement} */ (event.target)));
      close();
    } catch (error) {
      setWhy(inWords(error));
    }
    setBusy(false);
  };
  return html`<${Dialog} title=${title} close=${close} wide=${wide}><form onSubmit=${submit}>
    ${children}
    ${why && html`<p class="caution" role="alert">${why}</p>`}
    <div class="dialog-acts">
      <button type="button" class="button" autofocus onClick=${close}>Cancel</button>
      <button class=${`button ${danger ? "danger" : "primary"}`} disabled=${busy} aria-busy=${busy}>${verb}</button>
    </div></form><//>`;
}

/** What stands in a form, by name; a checkbox is true or false. */
export function valuesOf(/** @type {HTMLFormElement} */ form) {
  /** @type {Record<string, any>} */
  const values = Object.fromEntries(new FormData(form));
  for (const box of form.querySelectorAll("input[type=checkbox]")) if (box instanceof HTMLInputElement) values[box.name] = box.checked;
  return values;
}

const asked = signal(/** @type {any} */ (null));

/**
 * Asks before something is done; its act fails in sight.
 * @param {{title: string, body?: Children, verb: string, act: (form: Record<string, any>) => unknown, danger?: boolean}} question
 */
export function confirm(question) {
  asked.value = question;
}

/** Where `confirm` is shown; once, in the layout. */
export const Confirms = () =>
  asked.value && html`<${FormDialog} ...${asked.value} close=${() => (asked.value = null)}>${asked.value.body}<//>`;
