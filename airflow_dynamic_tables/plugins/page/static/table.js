// One table: its state, and tabs that load what they show when they are opened.

import { allTables, get, tablePath } from "./api.js";
import {
  backfillTable,
  decide,
  expectationText,
  partitionsText,
  refreshTable,
  resumeTable,
  rollBack,
  suspendTable,
} from "./actions.js";
import { plotRefreshes, totalSeconds } from "./charts.js";
import {
  airflowLink,
  badge,
  bytes,
  clock,
  duration,
  el,
  lagBar,
  none,
  number,
  refreshBadge,
  showError,
  stateBadge,
  tableHref,
  time,
  withinFreshness,
} from "./dom.js";
import { drawLineage } from "./lineage.js";
import { drawCalendar } from "./calendar.js";

const find = (id) => document.getElementById(id);
const wanted = new URLSearchParams(window.location.search);
let name = wanted.get("table");
let table;
let history;

const TABS = [
  { id: "refreshes", title: "Refreshes", show: showRefreshes },
  { id: "partitions", title: "Partitions", show: showPartitions },
  { id: "lineage", title: "Lineage", show: showLineage },
  { id: "quality", title: "Expectations", show: showQuality },
  { id: "versions", title: "Versions", show: showVersions },
  { id: "cost", title: "Cost", show: showCost },
  { id: "definition", title: "Definition", show: showDefinition },
];

const grid = (headings, rows, caption) =>
  el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: "grid" },
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, headings.map(([title, kind]) => el("th", { scope: "col", class: kind }, title)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) => el("td", { class: headings[at][1] }, cell))))),
    ),
  );

const refreshes = () => (history ??= get(tablePath(name, "history"), { limit: 200 }).then((page) => page.refreshes));

async function showRefreshes(panel) {
  const found = await refreshes();
  if (!found.length) {
    panel.append(el("p", { class: "muted" }, "The table was never refreshed."));
    return;
  }
  const plots = el("div", { class: "plots" });
  const rows = found.slice(0, 100).map((one) => [
    time(one.startedAt),
    refreshBadge(one.state),
    one.action.toLowerCase().replace("_", " "),
    el(
      "div",
      { class: "reason" },
      el("div", {}, one.reason || none()),
      one.error ? el("div", { class: "error" }, one.error) : null,
      el("div", { class: "muted" }, partitionsText(one.partitions)),
    ),
    one.version === null ? none() : `v${one.version}`,
    number(one.rows),
    bytes(one.bytes),
    duration(Math.round(totalSeconds(one) * 10) / 10),
  ]);
  const headings = [
    ["Started", "nowrap"],
    ["Outcome"],
    ["Action", "nowrap"],
    ["Reason"],
    ["Version"],
    ["Rows", "number"],
    ["Bytes", "number nowrap"],
    ["Duration", "number nowrap"],
  ];
  panel.append(plots, grid(headings, rows, "The latest refreshes, newest first"));
  plotRefreshes(plots, found);
}

// The dirty partitions that the last refresh found.
function dirtyText(partitions) {
  const known = partitions.filter((one) => one.comparedAt);
  if (!known.length) return ["No refresh has compared the partitions with the sources yet."];
  const dirty = known.filter((one) => one.dirty).length;
  const from = known.map((one) => one.comparedAt).sort()[0];
  const unknown = partitions.some((one) => one.dirty === null && !one.frozen && one.exists !== false) ? ", others are not known" : "";
  return [`Dirty partitions: ${dirty ? number(dirty) : "none"}${unknown}, as of `, time(from), "."];
}

// The dirty partitions of a plan: those that it replaces, and those that it leaves. An empty spec stands for all.
function dirtyIn(plan) {
  const replaced = plan.action === "NO_DATA" || plan.action === "SKIP" ? null : plan.replaced;
  const all = [replaced, plan.leftDirty].filter((specs) => specs !== null);
  return all.some((specs) => specs.length === 0) ? [{}] : all.flat();
}

async function showPartitions(panel) {
  const { partitions } = await get(tablePath(name, "partitions"));
  if (!partitions.length) {
    const text = table.partitionKeys?.length ? "The table has no partition yet." : "The table is not partitioned.";
    panel.append(el("p", { class: "muted" }, text));
    return;
  }
  const check = el("button", { type: "button", class: "button" }, "Compare with the sources");
  const outcome = el("p", { class: "muted", role: "status" }, ...dirtyText(partitions));
  const place = el("div", {});
  const draw = (dirty) => drawCalendar(place, table, partitions, dirty);
  check.addEventListener("click", async () => {
    check.disabled = true;
    outcome.textContent = "Comparing…";
    try {
      const plan = await get(tablePath(name, "plan/live"));
      outcome.textContent = `A refresh now: ${(plan.action ?? "would fail").toLowerCase().replace("_", " ")}. ${plan.reason}`;
      draw(plan.action === null ? null : dirtyIn(plan));
    } catch (error) {
      outcome.textContent = error.message;
    }
    check.disabled = false;
  });
  panel.append(el("div", { class: "row" }, check, outcome), place);
  draw(null);
}

async function showLineage(panel) {
  const lineage = await get(tablePath(name, "lineage"));
  drawLineage(panel, lineage);
  const columns = Object.entries(lineage.columns);
  if (columns.length) {
    const rows = columns.map(([column, origins]) => [
      column,
      el("div", {}, origins.map((one) => el("div", {}, `${one.table}.${one.column}`, one.isCopy ? el("span", { class: "muted" }, " as it is") : null))),
    ]);
    panel.append(el("h2", { class: "later" }, "Columns"), grid([["Column", "nowrap"], ["Derived from"]], rows, "Origins of columns"));
  }
  if (table.sourcesRead?.length) {
    const rows = table.sourcesRead.map((one) => [
      one.source,
      one.number === null ? el("code", {}, one.version) : `v${one.number}`,
      one.numberNow === null ? none() : `v${one.numberNow}`,
      number(one.partitions),
      one.lastPartition ?? none(),
    ]);
    panel.append(
      el("h2", { class: "later" }, "Sources of the current version"),
      grid([["Source"], ["Version read"], ["Version now"], ["Partitions", "number"], ["Last partition"]], rows, "Versions of sources"),
    );
  }
}

async function showQuality(panel) {
  const found = await refreshes();
  const waiting = found.filter((one) => one.state === "QUARANTINED");
  panel.append(el("h2", {}, "Quarantine"));
  if (!waiting.length) panel.append(el("p", { class: "muted" }, "No refresh is in quarantine."));
  for (const one of waiting) {
    const failed = one.expectations.filter((each) => each.violations);
    panel.append(
      el(
        "div",
        { class: "notice warn" },
        el("p", {}, el("strong", {}, partitionsText(one.partitions)), " · refreshed ", time(one.startedAt)),
        el("ul", {}, failed.map((each) => el("li", {}, expectationText(each)))),
        el(
          "div",
          { class: "buttons start" },
          el("button", { type: "button", class: "button primary", onclick: () => decide(table, one, true, reload("Published.")) }, "Publish…"),
          el("button", { type: "button", class: "button", onclick: () => decide(table, one, false, reload("Aborted.")) }, "Abort…"),
        ),
      ),
    );
  }
  const rows = found
    .flatMap((one) => one.expectations.map((each) => ({ one, each })))
    .slice(0, 200)
    .map(({ one, each }) => [
      time(one.startedAt),
      each.violations ? badge(each.action === "drop" || each.action === "warn" ? "warn" : "bad", "Violated") : badge("good", "Met"),
      expectationText(each),
      each.action,
    ]);
  panel.append(el("h2", { class: "later" }, "Results"));
  if (rows.length) panel.append(grid([["Refresh", "nowrap"], ["Result"], ["Expectation"], ["Action"]], rows, "Results of expectations"));
  else panel.append(el("p", { class: "muted" }, "No refresh checked an expectation."));
}

async function showVersions(panel) {
  const { versions } = await get(tablePath(name, "versions"), { limit: 100 });
  if (!versions.length) {
    panel.append(el("p", { class: "muted" }, "The table has no version."));
    return;
  }
  const rows = versions.map((version, at) => [
    `v${version.number}`,
    time(version.committedAt),
    time(version.dataTimestamp, clock),
    version.partitions === null ? none() : partitionsText(version.partitions),
    el("code", {}, version.snapshot),
    at === 0
      ? badge("good", "Current")
      : el(
          "button",
          {
            type: "button",
            class: "button small",
            "aria-label": `Roll back to version ${version.number}`,
            onclick: () => rollBack(table, version, reload(`Rolled back to version ${version.number}.`)),
          },
          "Roll back…",
        ),
  ]);
  const headings = [["Version"], ["Committed", "nowrap"], ["Data up to", "nowrap"], ["Replaced"], ["Snapshot"], [""]];
  panel.append(grid(headings, rows, "Retained versions, newest first"));
}

async function showCost(panel) {
  const { months } = await get(tablePath(name, "saved"));
  if (!months.length) {
    panel.append(el("p", { class: "muted" }, "No refresh has been completed."));
    return;
  }
  panel.append(
    el("p", { class: "lead muted" }, "Time and bytes of the refreshes of each month, beside those of as many complete refreshes."),
  );
  const most = Math.max(...months.map((one) => one.fullSeconds ?? 0), 1);
  const share = (one) => {
    if (one.fullSeconds === null) return none();
    const [spent, saved] = [el("span", { class: "filled busy" }), el("span", { class: "saved" })];
    spent.style.width = `${(one.seconds / most) * 100}%`;
    saved.style.width = `${(Math.max(one.fullSeconds, one.seconds) / most) * 100}%`;
    const label = `${duration(one.seconds)} of ${duration(one.fullSeconds)}`;
    return el("span", { class: "bar wide", role: "img", "aria-label": label, title: label }, saved, spent);
  };
  const rows = months.map((one) => [
    one.month,
    number(one.refreshes),
    number(one.noData),
    duration(one.seconds),
    duration(one.savedSeconds),
    share(one),
    bytes(one.bytes),
    bytes(one.savedBytes),
  ]);
  const headings = [
    ["Month", "nowrap"],
    ["Refreshes", "number"],
    ["Skipped, no change", "number"],
    ["Time spent", "number nowrap"],
    ["Time saved", "number nowrap"],
    ["Share"],
    ["Written", "number nowrap"],
    ["Not written", "number nowrap"],
  ];
  panel.append(grid(headings, rows, "Cost by month"));
}

async function showDefinition(panel) {
  const facts = el("dl", { class: "facts narrow" });
  const fact = (title, value) => facts.append(el("div", {}, el("dt", {}, title), el("dd", {}, value)));
  fact("Format", table.format);
  fact("Partitioned by", table.partitionKeys?.join(", ") || "–");
  fact("Columns", table.columns?.length ? String(table.columns.length) : "–");
  panel.append(facts, el("h2", {}, "Query"), el("pre", { tabindex: "0" }, table.query ?? ""));
  if (table.columns?.length) {
    const rows = table.columns.map((one) => [el("code", {}, one.name), one.type, one.comment || none()]);
    panel.append(el("h2", { class: "later" }, "Columns"), grid([["Name"], ["Type"], ["Comment"]], rows, "Columns"));
  }
  panel.append(el("h2", { class: "later" }, "Definition and deployed table"));
  const place = el("div", {});
  panel.append(place);
  try {
    place.append(difference(await get(tablePath(name, "diff"))));
  } catch (error) {
    place.append(el("p", { class: "muted" }, error.message));
  }
}

const text = (value) => (value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value));

function difference(found) {
  if (!found.fields?.length) return el("p", {}, badge("good", "Equal"), ` ${found.problem ?? ""}`);
  const rows = found.fields.map((one) => [el("code", {}, one.name), el("pre", {}, text(one.deployed)), el("pre", {}, text(one.declared))]);
  return grid([["Field"], ["Deployed"], ["Defined"]], rows, "Differences between the definition and the deployed table");
}

const loaded = new Set();

async function open(id) {
  const tab = TABS.find((one) => one.id === id) ?? TABS[0];
  for (const one of TABS) {
    const isIt = one === tab;
    find(`tab-${one.id}`).setAttribute("aria-selected", String(isIt));
    find(`tab-${one.id}`).tabIndex = isIt ? 0 : -1;
    find(`panel-${one.id}`).hidden = !isIt;
  }
  window.history.replaceState(null, "", `#${tab.id}`);
  if (loaded.has(tab.id)) return;
  loaded.add(tab.id);
  const panel = find(`panel-${tab.id}`);
  const waiting = el("p", { class: "muted" }, "Loading…");
  panel.replaceChildren(waiting);
  try {
    await tab.show(panel);
  } catch (error) {
    loaded.delete(tab.id);
    const place = el("div", {});
    panel.replaceChildren(place);
    showError(place, error);
  }
  waiting.remove();
}

function move(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const at = TABS.findIndex((one) => find(`tab-${one.id}`) === document.activeElement);
  const next = TABS[(at + step + TABS.length) % TABS.length];
  find(`tab-${next.id}`).focus();
  open(next.id);
}

function prepareTabs() {
  find("tabs").replaceChildren(
    ...TABS.map((tab) =>
      el(
        "button",
        { type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": `panel-${tab.id}`, onclick: () => open(tab.id) },
        tab.title,
      ),
    ),
  );
  find("tabs").addEventListener("keydown", move);
  find("panels").replaceChildren(
    ...TABS.map((tab) =>
      el("div", { role: "tabpanel", id: `panel-${tab.id}`, "aria-labelledby": `tab-${tab.id}`, class: "panel", hidden: true }),
    ),
  );
}

function showHead() {
  document.title = table.identifier;
  find("name").textContent = table.identifier;
  find("state").replaceChildren(stateBadge(table));
  find("comment").textContent = table.comment ?? "";
  const facts = [
    ["Freshness", table.freshness || none()],
    ["Lag", lagBar(table)],
    ["Within freshness", withinFreshness(table)],
    ["Fresh up to", time(table.freshUntil, clock)],
    ["Mode", table.refreshMode.toLowerCase()],
    ["Version", table.version === null ? none() : `v${table.version}`],
    ["Last refresh", table.lastRefresh ? el("span", {}, refreshBadge(table.lastRefresh), " ", time(table.lastStartedAt)) : none()],
    ["Next refresh", time(table.nextRefresh)],
    ["DAG", table.workflowId ? airflowLink(`dags/${encodeURIComponent(table.workflowId)}`, "Open in Airflow") : none()],
  ];
  find("facts").replaceChildren(...facts.map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value))));
  const isSuspended = table.jobState === "SUSPENDED";
  const button = (title, run, kind = "") => el("button", { type: "button", class: `button ${kind}`, onclick: run }, title);
  find("actions").replaceChildren(
    button("Refresh…", () => refreshTable(table, follow), "primary"),
    isSuspended
      ? button("Resume…", () => resumeTable(table, changed))
      : button("Suspend…", () => suspendTable(table, changed)),
    button("Backfill…", () => backfillTable(table)),
  );
}

async function showDelay() {
  const delay = await get(tablePath(name, "delay"));
  if (!delay.stopped) {
    find("delay").replaceChildren();
    return;
  }
  const place = delay.stopped === name ? "This table" : el("a", { href: tableHref(delay.stopped) }, delay.stopped);
  const kind = { SUSPENDED: "", PAUSED: "", REFRESHING: "", QUARANTINED: "warn", REJECTED: "warn" }[delay.cause] ?? "bad";
  find("delay").replaceChildren(
    el(
      "section",
      { class: `notice ${kind}`, "aria-label": "Where the delay began" },
      el("p", {}, el("strong", {}, place, ` ${CAUSES[delay.cause]}`), delay.since ? [". Fresh up to ", time(delay.since, clock)] : null, "."),
      delay.why ? el("p", { class: "error" }, delay.why) : null,
      delay.path.length > 1 ? el("p", { class: "muted" }, delay.path.join(" → ")) : null,
      el("p", {}, delay.turn),
    ),
  );
}

const CAUSES = {
  SUSPENDED: "is suspended",
  QUARANTINED: "has a refresh in quarantine",
  FAILED: "failed to refresh",
  REJECTED: "had a refresh in quarantine, which a user aborted",
  REFRESHING: "is being refreshed",
  NO_VERSION: "has no version",
  LATE: "is late",
  PAUSED: "has a paused DAG",
};

function tell(kind, ...children) {
  find("notice").replaceChildren(el("div", { class: `notice ${kind}` }, ...children));
}

const changed = async (change) => {
  tell("good", `${change.before.toLowerCase()} → ${change.after.toLowerCase()}. ${change.workflow}`);
  await load();
};

const reload = (text) => async () => {
  tell("good", text);
  await load();
};

// Look at a job until it has ended, less and less often.
async function follow(accepted) {
  const info = accepted.clusterInfo;
  const run = info.dagId
    ? airflowLink(`dags/${encodeURIComponent(info.dagId)}/runs/${encodeURIComponent(info.runId)}`, "Open the run in Airflow")
    : null;
  tell("", "The refresh was requested. ", run);
  for (let wait = 1000; ; wait = Math.min(wait * 1.5, 15000)) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    let job;
    try {
      job = await get(`jobs/${encodeURIComponent(accepted.jobId)}`);
    } catch (error) {
      tell("bad", error.message, " ", run);
      return;
    }
    const [one] = job.refreshes;
    if (job.ended) {
      const kind = { SUCCEEDED: "good", SKIPPED: "" }[job.state] ?? "bad";
      tell(kind, `The refresh ended: ${job.state.toLowerCase()}. ${one.error ?? ""} `, run);
      await load();
      return;
    }
    tell("", `The refresh is ${job.state.toLowerCase()}. `, run);
  }
}

async function load() {
  table = await get(tablePath(name));
  history = undefined;
  loaded.clear();
  showHead();
  await Promise.all([
    showDelay().catch((error) => showError(find("error"), error)),
    open(window.location.hash.slice(1) || TABS[0].id),
  ]);
}

// The tables of a DAG: one is shown at once, of several one is chosen.
async function nameOf(workflow) {
  const found = [];
  for await (const tables of allTables({ workflow })) found.push(...tables);
  if (found.length === 1) return found[0].identifier;
  find("name").textContent = workflow;
  find("error").replaceChildren(
    found.length
      ? el("ul", {}, found.map((one) => el("li", {}, el("a", { href: tableHref(one.identifier) }, one.identifier), " ", stateBadge(one))))
      : el("p", { class: "muted" }, "This DAG refreshes no dynamic table that you may read."),
  );
  return null;
}

try {
  if (!name && wanted.get("workflow")) name = await nameOf(wanted.get("workflow"));
  if (name) {
    prepareTabs();
    await load();
  }
} catch (error) {
  find("name").textContent = name ?? "";
  showError(find("error"), error);
}

window.addEventListener("hashchange", () => table && open(window.location.hash.slice(1)));
