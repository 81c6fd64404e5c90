// What the pages of replays share: how far one is.

import { part } from "../api.js";
import { html } from "../lib.js";
import { replayNews } from "../live.js";
import { href } from "../router.js";
import { useResource } from "../resource.js";
import { Pill, Shares, Time, letters, number, percent } from "../ui.js";

const PARTS = ["resolved", "sent", "failed", "skipped"];

/**
 * What the stream told of a replay after that answer was asked for. Where nothing was, the answer is right: of one that
 * waits or is over the stream says no more, though its letters go on.
 * @param {string} id @param {import("../resource.js").Resource<any>} from
 */
export function newsOf(id, from) {
  const news = replayNews.value[id];
  return news && news.heard > from.at ? news : undefined;
}

/** A replay in a list: its state, how many of its letters are where, and why it waits. */
export function ReplayRow({ replay, tally, from }) {
  const news = newsOf(replay.id, from);
  const counts = news?.tally ?? tally;
  const known = PARTS.reduce((sum, name) => sum + (counts[name] ?? 0), 0);
  return html`<li class="replay-row">
    <div class="row"><${Pill} state=${news?.state ?? replay.state} /><a class="title" href=${href(`/replays/${replay.id}`)}>${replay.reason || replay.id}</a></div>
    <${Shares} total=${replay.total} parts=${PARTS.map((name) => ({ name, count: counts[name] ?? 0 }))} />
    <p class="faint">${number(known)} of ${letters(replay.total)}, by ${replay.actor}, <${Time} at=${replay.created_at} /></p>
    ${replay.paused && html`<p class="caution">Paused: ${replay.paused.why || `by ${replay.paused.actor}`}</p>`}
  </li>`;
}

/** How much of one is done, as a bar and in percent: of each that runs or waits it is asked for by itself. */
export function HowFar({ replay }) {
  const report = useResource(`replays/${part(replay.id)}`, {}, { on: ["replays", "letters"] });
  const counts = newsOf(replay.id, report)?.tally ?? report.data?.entries;
  if (!counts || !replay.total) return html`<span class="faint">–</span>`;
  const parts = PARTS.map((name) => ({ name, count: counts[name] ?? 0 }));
  return html`<span>${percent(parts.reduce((sum, one) => sum + one.count, 0) / replay.total)}</span><${Shares} total=${replay.total} parts=${parts} />`;
}
