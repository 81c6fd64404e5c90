// What of the queues is paused and by whom, and the workers that receive from them.

import { post } from "./api.js";
import { el, keyed, moment, number, toast } from "./dom.js";

/** Who has paused it, since when and why, and a way to let it go on. */
export function paused(source, { mayAct, changed }) {
  const { by, at, until, why, storm } = source.paused;
  return el(
    "div.paused", {},
    el("span.state", { "data-state": storm ? "storm" : "paused" }, storm ? "storm" : "paused"),
    storm ? " paused by " : " by ", `${by}, `, moment(at),
    until && [", goes on ", moment(until)],
    why && el("span.message", {}, why),
    mayAct && keyed(`resume-${source.source}`, el(
      "button", { type: "button", "aria-label": `Resume ${source.source}`, onclick: resume(source, changed) }, "Resume",
    )),
  );
}

/** The statistics call a source of another transport `transport/source`. */
const resume = (source, changed) => async (event) => {
  event.target.disabled = true;
  const name = source.paused.source;
  const transport = source.source === name ? "default" : source.source.slice(0, -name.length - 1);
  try {
    await post("pauses/resume", { source: name, transport });
    toast(`${source.source} goes on`);
  } catch (error) {
    toast(error.message, "error");
  }
  changed();
};

export function workers(found) {
  return found.map((worker) => el(
    "tr", {},
    el("td", {}, el("span.state", { "data-state": worker.state }, worker.state)),
    el("td", {}, worker.worker),
    el("td.source", {}, worker.sources.map(worked).join(", ")),
    el("td.number", { "data-label": "in hand" }, number(worker.in_hand)),
    el("td.faint", { "data-label": "host" }, `${worker.host} · ${worker.pid}`),
    el("td.faint", { "data-label": "version" }, worker.version || el("span", {}, "–")),
    el("td.faint", { "data-label": "started" }, moment(worker.started_at)),
    el("td.faint", { "data-label": "last heard of" }, heard(worker)),
  ));
}

/** A source, and whether somebody or the storm guard has paused it. */
const worked = (one) => (one.paused ? `${one.source} (${one.storm ? "storm" : "paused"})` : one.source);

/** A worker whose clock differs from the server's says so, instead of a time that would be wrong. */
function heard(worker) {
  if (worker.clock_apart === null) return moment(worker.beat_at);
  const seconds = Math.round(Math.abs(worker.clock_apart));
  return `its clock is ${seconds}s ${worker.clock_apart > 0 ? "ahead" : "behind"}`;
}
