// The last half hour as time series: of all brokers together, of each, or of one.
import { el, put, reconcile } from "../dom.js";
import { bytes, count, rate } from "../format.js";
import { addUp, History, rateAt, valueAt } from "../history.js";
import { Plot } from "../chart/plot.js";
import { Poller } from "../poll.js";
import { answers, Missing, Trouble } from "../system.js";

const EVERY_MS = 2000;
/** Points of a chart. */
const POINTS = 150;
/** The newest samples of other brokers take a moment to come. */
const LATE_MS = 2500;

const counter = (...path) => ["counters", ...path];
const perSecond = (words) => `${words} per second`;
const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)}\u202f%`);

/** `series`: labels and where in a sample their numbers are. `isRate`: what is shown is what they gain per second, times `times`. */
const CHARTS = [
  { title: perSecond("Events"), format: rate, isRate: true, series: [["accepted", counter("events_accepted")], ["logged", counter("events_logged")]], each: [["accepted", counter("events_accepted")]] },
  { title: perSecond("Deliveries"), format: rate, isRate: true, series: [["deliveries", counter("deliveries")]] },
  { title: perSecond("Bytes of clients"), format: bytes, isBinary: true, isRate: true, series: [["in", counter("bytes_in")], ["out", counter("bytes_out")]] },
  { title: perSecond("Bytes between brokers"), format: bytes, isBinary: true, isRate: true, series: [["in", counter("overlay_bytes_in")], ["out", counter("overlay_bytes_out")]] },
  { title: perSecond("Losses"), format: rate, isRate: true, series: [["nondurable", counter("lost", "nondurable")], ["semi-durable", counter("lost", "semi_durable")], ["durable", counter("lost", "durable")]] },
  { title: perSecond("Gaps told, refusals"), format: rate, isRate: true, series: [["gaps", counter("gaps")], ["gaps of best effort", counter("gaps_best_effort")], ["refused", counter("refused")]] },
  { title: "Connections, sessions", format: count, series: [["connections", ["connections"]], ["sessions", ["sessions"]]], each: [["connections", ["connections"]]] },
  { title: "Journal", format: bytes, isBinary: true, series: [["bytes", counter("journal_bytes")]] },
  { title: "CPU, of one core", format: percent, isRate: true, times: 0.1, series: [["CPU", counter("cpu_ms")]] },
  { title: "Memory", format: bytes, isBinary: true, series: [["resident", counter("memory_bytes")]] },
];

/** Adds up what is known; null if nothing is. */
function sum(values) {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? known.reduce((total, value) => total + value, 0) : null;
}

/** Values of some numbers of some brokers, added up, at the moments of `axis`. */
function total(chart, brokers, paths, axis, stepMs) {
  const times = chart.times ?? 1;
  const at = (samples, path, moment) => (chart.isRate ? rateAt(samples, path, moment, stepMs) : valueAt(samples, path, moment));
  return axis.map((moment) => {
    const value = sum(brokers.flatMap((samples) => paths.map((path) => at(samples, path, moment))));
    return value === null ? null : value * times;
  });
}

/** The sum of all brokers, and of those that have told where some have not: a sum that lacks a broker is no total, and would look as if less went on. */
function sums(chart, history, started, axis, stepMs) {
  const times = chart.times ?? 1;
  return chart.series.flatMap(([label, path], colour) => {
    const at = (moment) => (samples) => (chart.isRate ? rateAt(samples, path, moment, stepMs) : valueAt(samples, path, moment));
    const points = axis.map((moment) => addUp(history.brokers, moment, at(moment), started));
    const values = (field) => points.map((point) => (point[field] === undefined ? null : point[field] * times));
    const whole = { label, values: values("whole"), colour };
    const hasPart = points.some(({ part }) => part !== undefined);
    return hasPart ? [whole, { label: `${label}, not of all brokers`, values: values("part"), colour, isDashed: true }] : [whole];
  });
}

function series(chart, history, mode, started, axis, stepMs) {
  const { brokers } = history;
  if (mode === "sum") return sums(chart, history, started, axis, stepMs);
  if (mode === "each") {
    const paths = (chart.each ?? chart.series).map(([, path]) => path);
    return [...brokers].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, samples]) => ({ label: name, values: total(chart, [samples], paths, axis, stepMs) }));
  }
  const chosen = [brokers.get(mode.slice(1)) ?? []];
  return chart.series.map(([label, path]) => ({ label, values: total(chart, chosen, [path], axis, stepMs) }));
}

function moments(spanMs) {
  const stepMs = Math.max(2000, spanMs / POINTS);
  const end = Math.floor((Date.now() - LATE_MS) / stepMs) * stepMs;
  return { stepMs, axis: Array.from({ length: POINTS + 1 }, (_, at) => end - (POINTS - at) * stepMs) };
}

/** The view. */
export function create(app) {
  const missing = new Missing();
  const trouble = new Trouble();
  const history = new History();
  const plots = CHARTS.map((chart) => [chart, new Plot(chart)]);
  const option = (value, words) => el("option", { value }, words);
  const of = el("select", { id: "chart-of", onchange: renew }, option("sum", "all brokers, added up"), option("each", "each broker"));
  const single = el("optgroup", { label: "one broker" });
  of.append(single);
  /** When brokers' processes began, by the clock of this machine; also of those that do not answer now. */
  const started = new Map();
  const span = el("select", { id: "chart-span", value: "15", onchange: draw }, ...["5", "15", "30"].map((minutes) => option(minutes, `${minutes} minutes`)));
  span.value = "15";

  function draw() {
    const { axis, stepMs } = moments(Number(span.value) * 60_000);
    const xs = axis.map((at) => at / 1000);
    for (const { name, answer } of answers(app.system)) started.set(name, Date.now() - (answer.now_ms - answer.started_ms));
    for (const [chart, plot] of plots) plot.show(xs, series(chart, history, of.value, started, axis, stepMs));
  }

  function renew() {
    for (const [, plot] of plots) plot.reset();
    draw();
  }

  const poller = new Poller(EVERY_MS, async () => {
    try {
      const system = await history.ask();
      trouble.show(null);
      missing.show(system);
      reconcile(single, [...history.brokers.keys()].sort(), (name) => name, (name) => option(`=${name}`, name), () => {});
      draw();
    } catch (error) {
      trouble.show(app.failed(error));
    }
  });
  addEventListener("themechange", renew);
  const grid = el("div", { class: "charts-grid" });
  put(grid, ...plots.map(([, plot]) => plot.root));
  return {
    parts: [
      trouble.root, missing.root,
      el("div", { class: "row filter" }, el("label", { for: "chart-of" }, "Of"), of, el("label", { for: "chart-span" }, "The last"), span),
      grid,
    ],
    show: () => poller.start(),
    hide: () => poller.stop(),
  };
}
