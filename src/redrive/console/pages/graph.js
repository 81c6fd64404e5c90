// The graph of a pipeline, drawn: each node is a link to its source, red where streams died lately. A table says the same.

import { html } from "../lib.js";
import { useResource } from "../resource.js";
import { href, sourceAt } from "../router.js";
import { part } from "../api.js";
import { Empty, Panel, Pill, Table, duration, number, plural } from "../ui.js";
import { Text } from "../tree.js";

const WIDE = 190, HIGH = 58, GAP_X = 70, GAP_Y = 22;

export function Graph() {
  const graph = useResource("pipeline/graph", {}, { on: ["sources", "letters"], every: 60 });
  return html`<${Panel} id="graph" title="Pipeline" from=${graph} about=${graph.data && `failing: a stream died within ${duration(graph.data.lately)}`}
    empty=${({ nodes }) => !nodes.length && html`<${Empty} title="No node of the graph is yours to see" />`}>
    ${({ nodes }) => html`<div class="scroll"><${Drawing} nodes=${nodes} /></div>
      <details><summary>As a table</summary><${Table} caption="Nodes of the pipeline" rows=${nodes} columns=${COLUMNS} open=${sourceOf} /></details>`}<//>`;
}

const sourceOf = (node) => href(sourceAt(node.source));
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const waiting = (node) => (node.queued ? `${number(node.queued.ready)} wait` : node.module);
const said = (node) => `${node.name}: ${node.state}, ${number(node.queued?.ready ?? 0)} wait, ${plural(node.dead, "dead stream")}, ${number(node.died_lately)} died lately`;

const COLUMNS = [
  { name: "node", title: "Node", kind: "grow", cell: (node) => html`<a class="title" href=${sourceOf(node)}><${Text} value=${node.name} /></a> <span class="message"><${Text} value=${node.module} /></span>` },
  { name: "state", title: "State", cell: (node) => html`<${Pill} state=${node.state} />` },
  { name: "ready", title: "Wait", number: true, label: "wait", cell: (node) => number(node.queued?.ready) },
  { name: "hand", title: "In hand", number: true, label: "in hand", cell: (node) => number(node.in_hand) },
  { name: "dead", title: "Dead", number: true, label: "dead", cell: (node) => html`<a href=${href(`/letters?sources=${part(node.source)}`)}>${number(node.dead)}</a>` },
  { name: "lately", title: "Died lately", number: true, label: "died lately", cell: (node) => number(node.died_lately) },
  { name: "engines", title: "Engines", number: true, label: "engines", cell: (node) => number(node.workers) },
];

/** From left to right, each node behind all that lead to it. */
function Drawing({ nodes }) {
  const places = placed(nodes);
  const columns = 1 + Math.max(...[...places.values()].map(({ column }) => column));
  const rows = 1 + Math.max(...[...places.values()].map(({ row }) => row));
  const [width, height] = [columns * (WIDE + GAP_X) - GAP_X + 4, rows * (HIGH + GAP_Y) - GAP_Y + 4];
  const at = (id) => {
    const { column, row } = places.get(id) ?? { column: 0, row: 0 };
    return { x: 2 + column * (WIDE + GAP_X), y: 2 + row * (HIGH + GAP_Y) };
  };
  return html`<svg class="graph" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="group" aria-label="The graph of the pipeline">
    <defs><marker id="graph-end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
    ${nodes.flatMap((node) => node.next.map((next) => html`<path key=${node.id + next} class="graph-way" d=${way(at(node.id), at(next))} marker-end="url(#graph-end)" />`))}
    ${nodes.map((node) => html`<a key=${node.id} href=${sourceOf(node)} aria-label=${said(node)} class="graph-node" data-state=${node.state} transform=${`translate(${at(node.id).x} ${at(node.id).y})`}>
      <title>${said(node)}</title><rect width=${WIDE} height=${HIGH} rx="8" />
      <text x="12" y="24" class="graph-name">${cut(node.name, 22)}</text>
      <text x="12" y="44" class="graph-about">${node.dead ? `${plural(node.dead, "dead stream")}` : cut(waiting(node), 26)}</text></a>`)}</svg>`;
}

/** A curve from the right edge of one to the left edge of the other; a way back goes beneath. */
function way(from, to) {
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
  if (x2 > x1) return `M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}`;
  return `M${from.x + WIDE / 2} ${from.y + HIGH}C${from.x + WIDE / 2} ${from.y + HIGH + GAP_Y} ${to.x + WIDE / 2} ${to.y + HIGH + GAP_Y} ${to.x + WIDE / 2} ${to.y + HIGH}`;
}

/** The column of each node, one behind the last that leads to it without a way back, and its row there. */
function placed(nodes) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const order = /** @type {string[]} */ ([]);
  const seen = new Set(), open = new Set(), back = new Set();
  const visit = (id) => {
    seen.add(id), open.add(id);
    for (const next of byId.get(id).next) open.has(next) ? back.add(`${id} ${next}`) : seen.has(next) || visit(next);
    open.delete(id), order.unshift(id);
  };
  const ledTo = new Set(nodes.flatMap((node) => node.next));
  for (const node of [...nodes.filter(({ id }) => !ledTo.has(id)), ...nodes]) seen.has(node.id) || visit(node.id);
  const columns = new Map(order.map((id) => [id, 0]));
  for (const id of order) for (const next of byId.get(id).next) if (!back.has(`${id} ${next}`)) columns.set(next, Math.max(columns.get(next) ?? 0, (columns.get(id) ?? 0) + 1));
  const rows = new Map();
  return new Map(order.map((id) => {
    const column = columns.get(id) ?? 0, row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    return [id, { column, row }];
  }));
}
