// Every route of /openapi.json, by its tag: role, what it takes, what it answers.

import { el, find } from "./dom.js";

const response = await fetch("/openapi.json");
const api = await response.json();
const schemas = api.components.schemas;

const operations = Object.entries(api.paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method: method.toUpperCase(), ...operation })),
);
const tags = [...new Set(operations.flatMap((operation) => operation.tags ?? ["others"]))];

function section(tag) {
  const own = operations.filter((operation) => (operation.tags ?? ["others"]).includes(tag));
  const title = el("div.card-head", {}, el("h2", {}, tag));
  return el("section.card", { "aria-label": tag }, title, ...own.map(shown));
}

function shown(operation) {
  const role = operation["x-role"];
  const head = el("summary", {}, el("code.strong", {}, `${operation.method} ${operation.path}`), " ", el("span.chip", {}, role));
  return el("details.route", {}, head, el("p", {}, operation.description), parameters(operation), body(operation), answers(operation));
}

function parameters(operation) {
  const rows = (operation.parameters ?? []).map((one) => [one.name, one.in, spoken(one.schema)]);
  return table("Parameters", rows);
}

function body(operation) {
  const content = operation.requestBody?.content ?? {};
  return Object.values(content).map((one) => fields("Body", one.schema));
}

function answers(operation) {
  const [status, answer] = Object.entries(operation.responses).find(([status]) => status !== "default") ?? [];
  return Object.values(answer?.content ?? {}).map((one) => fields(`Answer ${status ?? ""}`, one.schema));
}

/** The fields of an object, or of what a list holds. */
function fields(title, schema) {
  const kind = resolved(schema.items ?? schema);
  const rows = Object.entries(kind.properties ?? {}).map(([name, field]) => [
    name,
    kind.required?.includes(name) ? "required" : "",
    spoken(field),
  ]);
  return table(`${title}: ${spoken(schema)}`, rows);
}

function table(title, rows) {
  if (!rows.length) return title.includes(":") ? el("p.faint", {}, title) : null;
  const cells = (row) => row.map((text, column) => el("td", {}, column ? text : el("code", {}, text)));
  return [el("h3", {}, title), el("div.scroll", {}, el("table.rows", {}, rows.map((row) => el("tr", {}, ...cells(row)))))];
}

const named = (schema) => schema.$ref?.split("/").pop();

function resolved(schema) {
  return schema.$ref ? (schemas[named(schema)] ?? {}) : schema;
}

/** A schema in a few words: `one of a, b`, `list of State`, `integer, 1 to 1000`. */
function spoken(schema) {
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) return choices.map(spoken).join(" or ");
  if (schema.items) return `list of ${spoken(schema.items)}`;
  const kind = resolved(schema);
  if (kind.enum) return `one of ${kind.enum.join(", ")}`;
  if (schema.$ref) return named(schema);
  const range = "minimum" in schema || "maximum" in schema ? `, ${schema.minimum ?? "…"} to ${schema.maximum ?? "…"}` : "";
  return (schema.format ?? schema.type ?? "anything") + range;
}

find("main").replaceChildren(...tags.map(section));
