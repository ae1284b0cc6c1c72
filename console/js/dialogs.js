// Windows over the page: help, and questions before something is done that cannot be undone.
import { el } from "./dom.js";

function open(dialog) {
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

/** Whether a window is open, so that keys are meant for it. */
export const isOpen = () => document.querySelector("dialog[open]") !== null;

/** Asks; resolves to whether it was confirmed. */
export function confirm({ title, words, action }) {
  return new Promise((resolve) => {
    const dialog = el("dialog", { "aria-labelledby": "dialog-title", class: "ask" },
      el("h2", { id: "dialog-title" }, title),
      ...words.map((paragraph) => el("p", {}, paragraph)),
      el("form", { method: "dialog", class: "row end" },
        el("button", { value: "no", class: "plain", autofocus: true }, "Cancel"),
        el("button", { value: "yes", class: "danger" }, action)));
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
    open(dialog);
  });
}

const KEYS = [
  ["1 … 6", "Map, Overlay, Streams, Sessions, Charts, Status"],
  ["?", "this window"],
  ["/", "search, where there is a search field"],
  ["t", "colours: the system's, light, dark"],
  ["Esc", "close a window or a panel"],
];
const MAP_KEYS = [
  ["← ↑ → ↓", "move the map (with Shift: further)"],
  ["+ −", "closer, farther"],
  ["0", "all nodes"],
  ["n p", "pick the next, the previous node in sight"],
  ["f", "follow the picked node"],
];
const CHART_KEYS = [["← →", "move the crosshair (with Shift: further)"], ["Esc", "take it away"]];

function keys(title, rows) {
  const list = rows.map(([key, what]) => el("div", {}, el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)));
  return el("section", {}, el("h3", {}, title), el("dl", { class: "keys" }, ...list));
}

/** Shows which keys do what. */
export function help() {
  if (isOpen()) return;
  open(el("dialog", { "aria-labelledby": "dialog-title" },
    el("h2", { id: "dialog-title" }, "Keys"),
    keys("Everywhere", KEYS), keys("On the map", MAP_KEYS), keys("On a chart", CHART_KEYS),
    el("p", { class: "quiet" }, "What is shown comes from the broker that serves this page; others are asked by way of the overlay. Nothing is loaded from elsewhere."),
    el("form", { method: "dialog", class: "row end" }, el("button", { autofocus: true }, "Close"))));
}
