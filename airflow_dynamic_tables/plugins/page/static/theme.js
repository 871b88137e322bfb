// Sets the theme before the first paint: that of Airflow around the page, or else that of the system.
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function outer() {
    try {
      return window.parent === window ? null : window.parent.document.documentElement;
    } catch {
      return null; // the page is in a frame of another origin
    }
  }

  function isDark() {
    const airflow = outer();
    if (airflow?.classList.contains("dark")) return true;
    if (airflow?.classList.contains("light")) return false;
    return system.matches;
  }

  function apply() {
    const theme = isDark() ? "dark" : "light";
    if (document.documentElement.dataset.theme === theme) return;
    document.documentElement.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("themechange"));
  }

  apply();
  system.addEventListener("change", apply);
  const airflow = outer();
  if (airflow) new MutationObserver(apply).observe(airflow, { attributes: true, attributeFilter: ["class"] });
})();
