// One letter, whole: every attempt with its stack, headers, body, and what can be done with it.

import { get, post } from "./api.js";
import { due, el, find, moment, number, openDialog, toast } from "./dom.js";
import { category, state } from "./views.js";

export async function openLetter(id, mayAct, changed) {
  const dialog = find("letter");
  const letter = await get(`letters/${encodeURIComponent(id)}`);
  dialog.replaceChildren(...content(letter, mayAct, dialog, changed));
  openDialog(dialog);
  dialog.scrollTop = 0;
}

function content(letter, mayAct, dialog, changed) {
  return [
    el("header.drawer-head", {},
      el("div", {}, el("h2.code", { id: "letter-title" }, letter.id), state(letter.state), category(letter.category)),
      el("button.close", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "×")),
    el("p.headline", {}, el("strong", {}, letter.error_type), ` ${letter.error_message}`),
    mayAct && actions(letter, dialog, changed),
    facts(letter),
    section("Body", el("span.faint", {}, `${letter.body_size.toLocaleString("en")} bytes`), el("pre", { tabIndex: 0 }, pretty(letter.body))),
    section("Headers", null, letter.headers.length ? headers(letter.headers) : el("p.faint", {}, "none")),
    letter.versions.length > 0 && section("Versions", el("span.faint", {}, `${letter.version} is sent`), [...letter.versions].reverse().map(version)),
    section("Attempts", el("span.faint", {}, `${letter.failures.length}`), [...letter.failures].reverse().map(attempt)),
  ].filter(Boolean);
}

function actions(letter, dialog, changed) {
  const act = (said, work) => async (event) => {
    event.target.disabled = true;
    try {
      await work();
      toast(said);
      dialog.close();
    } catch (error) {
      toast(error.message, "error");
      event.target.disabled = false;
    }
    changed();
  };
  const sendable = ["pending", "exhausted", "sent"].includes(letter.state);
  const retry = act(`${letter.id} was sent back to ${letter.source}`, () => post("letters/retry", { ids: [letter.id] }));
  const archive = act(`${letter.id} is archived`, () => post("letters/archive", { ids: [letter.id] }));
  const unarchive = act(`${letter.id} is back`, () => post("letters/unarchive", { ids: [letter.id] }));
  const undo = act(`the last edit of ${letter.id} is undone`, () => post(`letters/${letter.id}/undo`, { version: letter.version }));
  const editable = ["pending", "exhausted", "sent", "archived"].includes(letter.state);
  return el("div.buttons", {},
    el("button.primary", { type: "button", id: "retry", disabled: !sendable, onclick: retry }, "Retry now"),
    letter.state === "archived"
      ? el("button", { type: "button", id: "unarchive", onclick: unarchive }, "Unarchive")
      : el("button", { type: "button", id: "archive", onclick: archive }, "Archive"),
    letter.version > 0 && el("button", { type: "button", id: "undo", disabled: !editable, onclick: undo }, "Undo edit"));
}

function facts(letter) {
  const rows = [
    ["Source", letter.transport === "default" ? letter.source : `${letter.source} on ${letter.transport}`],
    ["Message", letter.message_id],
    ["Why it was buried", letter.reason],
    ["Tenant", letter.tenant],
    ["Key", letter.key],
    ["Correlation", letter.correlation_id],
    ["Code", letter.code],
    ["Group", letter.group],
    ["Sent", moment(letter.enqueued_at)],
    ["Buried", moment(letter.created_at)],
    ["Next retry", letter.state === "pending" && letter.next_retry_at ? due(letter.next_retry_at) : null],
    ["Automatic retries", letter.max_retries ? `${letter.retries} of ${letter.max_retries}` : null],
    ["Sent back", letter.resends ? `${letter.resends} times` : null],
    ["Replay", letter.replay],
    ["Waits for", letter.depends_on.join(", ") || null],
    ["Behind letter", letter.head],
    ["Behind it", letter.behind ? `${number(letter.behind)} letters of its key` : null],
  ];
  return el("dl.facts", {}, rows.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

const section = (title, aside, ...children) =>
  el("section.part", {}, el("h3", {}, title, " ", aside), children.flat());

const headers = (pairs) =>
  el("dl.facts.code", {}, pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

function attempt(failure, index) {
  return el("details.attempt", { open: index === 0 },
    el("summary", {}, el("span.strong", {}, `Attempt ${failure.attempt}`), " ", moment(failure.at), " ",
      el("span.faint", {}, [failure.stage, failure.worker, failure.code].filter(Boolean).join(" · "))),
    el("p.message", {}, el("strong", {}, failure.type), ` ${failure.message}`),
    failure.stack && el("pre", { tabIndex: 0 }, failure.stack));
}

function version({ number, size, edit, diff }) {
  const by = edit && [edit.by, edit.why, edit.repair && `repair ${edit.repair}`].filter(Boolean).join(" · ");
  return el("details.attempt", { open: false },
    el("summary", {}, el("span.strong", {}, `Version ${number}`), " ", edit && moment(edit.at), " ",
      el("span.faint", {}, by || "as it came", ` · ${size.toLocaleString("en")} bytes`)),
    diff.length > 0 && el("pre", { tabIndex: 0 }, diff.join("\n")));
}

const TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
const DEEPEST = 64;

/** JSON over several lines, each token as it was written: a parser would change numbers and drop repeated keys. */
function pretty(body) {
  try {
    JSON.parse(body);
  } catch {
    return body;
  }
  let text = "", level = 0, before = ":";
  for (const token of body.match(TOKENS)) {
    if ("]}".includes(token)) level -= 1;
    if (level > DEEPEST) return body;
    text += gap(before, token, level) + token;
    if ("[{".includes(token)) level += 1;
    before = token;
  }
  return text;
}

function gap(before, token, level) {
  if (",:".includes(token) || ("[{".includes(before) && "]}".includes(token))) return "";
  if (before === ":") return level ? " " : "";
  return `\n${"  ".repeat(level)}`;
}
