// What is wrong now: open incidents, what they are about, and who works on them.

import { post } from "./api.js";
import { el, keyed, moment, number, toast } from "./dom.js";
import { state } from "./views.js";

/** Rows of a table; the panel is there only while there is an incident. */
export function incidents(found, { mayAct, choose, changed }) {
  return found.map((one) => el(
    "tr", {},
    el("td", {}, severity(one.alert.severity)),
    el("td.error", {}, about(one, choose), el("span.message", {}, by(one))),
    el("td.number", { "data-label": "count" }, number(one.count)),
    el("td", {}, state(one.state)),
    el("td.faint", { "data-label": "opened" }, moment(one.opened_at)),
    el("td.faint", { "data-label": "seen" }, moment(one.seen_at)),
    el("td.actions", {}, mayAct && actions(one, changed)),
  ));
}

const severity = (name) => el("span.chip", { "data-severity": name }, name);

/** An incident of a group leads to its letters. */
function about(one, choose) {
  const { summary, group } = one.alert;
  if (!group) return el("span.type", {}, summary);
  const chosen = () => choose({ id: group, error_type: one.alert.source ?? group });
  return keyed(`incident-${one.id}`, el("button.link", { type: "button", title: "Show its letters", onclick: chosen }, summary));
}

function by(one) {
  const note = one.notes.at(-1);
  const known = one.acknowledged_by && `acknowledged by ${one.acknowledged_by}`;
  return [one.alert.name, known, note && `${note.actor}: ${note.text}`].filter(Boolean).join(" · ");
}

function actions(one, changed) {
  const act = (verb, said) => async (event) => {
    event.target.disabled = true;
    try {
      await post(`incidents/${encodeURIComponent(one.id)}/${verb}`);
      toast(said);
    } catch (error) {
      toast(error.message, "error");
    }
    changed();
  };
  const button = (name, verb, said) => keyed(`${verb}-${one.id}`, el(
    "button", { type: "button", "aria-label": `${name}: ${one.alert.summary}`, onclick: act(verb, said) }, name,
  ));
  return [
    one.state === "open" && button("Acknowledge", "acknowledge", "acknowledged: it is not told again"),
    " ",
    button("Resolve", "resolve", "resolved"),
  ];
}
