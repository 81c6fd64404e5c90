// The filters of letters: as the address has them, as the API takes them, and the list that a letter was opened from.

import { queryOf as addressQuery } from "../api.js";
import { serverNow } from "../state.js";

export const STATES = ["pending", "retrying", "replaying", "exhausted", "sent", "resolved", "archived"];
export const CATEGORIES = ["transient", "network", "resource", "permission", "validation", "permanent"];
export const LASTS = /** @type {[string, string][]} */ ([["15m", "last 15 min"], ["1h", "last hour"], ["24h", "last 24 h"], ["7d", "last 7 days"], ["30d", "last 30 days"]]);
const UNITS = /** @type {Record<string, number>} */ ({ s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 });
const LISTS = ["ids", "states", "sources", "categories", "groups", "tenants", "message_ids", "parents"];
const WORDS = ["text", "error_type", "code", "since", "before", "last"];
const LIST = "redrive-list";
const LONGEST = 8000; // of an address, so that every proxy takes it

/** @typedef {Record<string, any>} Filters */

/** What the address asks for. */
export function asked(/** @type {URLSearchParams} */ address) {
  /** @type {Filters} */
  const filters = {};
  for (const name of LISTS) filters[name] = address.getAll(name);
  for (const name of WORDS) filters[name] = address.get(name) ?? "";
  if (address.get("group")) filters.groups = [...filters.groups, address.get("group")];
  return filters;
}

/** The seconds of `90m`, `1h30m`, `7d`; null of what is no time. */
function secondsOf(/** @type {string} */ last) {
  const parts = [...last.matchAll(/(\d{1,9})([smhdw])/g)];
  if (!parts.length || parts.map(([part]) => part).join("") !== last) return null;
  return parts.reduce((sum, [, count, unit]) => sum + Number(count) * /** @type {number} */ (UNITS[/** @type {string} */ (unit)]), 0);
}

/**
 * The same as parameters of the API. `last` is a time from now on, to the minute, so that a refresh asks the same. One that
 * is no time goes to the server all the same, which refuses it: left out it would widen what is shown, and what is acted on.
 */
export function paramsOf(/** @type {Filters} */ { last, ...filters }) {
  if (!last) return filters;
  const seconds = secondsOf(last);
  const since = new Date(seconds === null ? NaN : (Math.floor(serverNow() / 60_000) - Math.ceil(seconds / 60)) * 60_000);
  return { ...filters, since: Number.isNaN(since.getTime()) ? `last ${last}` : since.toISOString() };
}

/** The same as a query in a body: only what narrows. */
export function queryOf(/** @type {Filters} */ filters) {
  return Object.fromEntries(Object.entries(paramsOf(filters)).filter(([, value]) => (Array.isArray(value) ? value.length : value)));
}

/** The same up to now, by the server's clock: what dies after somebody looked is not part of what is agreed to. */
export const upToNow = (/** @type {Record<string, any>} */ query) => (query.ids || query.before ? query : { ...query, before: new Date(serverNow()).toISOString() });

/** The page of letters that a query of the API selects; null where that page has no such filter, or the query is masked. */
export function addressOf(/** @type {Record<string, any>} */ query) {
  const known = [...LISTS, ...WORDS];
  const whole = Object.entries(query).every(([name, value]) => known.includes(name) && ![value].flat().some((one) => String(one).includes("[redacted]")));
  const at = `/letters${addressQuery(query)}`;
  return whole && at.length < LONGEST ? at : null;
}

/** A filter in a few words. */
export const said = (/** @type {string | string[]} */ value) => (Array.isArray(value) ? (value.length > 2 ? `${value.length} of them` : value.join(", ")) : value);

/** Keeps which letters are listed, so that a letter has a next and a previous one. */
export function rememberList(/** @type {string[]} */ ids) {
  if (ids.length) sessionStorage.setItem(LIST, JSON.stringify({ at: location.pathname + location.search, ids }));
}

/** The list that this letter was opened from: its address, and the letters beside it. */
export function listOf(/** @type {string} */ id) {
  /** @type {{at: string, ids: string[]}} */
  const { at, ids } = JSON.parse(sessionStorage.getItem(LIST) ?? '{"at": "", "ids": []}');
  const place = ids.indexOf(id);
  return place < 0 ? { at: "", prev: null, next: null } : { at, prev: ids[place - 1] ?? null, next: ids[place + 1] ?? null };
}
