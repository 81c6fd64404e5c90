// Dialogs: the browser's own, which keep the focus inside; it goes back to where it was.

import { inWords } from "./api.js";
import { Icon } from "./icons.js";
import { html, signal, useId, useLayoutEffect, useRef, useState } from "./lib.js";

/** @typedef {any} Children */

/**
 * @param {{title: Children, close: () => void, children?: Children, wide?: boolean, must?: boolean, fleeting?: boolean, id?: string}} props
 *   must: it cannot be closed without an answer; fleeting: what was typed into it is no loss. Else a click beside it closes
 *   it only if nothing was typed, and Escape or × only at the second time
 */
export function Dialog({ title, close, children, wide = false, must = false, fleeting = false, id }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const typed = useRef(false);
  const [warned, setWarned] = useState(false);
  const name = useId();
  useLayoutEffect(() => { // before the next key: what is typed at once is typed into it
    const before = document.activeElement;
    const shown = /** @type {HTMLDialogElement} */ (dialog.current);
    if (!shown.open) shown.showModal();
    return () => {
      shown.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const leave = () => (must ? undefined : typed.current && !fleeting && !warned ? setWarned(true) : close());
  const cancel = (/** @type {Event} */ event) => {
    event.preventDefault(); // whether it closes is for who opened it
    leave();
  };
  const closed = () => dialog.current && (dialog.current.showModal(), leave()); // a browser lets a page refuse one escape, and closes at the next
  const input = () => ((typed.current = true), setWarned(false));
  const outside = (/** @type {Event} */ event) => event.target === dialog.current && !must && (fleeting || !typed.current) && close();
  return html`<dialog ref=${dialog} id=${id} class=${wide ? "dialog wide" : "dialog"} aria-labelledby=${name}
    onCancel=${cancel} onClose=${closed} onPointerDown=${outside} onInput=${input}>
    <div class="dialog-inner">
      <header class="dialog-head"><h2 id=${name}>${title}</h2>
        ${!must && html`<button type="button" class="button quiet" aria-label="Close" onClick=${leave}><${Icon} name="close" /></button>`}</header>
      ${warned && html`<p class="caution" role="alert" ref=${intoSight}>What you typed is kept nowhere else. Escape or × again throws it away.</p>`}
      ${children}
    </div></dialog>`;
}

const intoSight = (/** @type {HTMLElement | null} */ shown) => shown?.scrollIntoView({ block: "nearest" });

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
