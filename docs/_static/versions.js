// Fill the choice of versions from versions.json, which lies beside the folders of all versions.
document.addEventListener("DOMContentLoaded", async () => {
  const choice = document.querySelector("#versions select");
  if (!choice || location.protocol === "file:") return;
  const root = new URL("..", new URL(document.documentElement.dataset.content_root, location.href));
  try {
    const answer = await fetch(new URL("versions.json", root));
    if (!answer.ok) return;
    for (const { name, path } of await answer.json()) {
      if (name !== choice.value) choice.add(new Option(name, new URL(path, root)));
    }
    choice.addEventListener("change", () => location.assign(choice.value));
  } catch {
    // A site of one version has no such file.
  }
});
