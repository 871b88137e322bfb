// The list of all tables: search, filters, and sorting.

import { allTables } from "./api.js";
import { badge, el, lagBar, none, percentage, refreshBadge, showError, stateBadge, tableHref, time, words } from "./dom.js";

const when = (text) => (text ? new Date(text).getTime() : null);

const COLUMNS = [
  { id: "name", title: "Table", key: (table) => table.identifier, cell: nameCell, isHead: true },
  { id: "state", title: "State", key: (table) => urgency(table), cell: stateBadge },
  { id: "freshness", title: "Freshness", key: (table) => table.freshnessSeconds, cell: (table) => table.freshness || none() },
  { id: "lag", title: "Lag", key: (table) => share(table), cell: lagBar },
  { id: "share", title: "In time, 7 d", key: (table) => table.shareOfWeek, cell: (table) => percentage(table.shareOfWeek) },
  { id: "mode", title: "Mode", key: (table) => table.refreshMode, cell: (table) => table.refreshMode.toLowerCase() || none() },
  { id: "last", title: "Last refresh", key: (table) => when(table.lastStartedAt), cell: lastCell },
  { id: "next", title: "Next refresh", key: (table) => when(table.nextRefresh), cell: (table) => time(table.nextRefresh) },
];

const STATES = ["FAILED", "LATE", "QUARANTINED", "REJECTED", "REFRESHING", "PAUSED", "SUSPENDED", "NO_VERSION", "UNKNOWN", "FRESH"];
const urgency = (table) => STATES.indexOf(table.state);
const share = (table) => (table.lagSeconds === null ? null : table.lagSeconds / (table.allowedLagSeconds || 1));

const find = (id) => document.getElementById(id);
const [search, state, mode, body] = [find("search"), find("state"), find("mode"), document.querySelector("#tables tbody")];
const wanted = new URLSearchParams(window.location.search);
const order = { column: wanted.get("sort") ?? "state", isDown: wanted.get("down") === "1" };
let rows = [];

function nameCell(table) {
  const parts = table.identifier.split(".");
  const place = parts.slice(0, -1).join(".");
  return el(
    "a",
    { class: "name", href: tableHref(table.identifier) },
    el("span", { class: "place" }, `${place}.`),
    el("span", { class: "table" }, parts.at(-1)),
    table.defined === false ? badge("idle", "not defined") : null,
  );
}

function lastCell(table) {
  if (!table.lastRefresh) return none();
  const why = table.lastError || table.lastReason || "";
  return el(
    "div",
    { class: "last" },
    el("div", {}, refreshBadge(table.lastRefresh), " ", time(table.lastStartedAt)),
    el("div", { class: "why", title: why }, why),
  );
}

class Row {
  #element;

  constructor(table) {
    this.table = table;
    this.name = table.identifier.toLowerCase();
  }

  // Made when it is first shown: a filter may hide most of a thousand rows.
  get element() {
    const cell = (column) =>
      column.isHead
        ? el("th", { scope: "row" }, column.cell(this.table))
        : el("td", { class: `c-${column.id}` }, column.cell(this.table));
    return (this.#element ??= el("tr", {}, COLUMNS.map(cell)));
  }
}

function compare(one, other) {
  const { key } = COLUMNS.find((column) => column.id === order.column) ?? COLUMNS[0];
  const [a, b] = [key(one.table), key(other.table)];
  if (a === b) return one.name < other.name ? -1 : 1;
  if (a === null || b === null) return a === null ? 1 : -1; // unknown values are last in both directions
  return (a < b ? -1 : 1) * (order.isDown ? -1 : 1);
}

function shown() {
  const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (one) =>
    terms.every((term) => one.name.includes(term)) &&
    (!state.value || one.table.state === state.value) &&
    (!mode.value || one.table.refreshMode === mode.value);
  return rows.filter(fits).sort(compare);
}

const AT_FIRST = 60;
let fillings = 0;

// Paint the first rows before the others are laid out.
function fill(found) {
  const filling = ++fillings;
  body.replaceChildren(...found.slice(0, AT_FIRST).map((one) => one.element));
  const others = () => filling === fillings && body.append(...found.slice(AT_FIRST).map((one) => one.element));
  if (found.length > AT_FIRST) requestAnimationFrame(() => setTimeout(others));
}

function render() {
  const found = shown();
  fill(found);
  find("empty").hidden = found.length > 0 || rows.length === 0;
  const late = rows.filter((one) => one.table.late).length;
  const failed = rows.filter((one) => one.table.state === "FAILED").length;
  const all = rows.length === 1 ? "1 table" : `${rows.length.toLocaleString("en-US")} tables`;
  const some = found.length === rows.length ? all : `${found.length.toLocaleString("en-US")} of ${all}`;
  find("summary").textContent = `${some} · ${late} late · ${failed} failed`;
  for (const heading of document.querySelectorAll("#tables thead th")) {
    const isIt = heading.dataset.column === order.column;
    heading.setAttribute("aria-sort", isIt ? (order.isDown ? "descending" : "ascending") : "none");
  }
  remember();
}

function remember() {
  const entries = { q: search.value, state: state.value, mode: mode.value, sort: order.column, down: order.isDown ? "1" : "" };
  const given = Object.entries(entries).filter(([, value]) => value);
  history.replaceState(null, "", `?${new URLSearchParams(given)}`);
}

function sortBy(column) {
  order.isDown = order.column === column ? !order.isDown : false;
  order.column = column;
  render();
}

function options(select, title, values, chosen) {
  const every = [["", title], ...values.map((value) => [value, words(value)])];
  select.replaceChildren(...every.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
}

function prepare() {
  const headings = COLUMNS.map(({ id, title }) =>
    el("th", { scope: "col", "data-column": id }, el("button", { type: "button", onclick: () => sortBy(id) }, title)),
  );
  document.querySelector("#tables thead tr").replaceChildren(...headings);
  search.value = wanted.get("q") ?? "";
  options(state, "Any", STATES, wanted.get("state") ?? "");
  options(mode, "Any", [], "");
  search.addEventListener("input", render);
  state.addEventListener("change", render);
  mode.addEventListener("change", render);
}

async function load() {
  const found = [];
  try {
    for await (const tables of allTables()) {
      found.push(...tables.map((table) => new Row(table)));
      rows = found;
      const modes = [...new Set(found.map((one) => one.table.refreshMode))].filter(Boolean).sort();
      options(mode, "Any", modes, mode.value || (wanted.get("mode") ?? ""));
      render();
    }
    if (!found.length) find("summary").textContent = "There are no dynamic tables that you may read.";
  } catch (error) {
    find("summary").textContent = "";
    showError(find("error"), error);
  }
}

prepare();
await load();
