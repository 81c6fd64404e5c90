// What a panel shows comes from one question to the API. It has a state of its own: one that fails blanks no other.

import { Problem, get } from "./api.js";
import { effect, useCallback, useEffect, useRef, useState } from "./lib.js";
import { changes } from "./state.js";

const SHORTEST = 1000; // milliseconds between two questions that were not asked by hand
const SHARE = 10; // and so many times what the last answer took

/**
 * @template T
 * @typedef {{data: T | null, at: number, error: Problem | null, loading: boolean, reload: () => void}} Resource
 *   data: the last answer, also while the next is on its way or fails; at: when it was asked for, by `performance.now()`;
 *   error: why the last question failed
 */

/**
 * Asks the API, and asks again when the server says that one of `on` has changed. A question that is no longer wanted is
 * cancelled: at another address, or when the page is left.
 * @param {string | null} path under /api, or a whole one; null asks nothing
 * @param {import("./api.js").Parameters} [parameters]
 * @param {{on?: string[], every?: number}} [options] on: of letters, groups, replays, incidents, sources, approvals; every:
 *   seconds after which it asks in any case, for what changes without anybody saying so: a backend that goes away, `last=24h`
 * @returns {Resource<any>}
 */
export function useResource(path, parameters = {}, { on = [], every = 0 } = {}) {
  const key = path === null ? "" : path + JSON.stringify(parameters);
  const [state, setState] = useState({ key, path, data: /** @type {any} */ (null), at: 0, error: /** @type {Problem | null} */ (null), loading: true });
  const asking = useRef(/** @type {AbortController | null} */ (null));
  const again = useRef(false);
  const rested = useRef(0); // when it may be asked again because something changed
  const timer = useRef(0);

  const load = useCallback(async () => {
    if (path === null) return;
    if (asking.current) return void (again.current = true); // one at a time: a slow answer is not asked for twice
    const asked = (asking.current = new AbortController());
    const began = performance.now();
    try {
      const data = await get(path, parameters, asked.signal);
      if (!asked.signal.aborted) setState({ key, path, data, at: began, error: null, loading: false });
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(String(error), null, 0);
      if (!asked.signal.aborted) setState((before) => ({ ...before, key, error: problem, loading: false }));
    }
    if (asking.current === asked) asking.current = null;
    rested.current = performance.now() + Math.max(SHORTEST, SHARE * (performance.now() - began));
    if (again.current && !asked.signal.aborted) {
      again.current = false;
      later();
    }
  }, [key]);

  /** A question that costs the server much is asked less often, however much changes. */
  const later = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(load, Math.max(0, rested.current - performance.now()));
  };

  useEffect(() => {
    rested.current = 0;
    setState((before) => ({ ...before, key, path, data: before.path === path ? before.data : null, error: null, loading: true }));
    load();
    return () => {
      clearTimeout(timer.current);
      asking.current?.abort();
      asking.current = null;
      again.current = false;
    };
  }, [key]);

  const names = on.join();
  useEffect(() => {
    let before = /** @type {string | null} */ (null);
    return effect(() => {
      const { counts, mine } = changes.value;
      const seen = ["all", ...names.split(",")].map((name) => counts[name] ?? 0).join();
      if (before !== null && seen !== before) mine ? load() : later();
      before = seen;
    });
  }, [load, names]);

  useEffect(() => {
    const beat = every ? setInterval(() => document.hidden || later(), 1000 * every) : 0;
    return () => clearInterval(beat);
  }, [load, every]);

  const fresh = state.path === path;
  return { data: fresh ? state.data : null, at: state.at, error: fresh ? state.error : null, loading: state.loading || state.key !== key, reload: load };
}

/** The value once it has rested for a while: what is typed is asked for when somebody stops typing. */
export function useRested(/** @type {string} */ value, wait = 250) {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), wait);
    return () => clearTimeout(timer);
  }, [value, wait]);
  return rested;
}
