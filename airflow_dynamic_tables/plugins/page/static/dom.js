// Elements and texts. Everything from the server becomes a text node, never markup.

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const none = () => el("span", { class: "muted" }, "–");

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (Math.abs(seconds) < 1) return seconds === 0 ? "0 s" : `${seconds.toFixed(1)} s`;
  const sign = seconds < 0 ? "−" : "";
  let left = Math.round(Math.abs(seconds));
  const parts = [];
  for (const [unit, size] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) parts.push(`${count} ${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return sign + (parts.join(" ") || "0 s");
}

export function number(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let rank = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1024 && rank < units.length - 1) {
    scaled /= 1024;
    rank += 1;
  }
  return `${rank ? scaled.toFixed(1) : scaled} ${units[rank]}`;
}

const pad = (value) => String(value).padStart(2, "0");

export function clock(text) {
  const at = new Date(text);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
}

export function ago(text) {
  const seconds = (Date.now() - new Date(text).getTime()) / 1000;
  if (Math.abs(seconds) < 45) return seconds < 0 ? "in a moment" : "just now";
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}

// A time relative to now, with the exact one in the time zone of the browser as its title.
export function time(text, show = ago) {
  if (!text) return none();
  return el("time", { datetime: text, title: `${clock(text)} (${Intl.DateTimeFormat().resolvedOptions().timeZone})` }, show(text));
}

export function badge(kind, text, title) {
  return el("span", { class: `badge ${kind}`, title }, text);
}

export const words = (code) => code[0] + code.slice(1).toLowerCase().replaceAll("_", " ");

const KINDS = { FAILED: "bad", LATE: "bad", QUARANTINED: "warn", REJECTED: "warn", REFRESHING: "busy", FRESH: "good" };

export const kindOf = (table) => KINDS[table.state] ?? "idle";

export function stateBadge(table) {
  return badge(kindOf(table), words(table.state), table.suspendedBecause || table.lastError || table.problem || undefined);
}

// The lag beside the lag that is allowed now. The bar ends at 150 %.
export function lagBar(table) {
  if (table.lagSeconds === null || table.lagSeconds === undefined) return none();
  const allowed = table.allowedLagSeconds;
  const text = duration(table.lagSeconds);
  if (!allowed) return el("span", {}, text);
  const share = table.lagSeconds / allowed;
  const filled = el("span", { class: `filled ${table.late ? "bad" : share > 0.8 ? "warn" : "good"}` });
  filled.style.width = `${(Math.min(share, 1.5) / 1.5) * 100}%`;
  const label = `Lag ${text}, allowed ${duration(allowed)}`;
  return el(
    "span",
    { class: "lag", title: label, role: "img", "aria-label": label },
    el("span", { class: "bar" }, filled, el("span", { class: "limit" })),
    el("span", { class: "lagtext" }, text),
  );
}

// Only a complete share is 100 %.
export const percentage = (share) => (share === null ? "–" : `${Math.floor(share * 1000) / 10} %`);

export function withinFreshness(table) {
  if (table.shareOfWeek === null) return none();
  return el("span", {}, `${percentage(table.shareOfDay)} in 24 h, ${percentage(table.shareOfWeek)} in 7 d`);
}

export function refreshBadge(state) {
  if (!state) return none();
  const kinds = { SUCCEEDED: "good", RUNNING: "busy", SKIPPED: "idle", QUARANTINED: "warn", REJECTED: "warn" };
  return badge(kinds[state] ?? "bad", words(state));
}

export const tableHref = (name) => `table.html?table=${encodeURIComponent(name)}`;

// Airflow's frame permits neither new windows nor navigation of the page around it, but it has the same origin:
// a link inside that page may be followed there.
export function airflowLink(path, ...children) {
  const href = new URL(`../../${path}`, window.location.href).href;
  return el(
    "a",
    {
      href,
      target: "_top",
      onclick: (event) => {
        if (window.parent === window) return;
        event.preventDefault();
        const link = window.parent.document.createElement("a");
        link.href = href;
        window.parent.document.body.append(link);
        link.click();
        link.remove();
      },
    },
    ...children,
  );
}

export function showError(place, error) {
  place.replaceChildren(
    el("div", { class: "notice bad" }, el("strong", {}, error.title ?? "Error"), " ", error.message ?? String(error)),
  );
}
