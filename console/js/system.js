// Answers of all brokers: `{ brokers: [{ name, answer }], silent, missed }`.
import { el, put } from "./dom.js";

/** A notice that names brokers whose answers are missing, and why. */
export class Missing {
  constructor() {
    this.root = el("div", { class: "missing", role: "status" });
  }

  show({ brokers = [], silent = [], missed = [] } = {}) {
    const parts = brokers.filter(({ answer }) => answer?.error).map(({ name, answer }) =>
      el("p", { class: "notice warn" }, el("strong", {}, name), ` has refused: ${answer.error}`));
    if (silent.length > 0) {
      parts.push(el("p", { class: "notice warn" }, el("strong", {}, names(silent)),
        ` ${silent.length === 1 ? "has" : "have"} not answered in time: what is shown is without ${silent.length === 1 ? "it" : "them"}. Overloaded, or just gone?`));
    }
    if (missed.length > 0) {
      parts.push(el("p", { class: "notice warn" }, el("strong", {}, names(missed)),
        " could not be asked: there is no way through the overlay. See the view Overlay for links that are down."));
    }
    const said = parts.map((part) => part.textContent).join("\n");
    if (this.said === said) return;
    this.said = said;
    put(this.root, ...parts);
  }
}

function names(list) {
  return list.length > 6 ? `${list.slice(0, 6).join(", ")} and ${list.length - 6} more` : list.join(", ");
}

/** What stands in a view instead of its contents, or above them: why there is no answer and what to do. */
export class Trouble {
  constructor() {
    this.root = el("div", { class: "trouble", role: "alert" });
  }

  show(failure) {
    const said = failure ? `${failure.message}\n${failure.todo}` : "";
    if (this.said === said) return;
    this.said = said;
    put(this.root, failure && el("p", { class: "notice bad" }, el("strong", {}, failure.message), ` ${failure.todo ?? ""}`));
  }
}

/** The answers as pairs of a broker's name and its answer, in the order of the names. */
export function answers(system) {
  return [...(system?.brokers ?? [])].filter(({ answer }) => answer && !answer.error).sort((a, b) => (a.name < b.name ? -1 : 1));
}
