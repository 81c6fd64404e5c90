// What was said of a group: fixed in a version, muted for a while; and the buttons to say so.

import { post } from "./api.js";
import { el, find, keyed, moment, openDialog, toast } from "./dom.js";

const DAY = 86_400;
const SPANS = [["1 hour", 3600], ["1 day", DAY], ["1 week", 7 * DAY]];

/** Versions that it was seen in, and where it stands. */
export function standing(group) {
  const said = [versions(group), muted(group), fixed(group)].filter(Boolean);
  return said.map((part) => el("span.message", {}, part));
}

function versions({ first_version: first, last_version: last }) {
  if (!first && !last) return null;
  return first === last ? `in ${first}` : `first in ${first || "?"}, last in ${last || "?"}`;
}

const muted = ({ mute }) => mute && [chip("muted"), ` until `, moment(mute.until), ` by ${mute.by}: ${mute.why}`];

function fixed({ fix, waits_for: waits }) {
  if (!fix) return null;
  if (fix.regressed_at) return [chip("regressed"), ` fixed in ${fix.version}, died on ${fix.regressed_in}`];
  if (!fix.deployed_at) return [chip("fixed"), ` in ${fix.version}, not deployed yet: ${waits.join("; ")}`];
  return [chip("deployed"), ` fixed in ${fix.version}, which runs everywhere${fix.replay ? `: replay ${fix.replay}` : ": it can be replayed"}`];
}

const chip = (name) => el("span.chip", { "data-standing": name }, name);

/** The buttons of a group: each opens the dialog where it is said. */
export function actions(group, changed) {
  const name = group.error_type;
  const button = (key, text, label, act) => keyed(`${key}-${group.id}`, el(
    "button", { type: "button", "aria-label": `${label} ${name}`, onclick: act }, text,
  ));
  const undo = group.fix && button("unfix", "Not fixed", "Not fixed:", () => act(group, "unfix", {}, "it is not fixed after all", changed));
  return [
    undo || button("fix", "Fixed in…", "Fixed in a version:", () => ask(group, "fix", changed)),
    " ",
    group.mute
      ? button("unmute", "Unmute", "Unmute", () => act(group, "unmute", {}, "it is heard of again", changed))
      : button("mute", "Mute…", "Mute", () => ask(group, "mute", changed)),
  ];
}

async function act(group, verb, body, said, changed) {
  try {
    const answer = await post(`groups/${encodeURIComponent(group.id)}/${verb}`, body);
    toast([said, ...(answer.notes ?? [])].join(". "));
  } catch (error) {
    toast(error.message, "error");
  }
  changed();
}

const FORMS = {
  fix: {
    title: "Fixed in which version?",
    fields: () => [
      field("Version", el("input", { name: "version", required: true, maxLength: 100, autocomplete: "off", spellcheck: false })),
      field("Replay its letters by itself once every worker runs it", el("input", { name: "auto", type: "checkbox" })),
      field("Why", el("input", { name: "why", maxLength: 2000, autocomplete: "off" })),
    ],
    body: (form) => ({ version: form.version.value.trim(), auto: form.auto.checked, why: form.why.value }),
    said: "noted: its letters can go back once every worker runs it",
  },
  mute: {
    title: "Mute it for how long?",
    fields: () => [
      field("For", el("select", { name: "seconds" }, SPANS.map(([text, value]) => el("option", { value }, text)))),
      field("Why", el("input", { name: "why", required: true, maxLength: 2000, autocomplete: "off" })),
    ],
    body: (form) => ({ seconds: Number(form.seconds.value), why: form.why.value }),
    said: "muted: no alert of it is sent, and it comes back by itself",
  },
};

const field = (name, input) => el("label.field", {}, name, " ", input);

function ask(group, verb, changed) {
  const { title, fields, body, said } = FORMS[verb];
  const dialog = find("said");
  const submit = (event) => {
    event.preventDefault();
    dialog.close();
    act(group, verb, body(event.target), said, changed);
  };
  dialog.replaceChildren(el(
    "form", { onsubmit: submit },
    el("h2", { id: "said-title" }, title), el("p.message", {}, `${group.error_type}: ${group.message}`), fields(),
    el("div.buttons", {},
      el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), el("button.primary", {}, verb === "fix" ? "It is fixed" : "Mute it")),
  ));
  openDialog(dialog);
}
