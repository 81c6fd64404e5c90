// The same API that everybody uses, with the token that this tab was given.

const KEY = "redrive-token";
let held = null;
let csrf = null; // of a person who signed in: the cookie alone writes nothing

/** From the address (`/#token=…`, which never leaves the browser), else from this tab. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    keepToken(given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  held = sessionStorage.getItem(KEY);
  return held;
}

export function keepToken(token) {
  held = token.trim();
  sessionStorage.setItem(KEY, held);
}

export function dropToken() {
  held = null;
  sessionStorage.removeItem(KEY);
}

export class Refused extends Error {}

/** How people sign in here, and whether this browser already has. */
export const signInWays = async () => {
  const response = await fetch("/api/login", { signal: AbortSignal.timeout(15000) });
  return response.ok ? response.json() : {};
};

export const keepCsrf = (given) => {
  csrf = given;
};

/** Ends the session here, and goes to where the identity provider ends its own. */
export async function signOut() {
  const { at_issuer } = await ask("/logout", { method: "POST" });
  location.assign(at_issuer ?? "/");
}

async function ask(path, options = {}) {
  const headers = held ? { Authorization: `Bearer ${held}` } : csrf ? { "X-CSRF-Token": csrf } : {};
  const response = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(15000) });
  const answer = await response.json();
  if (response.status === 401) throw new Refused(answer.error);
  if (!response.ok) throw new Error([answer.error, answer.hint].filter(Boolean).join(" – "));
  return answer;
}

export const get = (path, parameters = {}) => {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const query = new URLSearchParams(pairs.filter(([, value]) => value));
  return ask(`/api/${path}${query.size ? `?${query}` : ""}`);
};

export const post = (path, body) => ask(`/api/${path}`, { method: "POST", body: JSON.stringify(body ?? {}) });
