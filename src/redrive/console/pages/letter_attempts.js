// The attempts of a letter on a timeline, each with its error and stack: your own frames first, those of libraries folded.

import { Clamped } from "../clamped.js";
import { html, useMemo, useState } from "../lib.js";
import { Chip, Panel, Time, plural, span } from "../ui.js";
import { Plain, Text } from "../tree.js";

/** @typedef {{line: number, lines: number, name: string, own: boolean}} Frame as the server tells it: lines of the stack */
/** @typedef {{head: string, lines: string[], own: boolean}} Shown */

/** A stack in parts: frames, and the lines between them that say what was raised. */
function partsOf(/** @type {string} */ stack, /** @type {Frame[]} */ frames) {
  const lines = stack.split("\n");
  /** @type {(Shown | string)[]} */
  const parts = [];
  let at = 0;
  for (const frame of frames) {
    parts.push(...lines.slice(at, frame.line).filter((line) => line.trim()));
    at = frame.line + frame.lines;
    parts.push({ head: /** @type {string} */ (lines[frame.line]).trim(), lines: lines.slice(frame.line + 1, at), own: frame.own });
  }
  return [...parts, ...lines.slice(at).filter((line) => line.trim())];
}

export function Stack(/** @type {{text: string, frames: Frame[], where: Frame | null}} */ { text, frames, where }) {
  const parts = useMemo(() => partsOf(text, frames), [text]);
  if (!frames.length) return html`<${Plain} text=${text} />`;
  return html`<div class="trace">
    ${where && html`<p class="where"><${Text} value=${where.name} /> <span class="faint"><${Text} value=${placeOf(text, where)} /></span></p>`}
    ${runs(parts, Boolean(where)).map((run, index) => run.folded
      ? html`<details class="fold" key=${index}><summary class="faint">${plural(run.parts.length, "frame")} of libraries</summary>${run.parts.map(frame)}</details>`
      : run.parts.map(frame))}</div>`;
}

/** The line of a stack that says in which file and line a frame is. */
const placeOf = (/** @type {string} */ text, /** @type {Frame} */ { line, lines }) => text.split("\n").slice(line, line + lines).find((one) => /[:\d)]\s*$|line \d/.test(one))?.trim() ?? "";

/** Frames of libraries that follow each other are folded into one line, unless there are no others. */
function runs(/** @type {(Shown | string)[]} */ parts, /** @type {boolean} */ fold) {
  /** @type {{folded: boolean, parts: (Shown | string)[]}[]} */
  const made = [];
  for (const one of parts) {
    const folded = fold && typeof one !== "string" && !one.own;
    const last = made.at(-1);
    if (last && last.folded === folded) last.parts.push(one);
    else made.push({ folded, parts: [one] });
  }
  return made;
}

const frame = (/** @type {Shown | string} */ one) => (typeof one === "string"
  ? html`<p class="raised"><${Clamped} value=${one} /></p>`
  : html`<div class="frame-of" data-own=${one.own}><code><${Clamped} value=${one.head} /></code>${one.lines.length > 0 && html`<pre><${Clamped} value=${one.lines.map((line) => line.slice(4)).join("\n")} most=${2000} /></pre>`}</div>`);

/** Every attempt in the order of time, with what passed between them. */
export function Timeline({ letter }) {
  const attempts = letter.failures;
  return html`<${Panel} id="attempts" title="Attempts" about=${plural(attempts.length, "failure")}>
    <ol class="timeline">
      <li class="point" data-tone="blue"><span class="faint">Sent first <${Time} at=${letter.enqueued_at} full /></span></li>
      ${attempts.map((failure, index) => html`<li class="point" data-tone="red" key=${index}>
        <p class="gap faint">${gap(index ? attempts[index - 1].at : letter.enqueued_at, failure.at)}</p>
        <${Attempt} failure=${failure} open=${index === attempts.length - 1} few=${attempts.length <= FEW} /></li>`)}
      <li class="point" data-state=${letter.state}><span class="faint">${letter.state} since <${Time} at=${letter.updated_at} full /></span></li>
    </ol><//>`;
}

const FEW = 20;

/** One attempt to open and close. Of many only those that are opened are made: each may have a stack of a hundred frames. */
function Attempt({ failure, open, few }) {
  const [made, setMade] = useState(open || few);
  return html`<details class="fold" open=${open} onToggle=${(event) => event.target.open && setMade(true)}>
    <summary><strong>Attempt ${failure.attempt}</strong> <${Time} at=${failure.at} full />
      <span class="faint"><${Text} value=${[failure.stage, failure.worker, failure.version && `version ${failure.version}`, failure.edition !== null && `edited ${failure.edition}`].filter(Boolean).join(" · ")} /></span></summary>
    ${made && html`<p class="message-line"><strong><${Clamped} value=${failure.type} most=${200} /></strong> <${Clamped} value=${failure.message} /> <${Chip}>${failure.category}<//>${failure.code && html`<${Chip}><${Text} value=${failure.code} /><//>`}</p>
      ${failure.stack && html`<${Stack} text=${failure.stack} frames=${failure.frames} where=${failure.where} />`}`}
  </details>`;
}

function gap(/** @type {string} */ from, /** @type {string} */ to) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  return seconds >= 0.0005 ? `after ${seconds < 1 ? `${Math.round(1000 * seconds)} ms` : span(seconds)}` : "at once";
}
