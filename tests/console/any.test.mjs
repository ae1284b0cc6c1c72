// What holds at any broker: with WHIMBREL_CONSOLE_URL at that one, else at the invented ones.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { enter, open, PHONE, REAL, until, VIEWS, visit } from "./harness.mjs";
import { Mock } from "./mock.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const CONTENT = {
  map: ".map-state.good",
  overlay: ".graph .node",
  streams: ".streams .cards .card",
  sessions: ".sessions .filter [role=status]",
  charts: ".chart canvas",
  status: ".status tbody tr",
};

let mock = null;
let url = REAL;
before(async () => {
  if (REAL) return;
  mock = await Mock.start();
  ({ url } = mock);
});
after(() => mock?.stop());

for (const view of VIEWS) {
  test(`the view ${view} shows what the broker tells`, () => visit(url, async (page) => {
    await enter(page);
    await open(page, view);
    await page.locator(CONTENT[view]).first().waitFor();
    assert.equal(await page.locator(".notice.bad").count(), 0);
  }));

  test(`the view ${view} fits a phone`, () => visit(url, async (page) => {
    await enter(page);
    await open(page, view);
    await page.locator(CONTENT[view]).first().waitFor();
    const { needed, there } = await page.evaluate(() => ({ needed: document.scrollingElement.scrollWidth, there: innerWidth }));
    assert.ok(needed <= there, `${needed} pixels wide on a screen of ${there}`);
    const [tabs, last] = [await page.locator("#tabs").boundingBox(), await page.locator("#tab-status").boundingBox()];
    assert.ok(last.x + last.width <= tabs.x + tabs.width, "all tabs are in sight");
  }, { viewport: PHONE, hasTouch: true, isMobile: true }));
}

describe("axe finds nothing", () => {
  for (const theme of ["light", "dark"]) {
    for (const view of VIEWS) {
      test(`${view}, ${theme}`, () => visit(url, async (page) => {
        await enter(page);
        await open(page, view);
        await page.locator(CONTENT[view]).first().waitFor();
        // The page's policy lets no script in from elsewhere; the tests' own comes over the debugger.
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
        const found = violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`).join(" | ")}`);
        assert.deepEqual(found, []);
      }, { theme }));
    }
  }
});

test("everything can be reached by keys", () => visit(url, async (page) => {
  await enter(page);
  for (const [at, view] of VIEWS.entries()) {
    await page.keyboard.press(String(at + 1));
    await page.locator(`#view-${view}`).waitFor();
    assert.equal(await page.locator(`#tab-${view}`).getAttribute("aria-selected"), "true");
  }
  await page.locator("#tab-status").focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("#tab-map").getAttribute("aria-selected"), "true");
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByText("Everywhere").waitFor();
  await page.keyboard.press("Escape");
  await until("windows", () => page.getByRole("dialog").count(), (count) => count === 0);
}));

test("the focus can be seen wherever the Tab key leads", () => visit(url, async (page) => {
  await enter(page);
  for (const view of VIEWS) {
    await open(page, view);
    await page.locator(CONTENT[view]).first().waitFor();
    await page.locator("#help").focus();
    const seen = new Set();
    for (let step = 0; step < 12; step += 1) {
      await page.keyboard.press("Tab");
      const focus = await page.evaluate(() => {
        const node = document.activeElement;
        const style = getComputedStyle(node);
        const halo = node.querySelector?.(".halo");
        const isOutlined = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || (halo && getComputedStyle(halo).stroke !== "none");
        return { what: `${node.tagName} ${node.id} ${node.textContent.slice(0, 20)}`, isOutlined, isBody: node === document.body || node.id === "main" };
      });
      if (focus.isBody) break;
      seen.add(focus.what);
      assert.ok(focus.isOutlined, `no focus to be seen on ${focus.what} in ${view}`);
    }
    assert.ok(seen.size > 1, `${view}: only ${[...seen]}`);
  }
}));

test("the theme is the system's, can be switched, and is remembered", () => visit(url, async (page) => {
  const shown = () => page.evaluate(() => document.documentElement.dataset.theme);
  await enter(page);
  assert.equal(await shown(), "dark");
  await page.locator("#theme").click();
  assert.equal(await shown(), "light");
  await page.reload();
  await enter(page);
  assert.equal(await shown(), "light");
  await page.keyboard.press("t");
  assert.equal(await shown(), "dark");
}, { theme: "dark" }));
