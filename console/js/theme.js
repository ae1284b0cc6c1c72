// Dark or light, before anything is painted: what the user chose here, or else what the system says. A classic script, so that it runs first.
"use strict";
(() => {
  const KEY = "whimbrel.theme";
  const ORDER = ["auto", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      const kept = localStorage.getItem(KEY);
      return ORDER.includes(kept) ? kept : "auto";
    } catch {
      return "auto";
    }
  }

  let choice = chosen();

  function apply() {
    const isDark = choice === "dark" || (choice === "auto" && system.matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
    dispatchEvent(new CustomEvent("themechange"));
  }

  window.whimbrelTheme = {
    get choice() {
      return choice;
    },
    next() {
      choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // Storage is switched off: the choice lasts as long as the page.
      }
      apply();
    },
  };
  system.addEventListener("change", apply);
  apply();
})();
