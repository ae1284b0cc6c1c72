// Sums over brokers: one that lacks a broker is no total.
import assert from "node:assert/strict";
import { test } from "node:test";
import { addUp, valueAt } from "../../console/js/history.js";

const MINUTE = 60_000;
const NOW = 1_000 * MINUTE;
/** Samples every 2 s from one moment to another, each with that many connections. */
const samples = (connections, from, to) => Array.from({ length: Math.floor((to - from) / 2000) + 1 }, (_, at) => ({ at: from + at * 2000, connections }));
const sumAt = (brokers, at, started = new Map()) => addUp(new Map(brokers), at, (known) => valueAt(known, ["connections"], at), started);

test("all together are a whole", () => {
  const brokers = [["a", samples(3, NOW - 30 * MINUTE, NOW)], ["b", samples(4, NOW - 30 * MINUTE, NOW)]];
  for (const at of [NOW - 29 * MINUTE, NOW - MINUTE, NOW - 1000]) assert.deepEqual(sumAt(brokers, at), { whole: 7 });
});

test("without a broker that is away, there is a part, and no dip of the whole", () => {
  const brokers = [["a", samples(3, NOW - 30 * MINUTE, NOW)], ["b", samples(4, NOW - 30 * MINUTE, NOW - 5 * MINUTE)]];
  assert.deepEqual(sumAt(brokers, NOW - 6 * MINUTE), { whole: 7 });
  assert.deepEqual(sumAt(brokers, NOW - 2 * MINUTE), { part: 3 });
  const line = Array.from({ length: 1800 }, (_, second) => sumAt(brokers, NOW - 30 * MINUTE + second * 1000).whole);
  assert.deepEqual([...new Set(line)], [7, undefined], "the whole has one height, and then a hole");
});

test("who is only late makes neither a dip nor a part", () => {
  const brokers = [["a", samples(3, NOW - 30 * MINUTE, NOW)], ["b", samples(4, NOW - 30 * MINUTE, NOW - 40_000)]];
  // Up to 30 s after its last sample a number holds; for some seconds it may yet come.
  const at = brokers[1][1].at(-1).at + 31_000;
  assert.deepEqual(sumAt(brokers, at), { part: 3 });
  const rates = addUp(new Map(brokers), brokers[1][1].at(-1).at + 4000, (known) => (known === brokers[0][1] ? 3 : null), new Map());
  assert.deepEqual(rates, {});
});

test("who had not begun lacks nothing", () => {
  const brokers = [["a", samples(3, NOW - 30 * MINUTE, NOW)], ["b", samples(4, NOW - 5 * MINUTE, NOW)]];
  const started = new Map([["b", NOW - 5 * MINUTE]]);
  assert.deepEqual(sumAt(brokers, NOW - 10 * MINUTE, started), { whole: 3 });
  assert.deepEqual(sumAt(brokers, NOW - 10 * MINUTE), { part: 3 }, "a process that ran before has something to tell");
});
