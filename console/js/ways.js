// How events go from one broker to others: the plan of a topic, or what became of one event, in words and as ways that can be drawn.
// Both give destinations: `{ to, head, ways: [{ brokers, seen, words, isBad }] }`; a way is drawn as certain up to its broker `seen`.
import { delay, many } from "./format.js";

/** What several ways share, in words. */
function common({ shared_brokers: brokers = [], shared_links: links = [] }, number, setting) {
  if (number < 2) return number === 1 && setting !== "1" ? "there is no other" : null;
  const parts = [...brokers, ...links.map((ends) => ends.join(" – "))];
  return parts.length > 0 ? `in common: ${parts.join(", ")}` : "nothing in common";
}

function head(destination, planned, deadline, setting) {
  const inTime = planned.filter((way) => way.in_time).length;
  const ways = many(planned.length, "way");
  const within = deadline === null || deadline === undefined ? null : delay(deadline * 1000);
  const first = planned.length === 0 ? "no way" : within === null ? ways : inTime === planned.length ? `${ways} within ${within}` : `${ways}, ${inTime} of them within ${within}`;
  return [first, common(destination, planned.length, setting)].filter(Boolean).join(", ");
}

const late = (way) => (way.in_time === false ? ", too late" : "");

/** The destinations of an answer of /paths. */
export function planned({ deadline_ms: deadline, setting, destinations = [] }) {
  return destinations.map((destination) => ({
    to: destination.broker,
    head: head(destination, destination.paths, deadline, setting),
    ways: destination.paths.map((way) => ({ brokers: way.brokers, seen: way.brokers.length - 1, words: `${delay(way.time_us)}${late(way)}`, isBad: way.in_time === false })),
  }));
}

/** What became of an event on a way. */
function outcome({ state, at, behind_us: behind, ages_us: ages = [] }) {
  const age = ages.at(-1) === null || ages.at(-1) === undefined ? "" : `, ${delay(ages.at(-1))} old`;
  switch (state) {
    case "first": return `came first${age}`;
    case "later": return `came ${delay(behind ?? 0)} later${age}`;
    case "asked-for": return `came when it was asked for${age}`;
    case "joined": return `ended at ${at}, which had passed on another copy`;
    case "lost": return `no sign of it beyond ${at}`;
    case "held-back": return `held back at ${at}, where too much was unsent`;
    case "rerouted": return `has taken another way from ${at}`;
    case "not-sent": return `not sent this way from ${at}`;
    case "unknown": return `at ${at}; brokers beyond have not answered`;
    default: return `${state} at ${at}`;
  }
}

const GOOD = ["first", "later", "joined"];

/** The destinations of an answer of /trace. */
export function traced({ deadline_ms: deadline, setting, destinations = [] }) {
  const isPlanned = (way) => way.planned_us !== null && way.planned_us !== undefined;
  const words = (way) => `${isPlanned(way) ? `planned ${delay(way.planned_us)}${late(way)}` : "not planned now"}: ${outcome(way)}`;
  return destinations.map((destination) => ({
    to: destination.broker,
    head: [head(destination, destination.paths.filter(isPlanned), deadline, setting), destination.taken === false && "not taken there"].filter(Boolean).join(", "),
    ways: destination.paths.map((way) => ({ brokers: way.brokers, seen: way.brokers.indexOf(way.at), words: words(way), isBad: way.in_time === false || !GOOD.includes(way.state) })),
  }));
}
