// Numbers, spans and moments for people.

const NARROW = "\u202f";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** What stands where there is nothing to tell. */
export const NONE = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** 12,345 */
export function count(value) {
  return known(value) ? whole.format(value) : NONE;
}

/** 4.2, 38, 1,204 */
export function rate(value) {
  if (!known(value)) return NONE;
  return Math.abs(value) < 9.95 && value !== 0 ? value.toFixed(1) : whole.format(value);
}

/** 1.4 MiB */
export function bytes(value) {
  if (!known(value)) return NONE;
  let [size, unit] = [value, 0];
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 || size >= 99.5 ? Math.round(size) : size.toFixed(1)}${NARROW}${UNITS[unit]}`;
}

/** 840 ms, 12 s, 3 min, 4 h 10 min, 12 d; for ages and lags. */
export function span(ms) {
  if (!known(ms)) return NONE;
  if (ms < 0) return `−${span(-ms)}`;
  if (ms < 995) return `${Math.round(ms)}${NARROW}ms`;
  if (ms < 9_950) return `${(ms / 1000).toFixed(1)}${NARROW}s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 120) return `${seconds}${NARROW}s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${minutes}${NARROW}min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}${NARROW}h ${minutes % 60}${NARROW}min`;
  return `${Math.floor(hours / 24)}${NARROW}d ${hours % 24}${NARROW}h`;
}

/** A delay in microseconds: 320 µs, 8.4 ms, 120 ms. */
export function delay(us) {
  if (!known(us)) return NONE;
  if (us < 1000) return `${Math.round(us)}${NARROW}µs`;
  if (us < 99_500) return `${(us / 1000).toFixed(us < 9_950 ? 1 : 0)}${NARROW}ms`;
  return us < 1_000_000 ? `${Math.round(us / 1000)}${NARROW}ms` : `${(us / 1_000_000).toFixed(1)}${NARROW}s`;
}

/** Thousandths as per cent: 1.5 % */
export function permille(value) {
  return known(value) ? `${(value / 10).toFixed(1)}${NARROW}%` : NONE;
}

/** A clock time of today, or a date with it. */
export function moment(ms) {
  if (!known(ms)) return NONE;
  const at = new Date(ms);
  const isToday = at.toDateString() === new Date().toDateString();
  const time = at.toLocaleTimeString("en-GB");
  return isToday ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}

/** One of two forms: `many(2, "broker")` is "2 brokers". */
export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}
