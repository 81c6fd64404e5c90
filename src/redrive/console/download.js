// A file of the server's, saved by the browser: asked for with our token, which a link could not carry.

import { Problem, headers } from "./api.js";

/** Saves what the API answers under that path. */
export async function download(/** @type {string} */ path, /** @type {string} */ name) {
  const response = await fetch(`/api/${path}`, { headers: headers() });
  if (!response.ok) {
    const answer = await response.json().catch(() => null);
    throw new Problem(answer?.error ?? `the server answered ${response.status}`, answer?.hint ?? null, response.status);
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
