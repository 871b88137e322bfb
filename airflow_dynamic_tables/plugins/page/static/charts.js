// Plots of refreshes over time.

import { bytes, clock, duration, el, number } from "./dom.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function plot(place, times, values, show, name) {
  const [line, grid, text] = [style("--accent"), style("--line"), style("--muted")];
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  const options = {
    width: Math.max(place.clientWidth, 260),
    height: 170,
    legend: { live: true },
    cursor: { points: { size: 6 } },
    scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    axes: [
      axis,
      { ...axis, size: 70, values: (_plot, ticks) => ticks.map(show) },
    ],
    series: [
      { label: "Refresh", value: (_plot, at) => (at ? clock(at * 1000) : "–") },
      { label: name, stroke: line, width: 1.5, points: { show: values.length < 80, size: 5 }, value: (_plot, value) => show(value) },
    ],
  };
  return new window.uPlot(options, [times, values], place);
}

const SERIES = [
  { title: "Duration", name: "Seconds", value: (one) => one.total, show: duration },
  { title: "Rows written", name: "Rows", value: (one) => one.rows, show: number },
  { title: "Bytes written", name: "Bytes", value: (one) => one.bytes, show: bytes },
];

export const totalSeconds = (refresh) =>
  Object.entries(refresh.seconds ?? {})
    .filter(([step]) => !step.includes(".")) // a step with a dot is a part of another one
    .reduce((sum, [, seconds]) => sum + seconds, 0);

export function plotRefreshes(place, refreshes) {
  const made = refreshes
    .filter((one) => one.version !== null && ["SUCCEEDED", "UNDONE"].includes(one.state))
    .map((one) => ({ ...one, total: totalSeconds(one) }))
    .reverse();
  if (made.length < 2) {
    place.replaceChildren(el("p", { class: "muted" }, "Plots need at least two versions."));
    return;
  }
  const times = made.map((one) => new Date(one.startedAt).getTime() / 1000);
  const draw = () => {
    place.replaceChildren();
    const plots = [];
    for (const { title, name, value, show } of SERIES) {
      const values = made.map(value);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const label = `${title} of ${made.length} refreshes, from ${show(low)} to ${show(high)}, the latest ${show(values.at(-1))}`;
      const canvas = el("div", { class: "plot", role: "img", "aria-label": label });
      place.append(el("section", {}, el("h3", {}, title), canvas));
      plots.push([canvas, times, values, show, name]);
    }
    for (const one of plots) plot(...one); // when each has its width
  };
  draw();
  document.addEventListener("themechange", draw);
  let width = place.clientWidth;
  window.addEventListener("resize", () => {
    if (place.clientWidth === 0 || place.clientWidth === width) return;
    width = place.clientWidth;
    draw();
  });
}
