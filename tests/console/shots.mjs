// Takes pictures of all views: node tests/console/shots.mjs DIRECTORY [view …]
// With WHIMBREL_BIN of three real brokers that are started here, after they have worked for some minutes; without it of invented ones, and
// of the ways of a topic as well, of which the real ones, in a line, have one each.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { BINARY, Deployment } from "./brokers.mjs";
import { launch } from "./browser.mjs";
import { Mock } from "./mock.mjs";

/** Pictures of phones show no more of a long page than this. */
const LONGEST = 1400;
const VIEWS = ["map", "overlay", "streams", "sessions", "charts", "status", ...(BINARY ? [] : ["ways"])];
const FORMS = [
  ["dark", { viewport: { width: 1360, height: 850 }, colorScheme: "dark" }],
  ["light", { viewport: { width: 1360, height: 850 }, colorScheme: "light" }],
  ["phone", { viewport: { width: 390, height: 844 }, colorScheme: "light", hasTouch: true, isMobile: true, deviceScaleFactor: 1 }],
];
/** For how long real brokers work before the first picture, so that charts have something to show. */
const WORK_MS = 240_000;
/** What is picked: of the invented brokers, unless there are real ones. */
let session = "dispatch-north";
let event = "p6sK5Vha1Dh:hPVn17Pr66B";
const PREPARE = {
  map: async (page) => {
    await page.locator(".controls").getByText(/[1-9]\d* nodes/).waitFor();
    await page.locator(".map-area[data-fitted]").waitFor();
    await page.locator(".map-area").press("n");
  },
  overlay: async (page) => {
    await page.locator(".graph .edge-label", { hasText: "/s" }).or(page.locator(".graph .load", { hasText: "in/s" })).first().waitFor();
    await page.locator(".node", { hasText: "tower" }).focus();
    await page.keyboard.press("Enter");
    await page.locator(".graph .way").first().waitFor();
  },
  ways: async (page) => {
    await page.locator(".graph .edge-label", { hasText: "/s" }).or(page.locator(".graph .load", { hasText: "in/s" })).first().waitFor();
    await page.getByLabel("Ways of topic").fill("alarm/1");
    await page.keyboard.press("Enter");
    await page.locator("#topic-to").selectOption("tower");
    await page.locator(".graph .route-1").first().waitFor({ state: "attached" });
  },
  streams: (page) => page.locator(".streams tbody tr").first().waitFor(),
  sessions: async (page) => {
    await page.locator(".sessions tbody tr").first().waitFor();
    await page.locator("#session-search").fill(session);
    await page.locator(".sessions tbody a", { hasText: session }).first().click();
    await page.locator(".panel tbody tr").first().waitFor();
  },
  // The whole of a short history is easier to look at.
  charts: async (page) => {
    await page.getByLabel("The last").selectOption({ index: 0 });
    await page.locator(".chart canvas").nth(9).waitFor({ state: "attached" });
  },
  status: async (page) => {
    await page.locator("#event").fill(event);
    await page.locator("#event").press("Enter");
    await page.locator(".way li").first().waitFor();
  },
};

const [directory, ...wanted] = process.argv.slice(2);
mkdirSync(directory, { recursive: true });

/** Real brokers that have worked for a while, and an event that went through all of them. */
async function startReal() {
  const deployment = await Deployment.start();
  await deployment.populate({ vehicles: 600, perSecond: 400 });
  const listener = await deployment.connect("tower", { id: "listener", expiry: 3600 });
  await listener.subscribe("orders/#", { "w-durability": "durable" });
  const orders = setInterval(() => deployment.order("two pallets").catch(() => {}), 200);
  const { url } = deployment.brokers.north;
  await new Promise((resolve) => setTimeout(resolve, WORK_MS)); // tidy: poll — minutes of history; there is no test here
  const message = await listener.next();
  session = "workshop-1";
  event = [message.properties.userProperties["w-id"]].flat().pop();
  return { url, stop: () => (clearInterval(orders), deployment.stop()) };
}

const brokers = BINARY ? await startReal() : await Mock.start({ vehicles: 600, perSecond: 400 });
const { url } = brokers;
const browser = await launch();
for (const [form, options] of FORMS) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  for (const view of VIEWS.filter((name) => wanted.length === 0 || wanted.includes(name))) {
    await page.goto(`${url}#${view === "ways" ? "overlay" : view}`);
    await page.reload();
    await page.locator("#health", { hasText: "3 brokers" }).waitFor();
    await PREPARE[view](page);
    const { width, height } = options.viewport;
    const needed = await page.evaluate(() => document.scrollingElement.scrollHeight);
    const clip = { x: 0, y: 0, width, height: form === "phone" ? Math.min(needed, LONGEST) : height };
    await page.screenshot({ path: join(directory, `console-${view}-${form}.png`), fullPage: form === "phone", clip });
  }
  await context.close();
}
await browser.close();
await brokers.stop();
