// Partitions: a calendar if they are days, and a list.

import { badge, clock, el, none, number, time } from "./dom.js";

const DAY = /^(\d{4})-(\d{2})-(\d{2})/;
const MONTHS = 6;
const MOST = 500;

const matches = (one, spec) => Object.entries(spec).every(([key, value]) => one.values[key] === value);

function stateOf(one, dirty) {
  if (one.quarantined) return ["warn", "Quarantined"];
  if (dirty ? dirty.some((spec) => matches(one, spec)) : one.dirty) return ["bad", "Dirty"];
  if (one.frozen) return ["busy", "Frozen"];
  if (one.exists === false) return ["idle", "No rows"];
  return ["good", "Made"];
}

const URGENT = ["Dirty", "Quarantined", "No rows", "Frozen", "Made"];

function month(year, number_, days) {
  const cells = [];
  const first = (new Date(year, number_ - 1, 1).getDay() + 6) % 7; // weeks begin on Monday
  for (let blank = 0; blank < first; blank += 1) cells.push(el("span", { "aria-hidden": "true" }));
  for (let day = 1; day <= new Date(year, number_, 0).getDate(); day += 1) {
    const known = days.get(day);
    if (!known) {
      cells.push(el("span", { class: "day" }, String(day)));
      continue;
    }
    const [kind, word] = known.states.sort((a, b) => URGENT.indexOf(a[1]) - URGENT.indexOf(b[1]))[0];
    const rows = known.rows.every((value) => value !== null) ? `, ${number(known.rows.reduce((a, b) => a + b, 0))} rows` : "";
    const age = known.at ? `, made ${clock(known.at)}` : "";
    const label = `${year}-${String(number_).padStart(2, "0")}-${String(day).padStart(2, "0")}: ${word.toLowerCase()}${rows}${age}`;
    cells.push(el("span", { class: `day ${kind}`, role: "img", "aria-label": label, title: label }, String(day)));
  }
  const title = new Date(year, number_ - 1, 1).toLocaleDateString("en-US", { month: "long", year: "numeric" });
  return el("section", { class: "month", "aria-label": title }, el("h3", {}, title), el("div", { class: "days" }, cells));
}

function byMonth(partitions, dirty) {
  const months = new Map();
  for (const one of partitions) {
    const found = Object.values(one.values)
      .map((value) => DAY.exec(value))
      .find(Boolean);
    if (!found) return null;
    const [year, number_, day] = found.slice(1).map(Number);
    const key = year * 12 + number_ - 1;
    if (!months.has(key)) months.set(key, new Map());
    const days = months.get(key);
    const known = days.get(day) ?? { states: [], rows: [], at: null };
    known.states.push(stateOf(one, dirty));
    known.rows.push(one.rows);
    if (one.refreshedAt && (!known.at || one.refreshedAt > known.at)) known.at = one.refreshedAt;
    days.set(day, known);
  }
  return months;
}

// The calendar and the list. `dirty` has the specs of the dirty partitions; null: those that the last refresh found.
export function drawCalendar(place, table, partitions, dirty) {
  place.replaceChildren();
  const months = byMonth(partitions, dirty);
  if (months) {
    const keys = [...months.keys()].sort((a, b) => b - a).slice(0, MONTHS);
    place.append(
      el("div", { class: "legend" }, badge("good", "Made"), badge("bad", "Dirty"), badge("warn", "Quarantined"), badge("busy", "Frozen"), badge("idle", "No rows")),
      el("div", { class: "months" }, keys.map((key) => month(Math.floor(key / 12), (key % 12) + 1, months.get(key)))),
    );
  }
  const newest = [...partitions].reverse().slice(0, MOST);
  const rows = newest.map((one) => {
    const cells = [
      el("code", {}, one.name),
      badge(...stateOf(one, dirty)),
      one.version === null ? none() : `v${one.version}`,
      number(one.rows),
      time(one.refreshedAt),
    ];
    return el("tr", {}, cells.map((cell, at) => el("td", { class: at === 3 ? "number" : undefined }, cell)));
  });
  const heads = ["Partition", "State", "Version", "Rows", "Made"].map((title, at) =>
    el("th", { scope: "col", class: at === 3 ? "number" : undefined }, title),
  );
  place.append(
    el("h2", { class: "later" }, partitions.length > MOST ? `The last ${MOST} of ${number(partitions.length)} partitions` : `${number(partitions.length)} partitions`),
    el(
      "div",
      { class: "scroll" },
      el("table", { class: "grid" }, el("caption", { class: "hidden" }, `Partitions of ${table.identifier}`), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)),
    ),
  );
}
