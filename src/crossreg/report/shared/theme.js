// The colours of the system, unless the reader has chosen others. A choice is kept where the browser allows it.
(() => {
  "use strict";
  const KEY = "crossreg-theme";
  const known = (value) => (value === "light" || value === "dark" ? value : "");
  let chosen = "";
  try {
    chosen = known(localStorage.getItem(KEY));
  } catch {} // some browsers keep nothing for a file
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
    dispatchEvent(new Event("theme"));
  };
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = chosen;
    select.addEventListener("change", () => {
      chosen = known(select.value);
      try {
        localStorage.setItem(KEY, chosen);
      } catch {}
      apply();
    });
  });
  apply();
})();
