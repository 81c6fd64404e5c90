// What the pages of replays share: how far one is.

import { html } from "../lib.js";
import { replayNews } from "../live.js";
import { href } from "../router.js";
import { Pill, Shares, Time, letters, number } from "../ui.js";

const PARTS = ["resolved", "sent", "failed", "skipped"];

/** A replay in a list: its state, how many of its letters are where, and why it waits. */
export function ReplayRow({ replay, tally }) {
  const news = replayNews.value[replay.id];
  const counts = news?.tally ?? tally;
  const known = PARTS.reduce((sum, name) => sum + (counts[name] ?? 0), 0);
  return html`<li class="replay-row">
    <div class="row"><${Pill} state=${news?.state ?? replay.state} /><a class="title" href=${href(`/replays/${replay.id}`)}>${replay.reason || replay.id}</a></div>
    <${Shares} total=${replay.total} parts=${PARTS.map((name) => ({ name, count: counts[name] ?? 0 }))} />
    <p class="faint">${number(known)} of ${letters(replay.total)}, by ${replay.actor}, <${Time} at=${replay.created_at} /></p>
    ${replay.paused && html`<p class="caution">Paused: ${replay.paused.why || `by ${replay.paused.actor}`}</p>`}
  </li>`;
}
