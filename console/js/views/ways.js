// Beside the picture of the overlay: which topic's or event's ways are drawn there, and what they are.
import { Failure, get } from "../api.js";
import { el, put, putNew, svg, text } from "../dom.js";
import { planned, traced } from "../ways.js";

/** Ways have this many styles of their own; further ones begin again. */
const STYLES = 4;
/** Destinations among which one can be chosen. */
const DESTINATIONS_MAX = 500;

export const style = (number) => `route-${number % STYLES}`;

/** A piece of the line by which a way is drawn, with its number. */
function sample(number) {
  return svg("svg", { class: "sample", width: 46, height: 18, viewBox: "0 0 46 18", "aria-hidden": "true" },
    svg("line", { x1: 20, y1: 9, x2: 45, y2: 9, class: `route ${style(number)}` }), ...badge(number, 9, 9));
}

/** The number of a way, as it stands on its line. */
export function badge(number, x, y) {
  return [svg("circle", { cx: x, cy: y, r: 8, class: `badge ${style(number)}` }), svg("text", { x, y: y + 4, class: "badge-number" }, number + 1)];
}

function legend({ to, head, ways }) {
  const row = (way, number) => el("li", {}, sample(number), el("span", {}, el("strong", {}, way.brokers.join(" › ")), " ", el("span", { class: way.isBad ? "late" : "" }, way.words)));
  return el("div", { class: "ways" }, el("p", {}, el("strong", {}, `to ${to}`), `: ${head}`), el("ol", {}, ...ways.map(row)));
}

/** Asks for a topic, and tells and gives the ways to the destination that is chosen; `onchange` is told of other ones. */
export class Ways {
  #app;
  #onchange;
  #topic = null;
  #destinations = [];
  #to = null;
  #input = el("input", { id: "topic", name: "topic", spellcheck: "false", autocapitalize: "none", required: true, placeholder: "alarm/1" });
  #from = el("select", { id: "topic-from", name: "from" });
  #choice = el("select", { id: "topic-to", name: "to" });
  #clear = el("button", { type: "button", class: "plain", id: "topic-clear", hidden: true }, "Clear");
  #title = el("p", { class: "quiet", role: "status" });
  #legend = el("div", { "aria-live": "polite" });
  #chosen = el("span", { class: "row", hidden: true }, el("label", { for: "topic-to" }, "to"), this.#choice);

  constructor(app, onchange) {
    this.#app = app;
    this.#onchange = onchange;
    const form = el("form", { class: "row" }, el("label", { for: "topic" }, "Ways of topic"), this.#input, el("label", { for: "topic-from" }, "from"), this.#from, this.#chosen,
      el("button", { type: "submit" }, "Show"), this.#clear);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#topic = this.#input.value;
      this.#app.traced = null;
      this.#to = null;
      this.refresh();
    });
    this.#from.addEventListener("change", () => this.refresh());
    this.#choice.addEventListener("change", () => this.choose(this.#choice.value));
    this.#clear.addEventListener("click", () => this.clear());
    this.root = el("div", { class: "ways-panel" }, form, this.#title, this.#legend);
  }

  /** Whether ways are shown, or asked for. */
  get isShown() {
    return this.#topic !== null || Boolean(this.#app.traced);
  }

  /** The ways that are drawn. */
  get drawn() {
    return this.#destinations.find(({ to }) => to === this.#to)?.ways ?? [];
  }

  clear() {
    this.#topic = null;
    this.#app.traced = null;
    this.#take([], "");
  }

  /** Shows the ways to a broker; false if none are known. */
  choose(name) {
    if (!this.#destinations.some(({ to }) => to === name)) return false;
    this.#to = name;
    this.#show();
    return true;
  }

  /** The brokers from which events may come. */
  offer(names, own) {
    const known = [...this.#from.options].map((option) => option.value);
    if (known.join("\n") === names.join("\n")) return;
    const chosen = this.#from.value || own;
    put(this.#from, ...names.map((name) => el("option", { value: name }, name)));
    this.#from.value = names.includes(chosen) ? chosen : own;
  }

  /** Asks again for the topic that is shown; an event has gone where it has gone. */
  async refresh() {
    const { traced: event } = this.#app;
    if (event) {
      this.#take(traced(event), `Ways of the event ${event.event}`);
      return;
    }
    const topic = this.#topic;
    if (topic === null) return;
    const from = this.#from.value;
    try {
      const system = await get("/system/paths", { topic, broker: from });
      if (topic !== this.#topic || from !== this.#from.value) return;
      const answer = system.brokers[0]?.answer;
      if (!answer) this.#take([], `${from} has not answered.`);
      else if (answer.error) this.#take([], answer.error);
      else this.#take(planned(answer), this.#words(answer));
    } catch (failure) {
      if (!(failure instanceof Failure)) throw failure;
      if (topic === this.#topic) this.#take([], `${failure.message} ${failure.todo}`);
    }
  }

  #words({ topic, from, destinations, more }) {
    if (destinations.length + more === 0) return `No other broker wants ${topic} from ${from}.`;
    const beyond = more > 0 ? `, and to ${more} more that are not shown` : "";
    return `Ways of ${topic} from ${from}${beyond}, as they are planned now. Pick a broker to see those to it.`;
  }

  #take(destinations, words) {
    this.#destinations = destinations.slice(0, DESTINATIONS_MAX);
    const names = this.#destinations.map(({ to }) => to);
    if (!names.includes(this.#to)) this.#to = names[0] ?? null;
    const known = [...this.#choice.options].map((option) => option.value);
    if (known.join("\n") !== names.join("\n")) put(this.#choice, ...names.map((name) => el("option", { value: name }, name)));
    this.#chosen.hidden = names.length < 2;
    this.#clear.hidden = !this.isShown;
    text(this.#title, words);
    this.#show();
  }

  #show() {
    const destination = this.#destinations.find(({ to }) => to === this.#to);
    this.#choice.value = this.#to ?? "";
    if (destination) putNew(this.#legend, legend(destination));
    else put(this.#legend);
    this.#onchange();
  }
}
