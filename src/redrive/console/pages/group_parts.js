// What the pages of groups share: where a group stands, and what people do with it.

import { part, post } from "../api.js";
import { Brief } from "../clamped.js";
import { html } from "../lib.js";
import { changed, me } from "../state.js";
import { Chip, Field, FormDialog, Time, toast } from "../ui.js";
import { Text } from "../tree.js";

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

/** The tenants that it hit: their names, or how many they are. */
export const tenantsOf = ({ tenants, is_all_tenants: all }) => (tenants.length > 2 || !all ? `${tenants.length}${all ? "" : "+"} tenants` : tenants.join(", "));

/** How many of its letters a replay would take. */
export const replayable = (group) => (group.states.pending ?? 0) + (group.states.exhausted ?? 0);

/** What the server said of an act, and what shows the group asks again. */
export function tell(said, answer) {
  toast([said, ...(answer?.notes ?? [])].join(". "));
  changed("groups");
}

const What = ({ group }) => html`<p class="faint"><strong><${Brief} value=${group.error_type} /></strong> <${Brief} value=${group.message} /></p>`;
const to = (group, verb) => `groups/${part(group.id)}/${verb}`;

export function FixDialog({ group, close }) {
  const act = async ({ version, auto, why }) =>
    tell(`Noted as fixed in ${version.trim()}`, await post(to(group, "fix"), { version: version.trim(), auto, why }));
  return html`<${FormDialog} title="Fixed in which version?" verb="It is fixed" act=${act} close=${close}><${What} group=${group} />
    <${Field} label="Version"><input name="version" required maxlength="100" autocomplete="off" spellcheck=${false} autofocus /><//>
    <${Field} label="Replay its letters by itself once every worker runs it"><input name="auto" type="checkbox" /><//>
    <${Field} label="Why"><input name="why" maxlength="2000" autocomplete="off" /><//><//>`;
}

const SPANS = [["1 hour", 3600], ["1 day", 86_400], ["1 week", 7 * 86_400]];

export function MuteDialog({ group, close }) {
  const act = async ({ seconds, why }) =>
    tell("Muted: no alert of it is sent, and it comes back by itself", await post(to(group, "mute"), { seconds: Number(seconds), why }));
  return html`<${FormDialog} title="Mute it for how long?" verb="Mute it" act=${act} close=${close}><${What} group=${group} />
    <${Field} label="For"><select name="seconds">${SPANS.map(([text, value]) => html`<option value=${value}>${text}</option>`)}</select><//>
    <${Field} label="Why"><input name="why" required maxlength="2000" autocomplete="off" autofocus /><//><//>`;
}

export function AssignDialog({ group, close }) {
  const act = async (form) => {
    const name = form.to.trim() || null;
    const answer = await post(to(group, "assign"), { to: name });
    tell(name ? `Assigned to ${answer?.assignee ?? name}` : "Assigned to nobody", answer);
  };
  return html`<${FormDialog} title="Who takes it?" verb="Assign" act=${act} close=${close}><${What} group=${group} />
    <${Field} label="Name" about="empty: nobody"><input name="to" maxlength="100" autocomplete="off" autofocus defaultValue=${group.assignee ?? me.value?.name ?? ""} /><//><//>`;
}
