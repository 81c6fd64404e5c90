// What the pages of groups share: where a group stands, and what people do with it.

import { html } from "../lib.js";
import { Chip, Time } from "../ui.js";

const TONES = /** @type {Record<string, string>} */ ({ new: "violet", growing: "amber", regressed: "red", quiet: "", steady: "blue" });

export const toneOfTrend = (trend) => TONES[trend ?? ""] ?? "blue";

/** Versions that it was seen in, and what was said of it. */
export function standing(group) {
  const said = [versions(group), assigned(group), muted(group), fixed(group)].filter(Boolean);
  return said.length > 0 && html`<div class="standing faint">${said.map((part) => html`<span>${part}</span>`)}</div>`;
}

function versions({ first_version: first, last_version: last }) {
  if (!first && !last) return null;
  return first === last ? `in ${first}` : `first in ${first || "?"}, last in ${last || "?"}`;
}

const assigned = ({ assignee }) => assignee && html`<${Chip} data-state="info">${assignee}<//>`;

const muted = ({ mute }) => mute && html`<${Chip} data-state="muted" data-standing="muted">muted<//> until <${Time} at=${mute.until} /> by ${mute.by}: ${mute.why}`;

function fixed({ fix, waits_for: waits }) {
  if (!fix) return null;
  const chip = (name) => html`<${Chip} data-state=${name} data-standing=${name}>${name}<//>`;
  if (fix.regressed_at) return html`${chip("regressed")} fixed in ${fix.version}, died on ${fix.regressed_in}`;
  if (!fix.deployed_at) return html`${chip("fixed")} in ${fix.version}, not deployed yet: ${waits.join("; ")}`;
  return html`${chip("deployed")} fixed in ${fix.version}, which runs everywhere${fix.replay ? `: replay ${fix.replay}` : ": it can be replayed"}`;
}
