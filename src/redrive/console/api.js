// The same API that everybody uses, with the token that this tab was given or the cookie of a login.

import { asksToSignIn, me, setServerTime } from "./state.js";

const KEY = "redrive-token";
const LONGEST = 30_000;
const TRIES = 5; // of a costly question that the server has no place for: it says when to ask again

/** @typedef {Record<string, string | number | boolean | null | undefined | (string | number)[]>} Parameters */

/** Takes the token from the address (`/#token=…`, which never leaves the browser) and keeps it in this tab. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (!token) return;
  keepToken(token);
  given.delete("token");
  history.replaceState(null, "", location.pathname + location.search + (given.size ? `#${given}` : ""));
}

export const keepToken = (/** @type {string} */ token) => sessionStorage.setItem(KEY, token.trim());
export const dropToken = () => sessionStorage.removeItem(KEY);
export const tokenText = () => sessionStorage.getItem(KEY);
export const hasToken = () => tokenText() !== null;

/** An answer that is not what was asked for: what went wrong, and what to do about it. */
export class Problem extends Error {
  /** @param {string} error @param {string | null} hint @param {number} status */
  constructor(error, hint, status) {
    super(error);
    this.hint = hint;
    this.status = status; // 0: there was no answer
  }
}

/** Who asks, for a request with that method. */
export function headers(method = "GET") {
  const token = sessionStorage.getItem(KEY);
  /** @type {Record<string, string>} */
  const made = token ? { Authorization: `Bearer ${token}` } : {};
  if (!token && method !== "GET" && me.value?.csrf) made["X-CSRF-Token"] = me.value.csrf;
  return made;
}

/**
 * @param {string} path under /api; one that begins with / is whole
 * @param {{method?: string, body?: unknown, signal?: AbortSignal, reads?: boolean}} [options] reads: it changes nothing, whatever its method
 * @returns {Promise<any>}
 */
async function ask(path, { method = "GET", body, signal, reads = method === "GET" } = {}) {
  const limit = AbortSignal.timeout(LONGEST);
  const either = signal ? AbortSignal.any([signal, limit]) : limit;
  const given = body === undefined ? {} : { body: JSON.stringify(body) };
  try {
    for (let left = TRIES; ; left--) {
      const response = await fetch(path.startsWith("/") ? path : `/api/${path}`, { method, ...given, headers: headers(method), signal: either });
      const wait = response.status === 429 ? 1000 * Number(response.headers.get("retry-after")) : 0;
      if (!wait || !left) return await answerOf(response);
      await waited(wait, either);
    }
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw unanswered(error instanceof Error && error.name === "TimeoutError", reads);
  }
}

/** Some milliseconds later, or at once where the question is no longer wanted: asking says so. */
const waited = (/** @type {number} */ wait, /** @type {AbortSignal} */ signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, wait);
    signal.addEventListener("abort", () => (clearTimeout(timer), done(undefined)), { once: true });
  });

/** Only what is looked at is asked for again; an act may have been done, though nobody heard of it. */
function unanswered(/** @type {boolean} */ late, /** @type {boolean} */ reads) {
  const hint = !reads ? "it may have been done all the same: look before you do it again" : late ? "it may be busy: try again" : "it is asked again by itself";
  return new Problem(late ? "no answer in time" : "the server does not answer", hint, 0);
}

async function answerOf(/** @type {Response} */ response) {
  setServerTime(Date.parse(response.headers.get("date") ?? "") + 500);
  const text = await response.text();
  const answer = parsed(text);
  if (response.ok) return answer;
  const problem = new Problem(answer?.error ?? `the server answered ${response.status}`, answer?.hint ?? null, response.status);
  if (response.status === 401) asksToSignIn.value = [problem.message, problem.hint].filter(Boolean).join(" – ");
  throw problem;
}

function parsed(/** @type {string} */ text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/** The query of an address: a list names its parameter once for each value, what is empty is left out. */
export function queryOf(/** @type {Parameters} */ parameters) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const query = new URLSearchParams(pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false).map(([name, value]) => [String(name), String(value)]));
  return query.size ? `?${query}` : "";
}

export const get = (/** @type {string} */ path, /** @type {Parameters} */ parameters = {}, /** @type {AbortSignal | undefined} */ signal = undefined) =>
  ask(path + queryOf(parameters), { signal });

export const post = (/** @type {string} */ path, /** @type {unknown} */ body = {}) => ask(path, { method: "POST", body });
/** A question that is too long for an address. It changes nothing. */
export const inquire = (/** @type {string} */ path, /** @type {unknown} */ body) => ask(path, { method: "POST", body, reads: true });
export const del = (/** @type {string} */ path) => ask(path, { method: "DELETE" });

/** A part of a path, whatever it holds. */
export const part = encodeURIComponent;

/** Whether the same question may be answered another time: not if it was refused for what it says, or for who asks. */
export const mayPass = (/** @type {unknown} */ error) => !(error instanceof Problem && [400, 403, 422].includes(error.status));

/** An error in words. */
export const inWords = (/** @type {unknown} */ error) =>
  error instanceof Problem ? [error.message, error.hint].filter(Boolean).join(" – ") : error instanceof Error ? error.message : String(error);
