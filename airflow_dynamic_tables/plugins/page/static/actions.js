// The buttons of a table. Each shows what it will do before it does it.

import { get, post, tablePath } from "./api.js";
import { ask } from "./dialog.js";
import { airflowLink, badge, clock, duration, el, showError, time } from "./dom.js";

const partitionsText = (partitions) => {
  if (partitions === null || partitions === undefined) return "none";
  if (partitions.length === 0) return "the complete table";
  const names = partitions.map((spec) =>
    Object.entries(spec)
      .map(([key, value]) => `${key}=${value}`)
      .join("/"),
  );
  return names.length > 4 ? `${names.slice(0, 2).join(", ")}, … ${names.at(-1)} (${names.length} partitions)` : names.join(", ");
};

export { partitionsText };

function planView(plan) {
  const isTold = plan.catchUp === null || plan.reason.includes(plan.catchUpReason);
  const facts = [
    ["Action", plan.action ? plan.action.toLowerCase().replace("_", " ") : "it would fail"],
    ["Reason", plan.reason],
    ["Partitions", plan.action === "NO_DATA" || plan.action === "SKIP" ? "none" : partitionsText(plan.replaced)],
    ["Schedule time", clock(plan.scheduleTime)],
    ["Expected duration", plan.expectedSeconds === null ? "–" : duration(plan.expectedSeconds)],
    ["Missed ticks", isTold ? null : `${partitionsText(plan.catchUp)}: ${plan.catchUpReason}`],
    ["Then out of date", plan.downstream.length ? plan.downstream.join(", ") : null],
  ];
  return el(
    "dl",
    { class: "facts narrow" },
    facts.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

export function refreshTable(table, follow) {
  const plan = el("div", {}, el("p", { class: "muted" }, "Planning…"));
  const partition = el("input", { id: "partition", type: "text", placeholder: "ds=2024-01-05", autocomplete: "off" });
  const full = el("input", { id: "full", type: "checkbox" });
  const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const { problem } = ask({
    title: `Refresh ${table.identifier}`,
    action: "Refresh",
    body: [
      el("h3", {}, "Plan for the latest tick"),
      plan,
      table.partitionKeys?.length
        ? el("label", { class: "field" }, el("span", { class: "label" }, "Only these partitions, separated by commas"), partition)
        : null,
      el("label", { class: "check" }, full, " Replace the complete table"),
    ],
    run: async () => {
      const body = { fullRefresh: full.checked };
      if (partition.value.trim()) body.partition = partition.value.trim();
      const job = await post(tablePath(table.identifier, "refresh"), body, { "idempotency-key": key });
      follow(job);
    },
  });
  get(tablePath(table.identifier, "plan/live")).then(
    (found) => plan.replaceChildren(planView(found)),
    (error) => {
      plan.replaceChildren();
      showError(problem, error);
    },
  );
}

export function suspendTable(table, done) {
  const reason = el("input", { id: "reason", type: "text", maxlength: "2000", autocomplete: "off" });
  ask({
    title: `Suspend ${table.identifier}`,
    action: "Suspend",
    body: [
      el("p", {}, "No refresh starts until the table is resumed. A running refresh continues. The DAG is paused."),
      el("label", { class: "field" }, el("span", { class: "label" }, "Reason, shown to everyone who looks at the table"), reason),
    ],
    run: async () => done(await post(tablePath(table.identifier, "suspend"), { reason: reason.value })),
  });
}

export function resumeTable(table, done) {
  ask({
    title: `Resume ${table.identifier}`,
    action: "Resume",
    body: [el("p", {}, "The next refresh makes up for missed ticks. The DAG is unpaused.")],
    run: async () => done(await post(tablePath(table.identifier, "resume"), {})),
  });
}

export function rollBack(table, version, done) {
  const columns = el("input", { id: "columns", type: "checkbox" });
  ask({
    title: `Roll ${table.identifier} back to version ${version.number}`,
    action: "Roll back",
    isDanger: true,
    body: [
      el(
        "p",
        {},
        `The content of version ${version.number}, committed `,
        time(version.committedAt, clock),
        ", becomes a new version. No data is copied or deleted. The next scheduled refresh works on top of it.",
      ),
      el("label", { class: "check" }, columns, " Also restore its columns, if the table has others now"),
    ],
    run: async () => {
      const body = { version: version.number, withColumns: columns.checked };
      done(await post(tablePath(table.identifier, "rollback"), body));
    },
  });
}

export function decide(table, refresh, isPublished, done) {
  ask({
    title: isPublished ? "Publish the refresh in quarantine" : "Abort the refresh in quarantine",
    action: isPublished ? "Publish" : "Abort",
    isDanger: !isPublished,
    body: [
      el("p", {}, "It violates:"),
      el("ul", {}, refresh.expectations.filter((one) => one.violations).map((one) => el("li", {}, expectationText(one)))),
      el("p", {}, `It ${isPublished ? "replaces" : "would replace"} ${partitionsText(refresh.partitions)}.`),
      el(
        "p",
        {},
        isPublished
          ? "Its rows are committed as a new version, although they violate the expectations."
          : "Its rows are deleted. The table stays as it is.",
      ),
    ],
    run: async () =>
      done(await post(tablePath(table.identifier, isPublished ? "publish" : "abort"), { token: refresh.token })),
  });
}

export const expectationText = (one) => {
  if (one.detail) return `${one.name}: ${one.detail}`;
  if (!one.violations) return `${one.name}: no row violates it`;
  return `${one.name}: ${one.violations} rows violate it${one.action === "drop" ? " and were left out" : ""}`;
};

// Airflow's form has no address that fills it in, so the range is shown beside the link.
export function backfillTable(table) {
  ask({
    title: `Backfill ${table.identifier}`,
    body: [
      el("p", {}, "A backfill runs the DAG for a range of ticks. Start it on the page of the DAG: Trigger, then Backfill."),
      table.missing ? el("p", {}, badge("warn", "Missing"), ` ${table.missing}`) : null,
      table.freshUntil ? el("p", {}, "Fresh up to ", time(table.freshUntil, clock), ".") : null,
      table.nextRefresh ? el("p", {}, "Next tick ", time(table.nextRefresh, clock), ".") : null,
      el("p", {}, airflowLink(`dags/${encodeURIComponent(table.workflowId)}/backfills`, "Open the backfills of the DAG")),
    ],
  });
}

