// The page: asks every two seconds, while somebody can see it.

import { Refused, dropToken, get, keepCsrf, keepToken, signInWays, signOut, takeToken } from "./api.js";
import { el, fill, find, toast } from "./dom.js";
import { incidents } from "./incidents.js";
import { openLetter } from "./letter.js";
import { workers } from "./queues.js";
import { planReplay } from "./replay.js";
import * as views from "./views.js";

const EVERY = 2000;
const OPEN = ["pending", "retrying", "replaying", "exhausted"];
const filters = find("filters");
let me = null;
let group = null; // whose letters are shown
let showsMuted = false;
let timer = null;
let asked = 0; // an answer to an older question is not shown over a newer one

const mayAct = () => me !== null && me.role !== "viewer";

/** What the page asks for, each by itself: one that fails, or takes long, keeps no other from being shown. */
const SECTIONS = [
  { about: "the numbers", ask: () => get("stats"), show: showStats },
  { about: "the groups", ask: () => get("groups", { limit: 50, states: OPEN, with_muted: showsMuted }), show: showGroups },
  { about: "the muted groups", ask: () => get("muted-groups"), show: showMuted },
  { about: "the letters", ask: () => get("letters", chosen()), show: showLetters },
  { about: "the incidents", ask: () => get("incidents", { limit: 50, states: ["open", "acknowledged"] }), show: showIncidents },
  { about: "fairness", ask: () => get("fairness"), show: showFairness },
  { about: "the workers", ask: () => get("workers"), show: showWorkers },
];

async function refresh() {
  clearTimeout(timer);
  const question = ++asked;
  try {
    me ??= await get("me");
    if (question !== asked) return;
    keepCsrf(me.csrf);
    find("who").textContent = `${me.name} · ${me.role}`;
    find("sign-out").hidden = !me.csrf;
    const answers = await Promise.all(SECTIONS.map((section) => answered(section, question)));
    if (question !== asked) return;
    tell(answers);
  } catch (error) {
    if (question !== asked) return;
    if (error instanceof Refused) return signIn(error.message);
    live("off", said(error));
  }
  timer = setTimeout(refresh, document.hidden ? EVERY * 10 : EVERY);
}

/** Asks for a section and shows it; what did not answer, with the reason. */
async function answered({ about, ask, show }, question) {
  try {
    const answer = await ask();
    if (question === asked) show(answer);
    return { is: true, away: answer.unanswered ?? [] };
  } catch (error) {
    if (error instanceof Refused) throw error;
    return { is: false, why: said(error), away: [{ backend: about, why: said(error) }] };
  }
}

/** Says which of the backends are away. Where nothing at all answers, what was shown last stays. */
function tell(answers) {
  const away = new Map(answers.flatMap((answer) => answer.away).map((one) => [one.backend, one]));
  fill(find("away"), views.away([...away.values()]));
  find("away-panel").hidden = away.size === 0;
  if (!answers.some((answer) => answer.is)) live("off", answers[0].why);
  else if (away.size) live("part", "live, as far as it answers");
  else live("on", "live");
}

const said = (error) =>
  error.name === "TimeoutError" ? "no answer in time" : error.name === "TypeError" ? "the server does not answer" : error.message;

function showStats(stats) {
  fill(find("totals"), views.tiles(stats, filters.states.value, chooseState));
  fill(find("queues"), views.queues(stats, { mayAct: mayAct(), changed: refresh }));
  offer(filters.sources, stats.sources.map((one) => one.source));
}

function showGroups(groups) {
  fill(find("groups"), views.groups(groups, { mayAct: mayAct(), chosen: group?.id, choose: chooseGroup, replay, changed: refresh }));
}

function showMuted(muted) {
  const button = find("muted");
  button.hidden = muted.length === 0;
  button.setAttribute("aria-pressed", String(showsMuted));
  button.textContent = `${muted.length} muted`;
}

function showLetters(page) {
  fill(find("letters"), views.letters(page.letters, open));
}

function showIncidents(wrong) {
  find("incidents-panel").hidden = wrong.length === 0;
  fill(find("incidents"), incidents(wrong, { mayAct: mayAct(), choose: chooseGroup, changed: refresh }));
}

function showFairness(turns) {
  find("fairness-panel").hidden = turns.sources.length === 0;
  fill(find("fairness"), views.fairness(turns.sources));
}

function showWorkers(working) {
  find("workers-panel").hidden = working.length === 0;
  fill(find("workers"), workers(working));
}

function chosen() {
  const { states, sources, text } = filters;
  return { states: states.value, sources: sources.value, text: text.value.trim(), groups: group?.id, limit: 50 };
}

function offer(select, names) {
  const known = [...select.options].map((option) => option.value);
  for (const name of names.filter((one) => !known.includes(one))) select.append(el("option", { value: name }, name));
}

function chooseState(name) {
  filters.states.value = filters.states.value === name ? "" : name;
  refresh();
}

function chooseGroup(one) {
  group = one !== null && group?.id === one.id ? null : one;
  nameGroup();
  refresh();
}

function nameGroup() {
  const chip = find("group-filter");
  chip.hidden = group === null;
  chip.textContent = group === null ? "" : `${group.error_type} ×`;
}

/** The group that a link of an alert names (`/#group=…`). */
function linkedGroup() {
  const id = new URLSearchParams(location.hash.slice(1)).get("group");
  if (id) group = { id, error_type: `group ${id}` };
  nameGroup();
}

const told = (work) => work.catch((error) => (error instanceof Refused ? signIn(error.message) : toast(error.message, "error")));
const open = (id) => told(openLetter(id, mayAct(), refresh));
const replay = (one) => told(planReplay(one, refresh));

function live(position, text) {
  const shown = find("live");
  if (shown.textContent !== text) shown.textContent = text;
  shown.dataset.live = position;
}

function signIn(why) {
  dropToken();
  me = null;
  signInWays().then(offerPeople, () => {});
  live("off", why);
  const dialog = find("sign-in");
  find("sign-in-token").value = "";
  if (!dialog.open) dialog.showModal();
}

function offerPeople(ways) {
  find("sign-in-person").hidden = !ways.login;
}

/** Without a token: perhaps this browser has signed in. */
async function begin() {
  const ways = await signInWays().catch(() => ({}));
  offerPeople(ways);
  if (ways.signed_in) refresh();
  else signIn("no token yet");
}

find("sign-out").addEventListener("click", () => told(signOut()));
find("sign-in-form").addEventListener("submit", () => {
  keepToken(find("sign-in-token").value);
  refresh();
});
find("sign-in").addEventListener("cancel", (event) => event.preventDefault());
find("muted").addEventListener("click", () => {
  showsMuted = !showsMuted;
  refresh();
});
find("group-filter").addEventListener("click", () => chooseGroup(null));
for (const dialog of [find("letter"), find("replay"), find("said")])
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
filters.addEventListener("input", refresh);
filters.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("visibilitychange", () => !document.hidden && me !== null && refresh());

offer(filters.states, views.STATES);
linkedGroup();
if (takeToken()) refresh();
else begin();
