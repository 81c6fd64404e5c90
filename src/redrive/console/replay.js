// A replay is shown before it is done: how many letters, from where, and what is left out.

import { get, post } from "./api.js";
import { el, find, moment, number, openDialog, toast } from "./dom.js";

const dialog = () => find("replay");

export async function planReplay(group, changed) {
  // up to now, by the server's clock: what is buried after this plan was shown is not part of what is agreed to
  const query = { groups: [group.id], before: (await get("stats")).at };
  const plan = await post("replays/plan", { query });
  dialog().replaceChildren(form(group, plan, query, changed));
  openDialog(dialog());
}

function form(group, plan, query, changed) {
  const rate = el("input", { type: "number", min: "0.1", step: "any", placeholder: "as fast as it goes", id: "rate" });
  const reason = el("input", { type: "text", maxLength: 1000, placeholder: "such as: the bug is mended", id: "reason" });
  const guarded = el("input", { type: "checkbox", checked: plan.total > 100, id: "guarded" });
  const send = el("button.primary", { id: "confirm" }, `Send ${letters(plan.total)} back`);
  // it has the focus first: Enter held down on "Replay…" must not agree to the plan as well
  const cancel = el("button", { type: "button", autofocus: true, onclick: () => dialog().close() }, "Cancel");
  const made = el("form", {},
    el("h2", { id: "replay-title" }, "Replay this group?"),
    el("p.headline", {}, el("strong", {}, group.error_type), ` ${group.message}`),
    el("ul.plan", {},
      Object.entries(plan.sources).map(([name, count]) => el("li", {}, el("strong", {}, number(count)), ` back to ${name}`)),
      Object.entries(plan.not_configured).map(([name, count]) => el("li.caution", {},
        `${number(count)} will be skipped: the transport ${name} is not configured at this server`)),
      plan.left_out > 0 && el("li.faint", {}, `${number(plan.left_out)} left out: resolved, archived, sent or on their way`)),
    caution(group) && el("p.caution", {}, caution(group)),
    plan.warnings.map((text) => el("p.warning", {}, text)),
    el("label.field", {}, "Letters a second", rate),
    el("label.field", {}, guarded, " A few first, then more; pause when more than 10 % of a step die again"),
    el("label.field", {}, "Reason, for the audit trail", reason),
    el("div.buttons", {}, send, cancel));
  send.disabled = plan.total === 0;
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    send.disabled = true;
    start({ query, rate: rate.valueAsNumber || null, reason: reason.value, guarded: guarded.checked }, changed);
  });
  return made;
}

const FOR_GOOD = ["permanent", "validation", "permission"];
const RECENT = 5 * 60 * 1000;

/** Why it may be too early: what is sent back before its cause is mended fails again. */
function caution(group) {
  if (FOR_GOOD.includes(group.category))
    return `Nothing here passes by itself (${group.category}): sent back as they are, they succeed only once their cause is mended.`;
  if (Date.now() - Date.parse(group.last_at) < RECENT) return ["The last of them failed ", moment(group.last_at), ": is the cause mended?"];
  return null;
}

async function start(order, changed) {
  try {
    const replay = await post("replays", order);
    dialog().replaceChildren(el("div", {}, el("h2", { id: "replay-title" }, "Replaying"), el("div", { id: "progress" })));
    await watch(replay.id);
  } catch (error) {
    toast(error.message, "error");
    dialog().close();
  }
  changed();
}

/** Until every letter was sent and its outcome is known, or the dialog is closed. */
async function watch(id) {
  while (dialog().open) {
    const { replay, entries } = await get(`replays/${encodeURIComponent(id)}`);
    const open = Math.max((entries.selected ?? 0) + (entries.sent ?? 0) - replay.untold, 0);
    find("progress").replaceChildren(progress(id, replay, entries, open));
    if ((!open && replay.state !== "paused") || replay.state === "cancelled") return;
    await new Promise((done) => setTimeout(done, 500));
  }
}

function progress(id, replay, entries, open) {
  const parts = ["selected", "sent", "resolved", "failed", "skipped"].filter((name) => entries[name]);
  const act = (verb, body) => () => post(`replays/${encodeURIComponent(id)}/${verb}`, body).catch((error) => toast(error.message, "error"));
  const button = (text, verb, body) => el("button", { type: "button", onclick: act(verb, body) }, text);
  const faster = () => {
    const rate = Number(prompt("Letters a second; empty: as fast as it goes", replay.rate ?? ""));
    act("pace", rate > 0 ? { rate } : { unlimited: true })();
  };
  return el("div", {},
    el("p", { id: "replay-state" }, stands(replay)),
    el("progress", { max: Math.max(replay.total, 1), value: replay.total - open, "aria-label": "Outcomes known" }),
    el("ul.plan", {}, parts.map((name) => el("li", {}, el("strong", {}, number(entries[name])), ` ${name}`))),
    replay.untold > 0 && el("p.faint", {}, `${letters(replay.untold)} went to consumers that are not Redrive's: sent is all that will be known of them, unless one dies again and is collected.`),
    replay.paused && el("p.caution", {}, `Paused: ${replay.paused.why || `by ${replay.paused.actor}`}`),
    replay.paused && el("ul.plan", {}, replay.paused.compared.map((died) => el("li", {}, compared(died)))),
    replay.waits.map((wait) => el("p.caution", {}, waitsFor(wait))),
    el("div.buttons", {},
      replay.state === "running" && button("Pause", "pause", {}),
      replay.state === "paused" && button("Go on", "resume"),
      ["running", "paused"].includes(replay.state) && el("button", { type: "button", onclick: faster }, "Pace…"),
      ["running", "paused"].includes(replay.state) && button("Stop sending", "cancel"),
      el("button.primary", { type: "button", onclick: () => dialog().close() }, open ? "Close, it goes on" : "Close")));
}

/** Where a replay is, and what it waits for. */
function stands(replay) {
  const step = replay.guard ? `, step ${replay.step + 1}` : "";
  return `${replay.state}${step}${replay.awaits ? `: waits for ${replay.awaits}` : ""}`;
}

/** What letters died of now, and before. */
function compared({ letters: count, before, before_group, now, now_group }) {
  const same = before_group === now_group;
  return `${letters(count)} died ${same ? "as before" : "elsewhere"}: ${now}${same ? "" : `; before: ${before || "not known"}`}`;
}

/** What the replay is held up by; the rest of it goes on. */
const waitsFor = ({ transport, source, why, until }) =>
  [`Waits for ${transport}/${source}: ${why}. Given up `, moment(until), " if it takes nothing until then."];

const letters = (count) => (count === 1 ? "1 letter" : `${number(count)} letters`);
