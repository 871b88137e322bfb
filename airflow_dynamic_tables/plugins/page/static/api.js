// The REST API, which is beside the folder of the page at any path prefix. The cookie of Airflow's UI is the login.

const ROOT = new URL("../", window.location.href);

export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `The server responded with status ${status}.`);
    this.status = status;
    this.title = problem.title ?? "The request failed";
    this.fields = problem.errors ?? [];
  }
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(new URL(path, ROOT), { credentials: "same-origin", ...options });
  } catch {
    throw new ApiError(0, { title: "Airflow is not reachable", detail: "Check the connection, then load the page again." });
  }
  if (answer.ok) return answer.json();
  let problem = {};
  try {
    problem = await answer.json();
  } catch {
    // a proxy sends other documents
  }
  if (answer.status === 401) problem = { title: "You are logged out", detail: "Log in to Airflow, then load the page again." };
  throw new ApiError(answer.status, problem);
}

const query = (parameters) => {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const get = (path, parameters = {}) => request(path + query(parameters));

export const post = (path, body, headers = {}) =>
  request(path, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers } });

export const tablePath = (name, part = "") => `dynamic-tables/${encodeURIComponent(name)}${part ? `/${part}` : ""}`;

// Every table, in pages.
export async function* allTables(parameters = {}) {
  let after = "";
  do {
    const page = await get("dynamic-tables", { limit: 1000, after, ...parameters });
    yield page.tables;
    after = page.next;
  } while (after);
}
