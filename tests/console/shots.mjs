// Takes pictures of all views against the invented brokers: node tests/console/shots.mjs DIRECTORY [view …]
// With WHIMBREL_CONSOLE_URL against a broker that runs; sessions and status look for what only the invented ones have.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./browser.mjs";
import { Mock } from "./mock.mjs";

/** Pictures of phones show no more of a long page than this. */
const LONGEST = 1400;
const VIEWS = ["map", "overlay", "streams", "sessions", "charts", "status"];
const FORMS = [
  ["dark", { viewport: { width: 1360, height: 850 }, colorScheme: "dark" }],
  ["light", { viewport: { width: 1360, height: 850 }, colorScheme: "light" }],
  ["phone", { viewport: { width: 390, height: 844 }, colorScheme: "light", hasTouch: true, isMobile: true, deviceScaleFactor: 1 }],
];
const PREPARE = {
  map: async (page) => {
    await page.locator(".controls").getByText(/[1-9]\d* nodes/).waitFor();
    await page.locator(".map-area[data-fitted]").waitFor();
    await page.locator(".map-area").press("n");
  },
  overlay: (page) => page.locator(".graph .edge-label", { hasText: "/s" }).or(page.locator(".graph .load", { hasText: "in/s" })).first().waitFor(),
  streams: (page) => page.locator(".streams tbody tr").first().waitFor(),
  sessions: async (page) => {
    await page.locator(".sessions tbody tr").first().waitFor();
    await page.locator("#session-search").fill("dispatch-north");
    await page.locator(".sessions tbody a", { hasText: "north" }).first().click();
    await page.locator(".panel tbody tr").first().waitFor();
  },
  charts: (page) => page.locator(".chart canvas").nth(9).waitFor({ state: "attached" }),
  status: async (page) => {
    await page.locator("#event").fill("9d0c7b3a41e2f5c1:1795000000123456789");
    await page.locator("#event").press("Enter");
    await page.locator(".way li").first().waitFor();
  },
};

const [directory, ...wanted] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });
const real = process.env.WHIMBREL_CONSOLE_URL;
const mock = real ? undefined : await Mock.start({ vehicles: 600, perSecond: 400 });
const url = real ?? mock.url;
const browser = await launch();
for (const [form, options] of FORMS) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  for (const view of VIEWS.filter((name) => wanted.length === 0 || wanted.includes(name))) {
    await page.goto(`${url}#${view}`);
    await page.reload();
    await PREPARE[view](page);
    const { width, height } = options.viewport;
    const needed = await page.evaluate(() => document.scrollingElement.scrollHeight);
    const clip = { x: 0, y: 0, width, height: form === "phone" ? Math.min(needed, LONGEST) : height };
    await page.screenshot({ path: join(directory, `console-${view}-${form}.png`), fullPage: form === "phone", clip });
  }
  await context.close();
}
await browser.close();
await mock?.stop();
