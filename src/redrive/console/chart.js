// Counts over time as stacked bars: drag to zoom, and the same numbers as a table behind it.

import { exact, number, short } from "./format.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { isDark } from "./state.js";
import uPlot from "./vendor/uplot.js";

/**
 * @typedef {{name: string, counts: number[], total: number}} Line
 * @typedef {{at: number[], step: number, lines: Line[]}} Series as /api/series answers
 */

const HUES = 12;
const OUTCOMES = ["buried", "retried", "resolved"];

/** Outcomes are always stacked in one order, whichever is the largest; the server puts the largest first. */
export const inOrder = (/** @type {Series & {by: string}} */ series) =>
  series.by === "outcome" ? { ...series, lines: [...series.lines].sort((one, other) => OUTCOMES.indexOf(one.name) - OUTCOMES.indexOf(other.name)) } : series;

/** The colour of a line by its place; those that mean something have their own. */
export const toneOf = (/** @type {string} */ name, /** @type {number} */ index) =>
  OUTCOMES.includes(name) ? `--${name}` : name === "(others)" ? "--faint" : `--line-${index % HUES}`;

/**
 * @param {{series: Series, zoom?: (since: number, until: number) => void, height?: number, label: string}} props
 *   zoom: is told the seconds that somebody dragged over
 */
export function StackedChart({ series, zoom, height = 190, label }) {
  const [hidden, setHidden] = useState(/** @type {Set<string>} */ (new Set()));
  const [at, setAt] = useState(/** @type {number | null} */ (null));
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const zoomed = useRef(zoom);
  zoomed.current = zoom;
  const shown = series.lines.map((line, index) => ({ ...line, index })).filter((line) => !hidden.has(line.name));
  const form = `${shown.map((line) => line.name + line.index).join()}|${isDark.value}|${series.step}|${height}`;

  useEffect(() => {
    const into = /** @type {HTMLDivElement} */ (place.current);
    const made = new uPlot(options(shown, { width: into.clientWidth, height, step: series.step, setAt, zoom: zoomed }), stacked(series.at, shown), into);
    plot.current = made;
    const watcher = new ResizeObserver(() => into.clientWidth && made.setSize({ width: into.clientWidth, height }));
    watcher.observe(into);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [form]);
  useEffect(() => plot.current?.setData(stacked(series.at, shown)), [series]);

  const toggle = (/** @type {string} */ name) => setHidden((before) => {
    const next = new Set(before);
    if (!next.delete(name)) next.add(name);
    return next;
  });
  return html`<figure class="chart" aria-label=${label}>
    <div class="chart-plot" ref=${place} aria-hidden="true"></div>
    <figcaption class="legend">
      <span class="legend-at">${at === null ? "" : exact(1000 * /** @type {number} */ (series.at[at]))}</span>
      ${series.lines.map((line, index) => html`<button key=${line.name} type="button" aria-pressed=${!hidden.has(line.name)} onClick=${() => toggle(line.name)}>
        <span class="swatch" style=${{ background: `var(${toneOf(line.name, index)})` }}></span>${line.name}
        <strong>${at === null ? short(line.total) : number(line.counts[at] ?? 0)}</strong></button>`)}
    </figcaption>
    <${Numbers} series=${series} label=${label} />
  </figure>`;
}

/** Counts upon counts, the uppermost first: each bar is painted over the one behind it. */
function stacked(/** @type {number[]} */ at, /** @type {Line[]} */ lines) {
  const sums = at.map(() => 0);
  const layers = lines.map((line) => line.counts.map((count, index) => (sums[index] = /** @type {number} */ (sums[index]) + count)));
  return /** @type {uPlot.AlignedData} */ ([at, ...layers.reverse()]);
}

/** @returns {uPlot.Options} */
function options(/** @type {(Line & {index: number})[]} */ lines, /** @type {any} */ { width, height, step, setAt, zoom }) {
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => painted(style.getPropertyValue(name).trim());
  const bars = /** @type {any} */ (uPlot.paths).bars({ size: [0.86, 40], align: 1 });
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--hair"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width, height, padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: Boolean(zoom.current), y: false, setScale: false } },
    scales: { x: { range: (_plot, first, last) => [first, last + step] }, y: { range: (_plot, _least, most) => [0, Math.max(4, most * 1.08)] } },
    axes: [{ ...axis, size: 24, space: 64, values: (_plot, values) => values.map((value, index) => moment(value, values[index - 1])) }, { ...axis, size: 44, space: 36, values: (_plot, values) => values.map((value) => (Number.isInteger(value) ? short(value) : "")) }],
    series: [{}, ...lines.map((line) => ({ label: line.name, fill: colour(toneOf(line.name, line.index)), width: 0, paths: bars, points: { show: false } })).reverse()],
    hooks: {
      setCursor: [(plot) => setAt(plot.cursor.idx ?? null)],
      setSelect: [(plot) => {
        if (plot.select.width < 8) return;
        const since = plot.posToVal(plot.select.left, "x");
        const until = plot.posToVal(plot.select.left + plot.select.width, "x");
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        zoom.current?.(Math.floor(since), Math.ceil(until));
      }],
    },
  };
}

/** `14:00`, and the day where another begins. */
function moment(/** @type {number} */ at, /** @type {number | undefined} */ before) {
  const date = new Date(1000 * at);
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  const midnight = date.getHours() + date.getMinutes() === 0;
  return midnight || (before !== undefined && at - before >= 86_400) ? day : date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** A canvas does not know `light-dark(…)`: the colour as the page paints it. */
function painted(/** @type {string} */ value) {
  const found = /^light-dark\((.+), (.+)\)$/.exec(value);
  return found ? /** @type {string} */ (isDark.value ? found[2] : found[1]) : value;
}

function Numbers(/** @type {{series: Series, label: string}} */ { series, label }) {
  const [open, setOpen] = useState(false);
  const some = series.at.map((_, index) => index).filter((index) => series.lines.some((line) => line.counts[index])).reverse();
  return html`<details class="numbers" onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>As a table</summary>
    ${open && html`<div class="scroll tall" tabindex="0" role="region" aria-label=${`${label}, as a table`}><table><thead><tr><th scope="col">From</th>${series.lines.map((line) => html`<th scope="col" class="number">${line.name}</th>`)}</tr></thead>
      <tbody>${some.map((index) => html`<tr key=${index}><th scope="row">${exact(1000 * /** @type {number} */ (series.at[index]))}</th>
        ${series.lines.map((line) => html`<td class="number">${number(line.counts[index])}</td>`)}</tr>`)}</tbody></table></div>`}</details>`;
}
