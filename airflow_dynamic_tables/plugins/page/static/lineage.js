// Lineage: the tables at most two steps away, in columns from upstream to downstream, with lines between them.

import { badge, duration, el, kindOf, stateBadge, tableHref } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";

function node(one) {
  const parts = one.identifier.split(".");
  const lag = one.status?.lagSeconds;
  const title = el("span", { class: "nodename" }, el("span", { class: "place" }, `${parts.slice(0, -1).join(".")}.`), parts.at(-1));
  const below = one.status
    ? el("span", { class: "nodestate" }, stateBadge(one.status), lag === null ? null : el("span", { class: "muted" }, `lag ${duration(lag)}`))
    : el("span", { class: "nodestate" }, badge("idle", "Source"));
  const content = [title, below];
  const kind = `node ${one.status ? kindOf(one.status) : "source"} ${one.steps === 0 ? "here" : ""}`;
  return one.status && one.steps !== 0
    ? el("a", { class: kind, href: `${tableHref(one.identifier)}#lineage` }, content)
    : el("div", { class: kind, "aria-current": one.steps === 0 ? "true" : undefined }, content);
}

export function drawLineage(place, lineage) {
  const steps = [...new Set(lineage.tables.map((one) => one.steps))].sort((a, b) => a - b);
  const nodes = new Map(lineage.tables.map((one) => [one.identifier, node(one)]));
  const lines = document.createElementNS(SVG, "svg");
  lines.setAttribute("aria-hidden", "true");
  const titles = { "-2": "Two steps upstream", "-1": "Reads", 0: "This table", 1: "Read by", 2: "Two steps downstream" };
  const columns = steps.map((step) =>
    el(
      "section",
      { class: "step", "aria-label": titles[step] },
      el("h3", { class: "muted" }, titles[step]),
      lineage.tables.filter((one) => one.steps === step).map((one) => nodes.get(one.identifier)),
    ),
  );
  const graph = el("div", { class: "graph" }, lines, columns);
  place.append(el("div", { class: "scroll" }, graph));

  const connect = () => {
    const box = graph.getBoundingClientRect();
    if (!box.width) return;
    lines.replaceChildren();
    lines.setAttribute("width", graph.scrollWidth);
    lines.setAttribute("height", graph.scrollHeight);
    for (const one of lineage.tables) {
      for (const source of one.reads) {
        const [from, to] = [nodes.get(source).getBoundingClientRect(), nodes.get(one.identifier).getBoundingClientRect()];
        const [x1, y1] = [from.right - box.left, from.top + from.height / 2 - box.top];
        const [x2, y2] = [to.left - box.left, to.top + to.height / 2 - box.top];
        const bend = Math.max((x2 - x1) / 2, 12);
        const path = document.createElementNS(SVG, "path");
        path.setAttribute("d", `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`);
        lines.append(path);
      }
    }
  };
  new ResizeObserver(connect).observe(graph);
}
