// One time series chart: uPlot with the page's colours, a legend that tells the values at the crosshair, and keys.
import { el, reconcile, text } from "../dom.js";

const { uPlot } = window;
const HEIGHT = 180;
const SERIES = 8;
/** Plots with the same key share their crosshair. */
const SYNC = "whimbrel";
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

const clock = (seconds, isFine) => new Date(seconds * 1000).toLocaleTimeString("en-GB", isFine ? {} : { hour: "2-digit", minute: "2-digit" });

export class Plot {
  #plot = null;
  #data = [[]];
  #labels = [];
  #looks = [];
  #format;
  #isBinary;
  #frame = el("div", { class: "plot", "aria-hidden": "true" });
  #legend = el("dl", { class: "plot-legend" });
  #at = el("span", { class: "quiet" });
  #said = el("p", { class: "hidden", role: "status" });

  /** `format(value)` gives a text; `isBinary` puts the ticks at powers of two, for bytes. */
  constructor({ title, format, isBinary = false }) {
    this.#format = format;
    this.#isBinary = isBinary;
    this.title = title;
    const heading = el("h2", {}, title);
    this.root = el("div", { class: "chart", tabindex: "0", role: "group", "aria-label": `${title}. Arrow keys move the crosshair.` },
      el("div", { class: "row head" }, heading, this.#at), this.#frame, this.#legend, this.#said);
    this.root.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#resize()).observe(this.#frame);
  }

  /** Colours or series have changed: it is made anew with the next data. */
  reset() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** Shows series over seconds: `{ label, values, colour, isDashed }`; the colour is that of the series' place unless another one is given. */
  show(xs, series) {
    const labels = series.map(({ label }) => label);
    if (labels.join("\n") !== this.#labels.join("\n")) this.reset();
    this.#labels = labels;
    this.#looks = series.map(({ colour, isDashed }, at) => ({ colour: (colour ?? at) % SERIES, isDashed: isDashed ?? at >= SERIES }));
    this.#data = [xs, ...series.map(({ values }) => values)];
    if (this.#plot) this.#plot.setData(this.#data);
    else if (this.#frame.clientWidth > 0) this.#plot = new uPlot(this.#options(), this.#data, this.#frame);
    this.#tell();
  }

  #colour(name) {
    return getComputedStyle(this.root).getPropertyValue(name).trim();
  }

  #options() {
    const [ink, grid] = [this.#colour("--quiet"), this.#colour("--line")];
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
    return {
      width: this.#frame.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [
        { ...axis, size: 28, space: 70, values: (_, splits, __, ___, increment) => splits.map((at) => clock(at, increment < 60)) },
        { ...axis, size: 64, values: (_, splits) => splits.map((value) => this.#format(value)), ...(this.#isBinary ? { incrs: BINARY } : {}) },
      ],
      series: [{}, ...this.#labels.map((label, at) => ({ label, stroke: this.#colour(`--series-${this.#looks[at].colour}`), width: 1.6, dash: this.#looks[at].isDashed ? [5, 4] : undefined, points: { show: false } }))],
      hooks: { setCursor: [() => this.#tell()] },
    };
  }

  #resize() {
    if (this.#plot && this.#frame.clientWidth > 0) this.#plot.setSize({ width: this.#frame.clientWidth, height: HEIGHT });
    else if (this.#labels.length > 0) this.show(this.#data[0], this.#labels.map((label, at) => ({ label, values: this.#data[at + 1], ...this.#looks[at] })));
  }

  /** Writes the values at the crosshair, or else the last ones. */
  #tell() {
    const [xs] = this.#data;
    const chosen = this.#plot?.cursor.idx;
    const index = chosen ?? xs.length - 1;
    text(this.#at, chosen === null || chosen === undefined || xs.length === 0 ? "now" : clock(xs[index], true));
    const rows = this.#labels.map((label, at) => ({ label, at, value: lastKnown(this.#data[at + 1], index, chosen) }));
    reconcile(this.#legend, rows, ({ label, at }) => `${at} ${label}`,
      ({ label, at }) => el("div", {}, el("dt", {}, el("i", { class: `swatch series-${this.#looks[at].colour}` }), label), el("dd")),
      (node, { value }) => text(node.lastChild, this.#format(value)));
  }

  #key(event) {
    const plot = this.#plot;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!plot || (!step && event.key !== "Escape")) return;
    event.preventDefault();
    event.stopPropagation();
    if (!step) {
      plot.setCursor({ left: -10, top: -10 });
      return;
    }
    const [xs] = this.#data;
    const from = plot.cursor.idx ?? xs.length - 1;
    const to = Math.max(0, Math.min(xs.length - 1, from + step * (event.shiftKey ? 10 : 1)));
    plot.setCursor({ left: plot.valToPos(xs[to], "x"), top: plot.bbox.height / 2 / devicePixelRatio });
    const words = this.#labels.map((label, at) => `${label} ${this.#format(this.#data[at + 1][to])}`);
    text(this.#said, `${clock(xs[to], true)}: ${words.join(", ")}`);
  }
}

/** The value at an index; of the present, the last that is known, as the newest moments fill late. */
function lastKnown(values, index, chosen) {
  if (chosen !== null && chosen !== undefined) return values[index];
  for (let at = values.length - 1; at >= Math.max(0, values.length - 4); at -= 1) {
    if (values[at] !== null) return values[at];
  }
  return null;
}
