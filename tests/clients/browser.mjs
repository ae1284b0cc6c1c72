// Runs headless Chromium with page.html and passes JSON lines between standard input and output and the page.
//   in:   {"call": 7, "operation": "connect", "data": {...}}
//   out:  {"ready": true, ...} once, {"call": 7, "result": ...} or {"call": 7, "error": "..."}, and what the page reports
import { createReadStream, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = fileURLToPath(new URL(".", import.meta.url));
const files = {
  "/": [join(here, "page.html"), "text/html"],
  "/page.js": [join(here, "page.js"), "text/javascript"],
  "/mqtt.min.js": [join(here, "node_modules/mqtt/dist/mqtt.min.js"), "text/javascript"],
};

const server = createServer((request, response) => {
  const found = files[request.url];
  if (!found) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "content-type": found[1] });
  createReadStream(found[0]).pipe(response);
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const profile = mkdtempSync(join(tmpdir(), "whimbrel-chromium-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  ignoreHTTPSErrors: true,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
  ],
});

const write = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const page = context.pages()[0] ?? (await context.newPage());
page.on("pageerror", (error) => write({ pageerror: error.message }));
await page.exposeFunction("report", write);
await page.goto(`http://127.0.0.1:${server.address().port}/`);
write({ ready: true, browser: context.browser()?.version() ?? "chromium" });

const lines = createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { call, operation, data } = JSON.parse(line);
  try {
    write({ call, result: (await page.evaluate((request) => window.operate(request), { operation, data })) ?? null });
  } catch (error) {
    write({ call, error: error.message });
  }
});
lines.on("close", async () => {
  await context.close();
  server.close();
  rmSync(profile, { recursive: true, force: true });
});
