// One dialog: a title, a body, and a button that does something, if there is anything to do. Errors are shown in it.

import { el, showError } from "./dom.js";

export function ask({ title, body, action, isDanger = false, run }) {
  const dialog = document.getElementById("dialog");
  const problem = el("div", { role: "alert" });
  const cancel = el("button", { type: "button", class: "button", onclick: () => dialog.close() }, run ? "Cancel" : "Close");
  const confirm = run && el(
    "button",
    {
      type: "button",
      class: `button ${isDanger ? "danger" : "primary"}`,
      onclick: async () => {
        confirm.disabled = true;
        problem.replaceChildren();
        try {
          await run();
          dialog.close();
        } catch (error) {
          showError(problem, error);
          confirm.disabled = false;
        }
      },
    },
    action,
  );
  dialog.replaceChildren(
    el("h2", { id: "dialog-title" }, title),
    el("div", { class: "body" }, body),
    problem,
    el("div", { class: "buttons" }, cancel, confirm),
  );
  dialog.showModal();
  return { confirm, problem };
}
