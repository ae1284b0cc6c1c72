// What the tests share: one browser, pages that are watched for everything that must not happen, and sign-in.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch } from "./browser.mjs";

/** The broker to test instead of invented ones. */
export const REAL = process.env.WHIMBREL_CONSOLE_URL;
export const WIDE = { width: 1280, height: 800 };
export const PHONE = { width: 390, height: 844 };
export const VIEWS = ["map", "overlay", "streams", "sessions", "charts", "status"];

let browser;
before(async () => {
  browser = await launch();
});
after(() => browser.close());

function watch(page, url, { expectsFailures, mayConnectElsewhere }) {
  const faults = [];
  const origin = new URL(url);
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  page.on("console", (message) => {
    // Chromium tells of each answer above 399 as an error, and of what is sent as a broker dies; tests that want such things say so.
    if (message.type() === "error" && !(expectsFailures && /Failed to load resource|WebSocket (connection|is already in CLOSING)/.test(message.text()))) faults.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const to = new URL(request.url());
    if (to.protocol !== "data:" && to.host !== origin.host) faults.push(`request elsewhere: ${request.url()}`);
  });
  page.on("websocket", (socket) => {
    if (!mayConnectElsewhere && new URL(socket.url()).hostname !== origin.hostname) faults.push(`WebSocket elsewhere: ${socket.url()}`);
  });
  return faults;
}

/** Opens the console in a context of its own, runs `work(page)`, and fails if anything happened that must not. */
export async function visit(url, work, { viewport = WIDE, theme = "light", expectsFailures = false, mayConnectElsewhere = false, hash = "", ...options } = {}) {
  const context = await browser.newContext({ viewport, colorScheme: theme, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const faults = watch(page, url, { expectsFailures, mayConnectElsewhere });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
  });
  try {
    await page.goto(`${url}${hash}`);
    await work(page);
    assert.deepEqual(await page.evaluate(() => window.violations), [], "violations of the content security policy");
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

/** Fills in the form. */
export async function signIn(page, user, password) {
  await page.getByLabel("User name").fill(user);
  await page.getByLabel("Password", { exact: true }).last().fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
}

/** Signs in at a real broker that asks. */
export async function enter(page) {
  await page.locator(".tabs:not([hidden]), .sign-in").first().waitFor();
  if (await page.locator(".sign-in").isVisible()) await signIn(page, process.env.WHIMBREL_CONSOLE_USER ?? "", process.env.WHIMBREL_CONSOLE_PASSWORD ?? "");
  await page.locator(".tabs:not([hidden])").waitFor();
}

export async function open(page, view) {
  await page.locator(`#tab-${view}`).click();
  await page.locator(`#view-${view}`).waitFor();
}

/** Resolves when what `look()` gives fits. */
export async function until(what, look, fits) {
  const end = Date.now() + 15_000;
  for (;;) {
    const seen = await look();
    if (fits(seen)) return seen;
    assert.ok(Date.now() < end, `${what}: still ${JSON.stringify(seen)}`);
    // tidy: poll — the page's state
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

