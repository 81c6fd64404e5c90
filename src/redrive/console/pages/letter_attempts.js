// The attempts of a letter on a timeline, each with its error and stack: your own frames first, those of libraries folded.

import { html, useMemo } from "../lib.js";
import { Chip, Panel, Time, plural, span } from "../ui.js";
import { Plain, Text } from "../tree.js";

/** @typedef {{head: string, lines: string[], own: boolean}} Frame */

const FRAME = /^\s*File "(.*)", line (\d+), in (.*)$/;
const LIBRARY = /[\\/](?:site-packages|dist-packages)[\\/]|[\\/]lib[\\/]python3|^<frozen|[\\/]src[\\/]redrive[\\/]/;

/** A traceback in parts: frames, and the lines between them that say what was raised. */
export function framesOf(/** @type {string} */ stack) {
  /** @type {(Frame | string)[]} */
  const parts = [];
  for (const line of stack.split("\n")) {
    const found = FRAME.exec(line);
    const last = parts.at(-1);
    if (found) parts.push({ head: line.trim(), lines: [], own: !LIBRARY.test(/** @type {string} */ (found[1])) });
    else if (last && typeof last !== "string" && /^\s{4,}\S/.test(line)) last.lines.push(line);
    else if (line.trim()) parts.push(line);
  }
  return parts;
}

/** The innermost of your own frames: where to look first. */
const whereOf = (/** @type {(Frame | string)[]} */ parts) => /** @type {Frame | undefined} */ (parts.findLast((one) => typeof one !== "string" && one.own));

export function Stack({ text }) {
  const parts = useMemo(() => framesOf(text), [text]);
  const where = whereOf(parts);
  if (!parts.some((one) => typeof one !== "string")) return html`<${Plain} text=${text} />`;
  return html`<div class="trace">
    ${where && html`<p class="where"><${Text} value=${where.head.replace(/^File "(.*)", line (\d+), in (.*)$/, "$3 · $1:$2")} /></p>`}
    ${runs(parts, Boolean(where)).map((run, index) => run.folded
      ? html`<details class="fold" key=${index}><summary class="faint">${plural(run.parts.length, "frame")} of libraries</summary>${run.parts.map(frame)}</details>`
      : run.parts.map(frame))}</div>`;
}

/** Frames of libraries that follow each other are folded into one line, unless there are no others. */
function runs(/** @type {(Frame | string)[]} */ parts, /** @type {boolean} */ fold) {
  /** @type {{folded: boolean, parts: (Frame | string)[]}[]} */
  const made = [];
  for (const one of parts) {
    const folded = fold && typeof one !== "string" && !one.own;
    const last = made.at(-1);
    if (last && last.folded === folded) last.parts.push(one);
    else made.push({ folded, parts: [one] });
  }
  return made;
}

const frame = (/** @type {Frame | string} */ one) => (typeof one === "string"
  ? html`<p class="raised"><${Text} value=${one} /></p>`
  : html`<div class="frame-of" data-own=${one.own}><code><${Text} value=${one.head} /></code>${one.lines.length > 0 && html`<pre><${Text} value=${one.lines.join("\n")} /></pre>`}</div>`);

/** Every attempt in the order of time, with what passed between them. */
export function Timeline({ letter }) {
  const attempts = letter.failures;
  return html`<${Panel} id="attempts" title="Attempts" about=${plural(attempts.length, "failure")}>
    <ol class="timeline">
      <li class="point" data-tone="blue"><span class="faint">Sent first <${Time} at=${letter.enqueued_at} full /></span></li>
      ${attempts.map((failure, index) => html`<li class="point" data-tone="red" key=${index}>
        <p class="gap faint">${gap(index ? attempts[index - 1].at : letter.enqueued_at, failure.at)}</p>
        <details class="fold" open=${index === attempts.length - 1}>
          <summary><strong>Attempt ${failure.attempt}</strong> <${Time} at=${failure.at} full />
            <span class="faint"><${Text} value=${[failure.stage, failure.worker, failure.version && `version ${failure.version}`, failure.edition !== null && `edited ${failure.edition}`].filter(Boolean).join(" · ")} /></span></summary>
          <p class="message-line"><strong><${Text} value=${failure.type} /></strong> <${Text} value=${failure.message} /> <${Chip}>${failure.category}<//>${failure.code && html`<${Chip}><${Text} value=${failure.code} /><//>`}</p>
          ${failure.stack && html`<${Stack} text=${failure.stack} />`}
        </details></li>`)}
      <li class="point" data-state=${letter.state}><span class="faint">${letter.state} since <${Time} at=${letter.updated_at} full /></span></li>
    </ol><//>`;
}

function gap(/** @type {string} */ from, /** @type {string} */ to) {
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  return seconds >= 0.0005 ? `after ${seconds < 1 ? `${Math.round(1000 * seconds)} ms` : span(seconds)}` : "at once";
}
