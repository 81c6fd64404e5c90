// What the page shows, as functions from the API's answers to elements.

import { due, el, keyed, moment, number } from "./dom.js";
import { actions, standing } from "./groups.js";
import { paused } from "./queues.js";

export const STATES = ["pending", "retrying", "replaying", "exhausted", "sent", "resolved", "archived"];
const MEANING = {
  pending: "wait for a retry, or for you",
  retrying: "a retry has them",
  replaying: "a replay has them",
  exhausted: "no automatic retry is left",
  sent: "went back to others' consumers",
  resolved: "succeeded after all",
  archived: "done with",
};

export const state = (name) => el("span.state", { "data-state": name }, name);
export const category = (name) => el("span.chip", { "data-category": name }, name);

export function tiles(stats, chosen, choose) {
  return STATES.map((name) =>
    keyed(`tile-${name}`, el(
      "button.tile",
      { type: "button", "data-state": name, "aria-pressed": String(chosen === name), onclick: () => choose(name) },
      el("span.tile-name", {}, name),
      el("span.tile-count", {}, stats.total === null ? "–" : number(stats.states[name] ?? 0)),
      el("span.tile-about", {}, MEANING[name]),
    )),
  );
}

/** The backends that did not answer, and why. */
export const away = (found) => found.map((one) => el("li", {}, el("strong", {}, one.backend), `: ${one.why}`));

const replayable = (group) => (group.states.pending ?? 0) + (group.states.exhausted ?? 0);

export function groups(found, { mayAct, chosen, choose, replay, changed }) {
  if (!found.length) return [nothing(7, "No open letters. Nothing is dead.")];
  return found.map((group) => el(
    "tr", { "data-chosen": chosen === group.id },
    el("td.number.strong", {}, number(group.count), bar(group.states)),
    el("td.error", {}, keyed(`group-${group.id}`, el(
      "button.link", { type: "button", title: "Show its letters", onclick: () => choose(group) }, group.error_type,
    )), el("span.message", {}, group.message), standing(group)),
    el("td", {}, category(group.category)),
    el("td.source", {}, group.sources.join(", ")),
    el("td.faint", { "data-label": "first" }, moment(group.first_at)),
    el("td.faint", { "data-label": "last" }, moment(group.last_at)),
    el("td.actions", {}, mayAct && replayable(group) > 0 && keyed(`replay-${group.id}`, el(
      "button", { type: "button", "aria-label": `Replay the group ${group.error_type}`, onclick: () => replay(group) }, "Replay…",
    )), " ", mayAct && actions(group, changed)),
  ));
}

/** How its letters are spread over the states. */
function bar(states) {
  const names = STATES.filter((name) => states[name]);
  const title = names.map((name) => `${name} ${number(states[name])}`).join(", ");
  return el("span.bar", { title, role: "img", "aria-label": title }, names.map((name) => {
    const part = el("span", { "data-state": name });
    part.style.flexGrow = states[name];
    return part;
  }));
}

export function letters(found, open) {
  if (!found.length) return [nothing(7, "No letter matches.")];
  return found.map((letter) => el(
    "tr", {},
    el("td", {}, state(letter.state)),
    el("td", {}, keyed(`letter-${letter.id}`, el(
      "button.link.code", { type: "button", title: "Show it", onclick: () => open(letter.id) }, letter.id,
    ))),
    el("td.source", {}, letter.source),
    el("td.error", {}, el("span.type", {}, letter.error_type), el("span.message", {}, letter.error_message)),
    el("td.number", { "data-label": "attempts" }, letter.attempts),
    el("td.faint", {}, moment(letter.created_at)),
    el("td.faint", { "data-label": "next retry" }, letter.state === "pending" ? due(letter.next_retry_at) : el("span", {}, "–")),
  ));
}

export function fairness(found) {
  return found.flatMap(({ source, tenants }) => tenants.map((one) => el(
    "tr", {},
    el("td", {}, one.tenant || el("span.faint", {}, "(none)")),
    el("td", {}, source),
    el("td.number", { "data-label": "waiting" }, number(one.waiting)),
    el("td.number", { "data-label": "rounds waited" }, number(one.rounds_without_processing)),
    el("td.number", { "data-label": "priority" }, number(one.current_priority)),
    el("td.number", { "data-label": "processed" }, number(one.total_processed)),
    el("td.number", { "data-label": "in a row" }, number(one.consecutive_batch_count)),
    el("td.faint", { "data-label": "last served" }, moment(one.last_processed_at)),
  )));
}

const nothing = (columns, text) => el("tr", {}, el("td.empty", { colSpan: columns }, text));

const EMPTY = { ready: 0, delayed: 0, leased: 0 };

export function queues({ sources, unanswered }, acting) {
  const silent = unanswered.some((one) => one.backend !== "store");
  const queued = sources.map((one) => ({ ...one, queued: one.queued ?? EMPTY, known: Boolean(one.queued) || !silent }));
  const largest = Math.max(1, ...queued.map((one) => total(one.queued)));
  if (!queued.length) return [el("p.empty", {}, silent ? "No queue could be counted." : "No queue holds anything.")];
  return queued.map((one) => el(
    "div.queue", {},
    el("div.queue-head", {}, el("span", {}, one.source), el("span.strong", {}, one.known ? number(total(one.queued)) : "?")),
    depth(one.queued, largest),
    el("div.faint", {}, !one.known ? "not known" : `${number(one.queued.ready)} ready · ${number(one.queued.delayed)} delayed · ${number(one.queued.leased)} in work`),
    one.paused && paused(one, acting),
  ));
}

const total = (queued) => queued.ready + queued.delayed + queued.leased;

function depth(queued, largest) {
  const parts = ["ready", "delayed", "leased"].map((kind) => {
    const part = el("span", { "data-kind": kind });
    part.style.width = `${(100 * queued[kind]) / largest}%`;
    return part;
  });
  return el("div.depth", { "aria-hidden": "true" }, parts);
}
