// One stream of the server's events, for this tab and all that share it. It says what has changed, and who shows that asks
// again.

import { Problem, get, hasToken, headers, tokenText } from "./api.js";
import { effect, signal } from "./lib.js";
import { share } from "./sharing.js";
import { asksToSignIn, heard, live, me, setServerTime } from "./state.js";

const POLL = 4000; // where there is no stream
const SILENT = 45_000; // the server says something every 15 s
const LONGEST_WAIT = 15_000;

/** The newest word of each replay that was told of: `{state, tally}` by its id, and when it came, by `performance.now()`. */
export const replayNews = signal(/** @type {Record<string, any>} */ ({}));

let running = /** @type {AbortController | null} */ (null);
let login = ""; // that the browser has a cookie of, if we have no token
let last = "";
let wasOpen = false;
let tellOthers = /** @type {(news: any) => void} */ (() => {});
let firstWord = () => {};
const settled = new Promise((done) => (firstWord = () => done(undefined)));

/** Follows the server as long as the tab can be seen. Called again it begins anew, as when the token is another. */
export function follow() {
  running?.abort();
  running = null;
  if (document.hidden || asksToSignIn.value !== null) return;
  running = new AbortController();
  const stop = running.signal;
  let asks = true; // nobody has told us yet how it stands
  share(stop, tokenText() ?? `login ${login}`, {
    lead: (tell) => lead(stop, tell),
    standing: () => ({ live: live.value, last }),
    told: ({ event, live: position, last: newest }) => {
      if (event) return act(event);
      const missed = wasOpen && position.position === "on" && (asks || live.value.position !== "on");
      asks = false;
      last = newest;
      live.value = position;
      wasOpen ||= position.position === "on";
      if (missed) heard();
      if (position.position !== "wait") firstWord();
    },
  });
}

/** Follows the server, and tells the other tabs. */
async function lead(/** @type {AbortSignal} */ stop, /** @type {(news: any) => void} */ tell) {
  tellOthers = tell;
  const end = effect(() => tell({ live: live.value, last }));
  await keepOn(stop);
  end();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return follow();
  running?.abort();
  running = null;
});

async function keepOn(/** @type {AbortSignal} */ stop) {
  for (let failures = 0; !stop.aborted && asksToSignIn.value === null; ) {
    try {
      const streams = await stream(stop, () => (failures = 0));
      if (!streams) await poll(stop);
      else live.value = { position: "wait", text: "reconnecting" };
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof Problem && error.status === 401) return;
      live.value = { position: "off", text: failures++ < 1 ? "reconnecting" : "server away, reconnecting" };
      firstWord();
    }
    const wait = Math.min(500 * 2 ** failures, LONGEST_WAIT) * (0.75 + Math.random() / 2);
    await rest(wait, stop);
  }
}

const rest = (/** @type {number} */ wait, /** @type {AbortSignal} */ stop) => new Promise((done) => {
  const timer = setTimeout(done, wait);
  stop.addEventListener("abort", () => (clearTimeout(timer), done(undefined)), { once: true });
});

/** Reads events until the server ends them. False: this server has none. */
async function stream(/** @type {AbortSignal} */ stop, /** @type {() => void} */ opened) {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENT);
  /** @type {Record<string, string>} */
  const more = last ? { "Last-Event-ID": last } : {};
  try {
    const response = await fetch("/api/events", { headers: { ...headers(), ...more }, signal: AbortSignal.any([stop, silence.signal]) });
    if (response.status === 404) return false;
    if (response.status === 401) await get("me"); // which says why, and asks to sign in
    if (!response.ok || !response.body) throw new Problem(`the server answered ${response.status}`, null, response.status);
    opened();
    live.value = { position: "on", text: "live" };
    if (wasOpen) heard(); // whatever was missed meanwhile
    wasOpen = true;
    firstWord();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = "", { value, done } = await reader.read(); !done; { value, done } = await reader.read()) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENT);
      const events = (text + (value ?? "").replaceAll("\r", "")).split("\n\n");
      text = /** @type {string} */ (events.pop());
      events.forEach(take);
    }
    return true;
  } finally {
    clearTimeout(timer);
  }
}

function take(/** @type {string} */ event) {
  /** @type {Record<string, string>} */
  const fields = { event: "message", data: "" };
  for (const line of event.split("\n")) {
    const found = /^(\w+): ?(.*)$/.exec(line);
    if (found) fields[/** @type {string} */ (found[1])] = found[1] === "data" && fields.data ? `${fields.data}\n${found[2]}` : /** @type {string} */ (found[2]);
  }
  const told = { name: /** @type {string} */ (fields.event), id: fields.id, data: JSON.parse(fields.data || "null") };
  tellOthers({ event: told });
  act(told);
}

function act(/** @type {{name: string, id?: string, data: any}} */ { name, id, data }) {
  if (id) last = id;
  if (data === null) return;
  if (name === "hello") setServerTime(Date.parse(data.server_time), true);
  else if (name === "changed") heard(...data.what);
  else if (name === "replay") replayNews.value = { ...replayNews.value, [data.id]: { ...data, heard: performance.now() } };
  else if (name === "bye") get("me").then((found) => void (me.value = found), () => undefined);
}

/** Without a stream: asks whether the server is there, and lets all that is shown ask again. */
async function poll(/** @type {AbortSignal} */ stop) {
  live.value = { position: "on", text: "live" };
  firstWord();
  while (!stop.aborted) {
    await rest(POLL, stop);
    if (stop.aborted) return;
    me.value = await get("me", {}, stop);
    live.value = { position: "on", text: "live" };
    tellOthers({ event: { name: "changed", data: { what: [] } } });
    heard();
  }
}

/**
 * Who we are; asks to sign in where nobody knows us. Pages are shown once the stream is open, so that nothing changes
 * unheard between what they ask first and what they are told; a stream that takes long is not waited for.
 */
export async function recognise() {
  const stop = new AbortController();
  for (let wait = 500; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    try {
      const found = await get("me");
      asksToSignIn.value = null;
      login = found.csrf ?? "";
      follow();
      await Promise.race([settled, rest(1000, stop.signal)]);
      me.value = found;
      return;
    } catch (error) {
      if (error instanceof Problem && error.status === 401) {
        if (!hasToken()) asksToSignIn.value = "";
        return;
      }
      live.value = { position: "off", text: "server away, reconnecting" };
    }
    await rest(wait, stop.signal);
  }
}
