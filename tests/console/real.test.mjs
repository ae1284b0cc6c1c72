// The console against three real brokers, north – harbour – tower, that work: vehicles report, orders are taken, some subscribers are away.
// Needs WHIMBREL_BIN, the binary.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import WebSocket from "ws";
import { BINARY, Deployment, NAMES, PLACES } from "./brokers.mjs";
import { open, REAL, signIn, until, VIEWS, visit } from "./harness.mjs";

const nodes = (page) => page.locator(".controls").evaluate((node) => Number(node.textContent.match(/([\d,]+) nodes?/)?.[1].replace(",", "") ?? 0));
const VEHICLES = 60;

async function seesThree(page) {
  await page.locator("#health", { hasText: "3 brokers" }).waitFor();
}

/** Where a vehicle is, as its panel says. */
const placeOf = (page) => page.locator(".node-panel dl").first().innerText();

async function vehiclesMove(page) {
  await page.locator(".map-state.good").waitFor();
  // Those that report to harbour too: the overlay brings them.
  await until("vehicles", () => nodes(page), (count) => count === VEHICLES);
  await page.locator(".map-area[data-fitted]").waitFor();
  const placed = NAMES.map((name) => `${name}: ${PLACES[name].map((degrees) => degrees.toFixed(3)).join(", ")}`).sort();
  await until("brokers on the map", () => page.locator(".map-area li").allTextContents(), (said) => said.join() === placed.join());
  const drawn = () => page.locator(".map-area").evaluate((canvas) => canvas.toDataURL());
  const picture = await drawn();
  // Even numbers report to north, odd ones to harbour.
  for (const name of ["bus0006", "bus0007"]) {
    await page.getByLabel("Find").fill(name);
    await page.keyboard.press("Enter");
    await page.locator(".node-panel h2", { hasText: name }).waitFor();
    const place = await placeOf(page);
    await until(`${name}'s place`, () => placeOf(page), (words) => words !== place);
  }
  assert.notEqual(await drawn(), picture);
}

async function overlayShowsThree(page) {
  await open(page, "overlay");
  await page.getByText("3 of 3 brokers reachable from north, 2 links.").waitFor();
  const names = await page.locator(".graph .node .name").allTextContents();
  assert.deepEqual(names.sort(), [...NAMES].sort());
  const links = page.locator("#view-overlay table", { has: page.locator("caption", { hasText: "Links" }) }).locator("tbody tr th, tbody tr td:first-child");
  await until("links", async () => (await links.allTextContents()).sort().join(), (said) => said === "harbour – north,harbour – tower");
  await page.locator(".node", { hasText: "tower" }).focus();
  await page.keyboard.press("Enter");
  await page.locator(".overlay .facts").getByText("north › harbour › tower").waitFor();
  await page.locator(".edge-label", { hasText: "/s" }).first().waitFor();
  // Ids of lives are above 2^53: all their digits are there.
  const answer = await page.evaluate(async () => {
    const { credentials } = await import("/js/api.js");
    return (await fetch("/api/v1/topology", { headers: credentials.header(), credentials: "omit" })).text();
  });
  const [, life] = answer.match(/"name":"tower"[^}]*?"incarnation":(\d+)/);
  await page.locator(".overlay .facts").getByText(life, { exact: true }).waitFor();
}

async function streamsShowLag(page) {
  await open(page, "streams");
  await until("journals", () => page.locator(".streams .cards .card").count(), (count) => count === 3);
  await page.locator(".streams tbody tr", { hasText: "workshop-" }).filter({ hasText: "north" }).first().waitFor();
  const lag = page.locator(".streams tbody tr", { hasText: "workshop-" }).first().locator("td").last();
  const before = await lag.textContent();
  assert.match(before, /\d/);
  await until("the lag grows", () => lag.textContent(), (words) => words !== before && /\d/.test(words));
}

async function sessionsShowWhoIsBehind(page) {
  await open(page, "sessions");
  for (const [id, broker, words] of [["workshop-1", "north", "away"], ["dispatch", "tower", "connected"], ["watcher-harbour", "harbour", "connected"]]) {
    await page.getByLabel("Search").fill(id);
    await page.locator(".sessions tbody tr", { hasText: id }).filter({ hasText: broker }).getByText(words).first().waitFor();
  }
  for (const [id, words] of [["workshop-1", ["orders/#", "durable"]], ["watcher-north", ["fleet/N56/+/position", "semi-durable"]]]) {
    await page.getByLabel("Search").fill(id);
    await page.locator(".sessions tbody a", { hasText: id }).first().click();
    for (const word of words) await page.locator(".panel tbody tr", { hasText: word }).waitFor();
  }
}

async function chartsShowLoad(page) {
  await open(page, "charts");
  const accepted = page.locator(".chart").first().locator("dd").first();
  await until("events each second", () => accepted.textContent(), (words) => Number(words.replace(/[^\d.]/g, "")) > 20);
  await page.getByLabel("Of", { exact: true }).selectOption("each");
  await until("brokers", () => page.locator(".chart").first().locator("dt").allTextContents(), (names) => names.join() === "harbour,north,tower");
}

async function statusShowsThree(page) {
  await open(page, "status");
  for (const name of NAMES) await page.locator(".status tbody tr", { hasText: name }).getByText("ready").waitFor();
  await until("what they reach", () => page.locator(".status tbody tr td:last-child").allTextContents(), (said) => said.length === 3 && said.every((words) => words === "3 of 3"));
}

/** Whether a page of that host may open a WebSocket at a broker. */
async function socketFrom(host, address) {
  const server = createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><title>another page</title>"));
  await new Promise((resolve) => server.listen(0, resolve));
  let outcome = null;
  try {
    await visit(`http://${host}:${server.address().port}/`, async (page) => {
      outcome = await page.evaluate((to) => new Promise((resolve) => {
        const socket = new WebSocket(to, "mqtt");
        socket.onopen = () => resolve("open");
        socket.onerror = () => resolve("refused");
      }), address);
    }, { expectsFailures: true, mayConnectElsewhere: true });
  } finally {
    await new Promise((resolve) => server.close(resolve));
  }
  return outcome;
}

/** The status that answers a handshake: 101 if it succeeds. */
function handshake(address, origin) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(address, "mqtt", origin ? { origin } : {});
    socket.on("open", () => {
      socket.terminate();
      resolve(101);
    });
    socket.on("unexpected-response", (request, response) => {
      request.destroy();
      resolve(response.statusCode);
    });
    socket.on("error", reject);
  });
}

function viewTests(at) {
  const visits = [
    ["the map shows vehicles that move, of all brokers", "map", vehiclesMove],
    ["the overlay shows three brokers, their links, and the way", "overlay", overlayShowsThree],
    ["streams say who holds them back, with a lag that grows", "streams", streamsShowLag],
    ["sessions say who is away, and what it has subscribed to", "sessions", sessionsShowWhoIsBehind],
    ["charts show the load, of each broker", "charts", chartsShowLoad],
    ["status shows three that are ready and reach each other", "status", statusShowsThree],
  ];
  for (const [name, , work] of visits) {
    test(name, () => visit(at.url(), async (page) => {
      await at.enter(page);
      await seesThree(page);
      await work(page);
    }, { expectsFailures: at.signIn }));
  }
}

function eventTests(at) {
  test("an event's way through the brokers is shown", () => visit(at.url(), async (page) => {
    await seesThree(page);
    const subscriber = await at.deployment.connect("tower", { id: "listener", expiry: 60 });
    await subscriber.subscribe("orders/#", { "w-durability": "durable" });
    const [message] = await Promise.all([subscriber.next(), at.deployment.order("a crate")]);
    await open(page, "status");
    await page.getByLabel("Event id").fill([message.properties.userProperties["w-id"]].flat().pop());
    await page.keyboard.press("Enter");
    await until("brokers of the way", () => page.locator(".way h4").allTextContents(), (names) => names.join() === "north,harbour,tower");
  }));

  test("a session is ended from the console, and gone at the broker", () => visit(at.url(), async (page) => {
    await open(page, "sessions");
    await page.getByLabel("Search").fill("workshop-3");
    await page.locator(".sessions tbody a", { hasText: "workshop-3" }).first().click();
    await page.getByRole("button", { name: "End this session" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "End session" }).click();
    await page.getByText("The session has ended.").waitFor();
    const answer = await fetch(new URL("/api/v1/sessions/workshop-3", at.url()));
    assert.equal(answer.status, 404);
  }));
}

async function isSaidToBeMissing(page, name) {
  await page.locator("#health", { hasText: "1 broker missing" }).waitFor();
  await open(page, "status");
  await page.locator(".status tbody tr", { hasText: name }).getByText(/silent|no way/).waitFor();
  await page.locator("#view-status .missing").getByText(name).waitFor();
  await open(page, "overlay");
  await page.getByText("2 of 3 brokers reachable from north").waitFor();
  await page.locator(".graph .node.gone", { hasText: name }).waitFor();
}

function deathTests(at) {
  test("a broker that is killed is named in every view, and found again", () => visit(at.url(), async (page) => {
    await seesThree(page);
    await at.deployment.brokers.tower.kill();
    await isSaidToBeMissing(page, "tower");
    for (const view of ["streams", "sessions", "charts"]) {
      await open(page, view);
      await page.locator(`#view-${view} .missing`).getByText("tower").waitFor();
    }
    await at.deployment.brokers.tower.start();
    await seesThree(page);
    await open(page, "status");
    await page.locator(".status tbody tr", { hasText: "tower" }).getByText("ready").waitFor();
    await statusShowsThree(page);
  }));

  test("the broker of the console itself is killed, and the page says so until it is back", () => visit(at.url(), async (page) => {
    await seesThree(page);
    await at.deployment.brokers.north.kill();
    await page.locator("#health", { hasText: "Not reachable" }).waitFor();
    await page.locator("#banner").getByText("cannot be reached").waitFor();
    await at.deployment.brokers.north.start();
    await seesThree(page);
    assert.equal(await page.locator("#banner").isVisible(), false);
  }, { expectsFailures: true }));
}

async function saysWhoMayNotLook(page) {
  for (const view of VIEWS.filter((name) => name !== "map")) {
    await open(page, view);
    await page.locator(`#view-${view}`).getByText(/no rule allows/i).first().waitFor();
    await page.locator(`#view-${view}`).getByText("for the action observe").first().waitFor();
  }
}

function rightsTests(at) {
  test("a wrong password is refused, and the page says why", () => visit(at.url(), async (page) => {
    await signIn(page, "ada", "wrong");
    await page.getByRole("alert").filter({ hasText: "the name or the secret is wrong" }).waitFor();
    assert.equal(await page.locator("#tabs").isVisible(), false);
    await signIn(page, "ada", "right");
    await page.locator(".map-state.good").waitFor();
    assert.equal(await page.locator("#who").textContent(), "ada");
  }, { expectsFailures: true }));

  test("who is no user is refused as a wrong password is", () => visit(at.url(), async (page) => {
    await signIn(page, "mallory", "right");
    await page.getByRole("alert").filter({ hasText: "the name or the secret is wrong" }).waitFor();
  }, { expectsFailures: true }));

  test("a WebSocket of a page of another host is refused", async () => {
    const address = `ws://${at.deployment.brokers.north.ready.ws}/mqtt`;
    assert.equal(await socketFrom("127.0.0.1", address), "open");
    assert.equal(await socketFrom("localhost", address), "refused");
    assert.equal(await handshake(address, "https://elsewhere.example"), 403);
    assert.equal(await handshake(address, "http://127.0.0.1:1"), 101);
    // Programs send no origin.
    assert.equal(await handshake(address, null), 101);
  });

  test("who may neither look nor change anything has the map, and is told so in every other view", () => visit(at.url(), async (page) => {
    await signIn(page, "eve", "right");
    await page.locator(".map-state.good").waitFor();
    await until("vehicles", () => nodes(page), (count) => count === VEHICLES);
    await saysWhoMayNotLook(page);
    assert.equal(await page.locator("#drain").isVisible(), false);
  }, { expectsFailures: true }));

  test("who may change things and not look is told so in every view", () => visit(at.url(), async (page) => {
    await signIn(page, "carol", "right");
    await saysWhoMayNotLook(page);
  }, { expectsFailures: true }));

  test("who may observe, and subscribe to nothing, is told why the map is empty", () => visit(at.url(), async (page) => {
    await signIn(page, "bob", "right");
    await page.locator(".map-state.bad", { hasText: "You may not" }).waitFor();
    await open(page, "status");
    await page.locator(".status tbody tr").first().waitFor();
    assert.equal(await page.locator("#drain").isVisible(), false);
  }, { expectsFailures: true }));

  test("the map's filter is bounded by the rules", () => visit(at.url(), async (page) => {
    await signIn(page, "ada", "right");
    await page.locator(".map-state.good").waitFor();
    await page.getByLabel("Filter").fill("orders/#");
    await page.keyboard.press("Enter");
    await page.locator(".map-state.bad", { hasText: "You may not subscribe to orders/#" }).waitFor();
  }, { expectsFailures: true }));

  test("a user that is removed while the console is open is asked again", () => visit(at.url(), async (page) => {
    await signIn(page, "bob", "right");
    await page.locator("#tabs").waitFor();
    at.deployment.removeUser("bob");
    await page.locator(".sign-in").getByText("no longer accepts").waitFor({ timeout: 40_000 });
  }, { expectsFailures: true }));
}

function withBrokers(name, options, define) {
  describe(name, () => {
    const at = { ...options, url: () => at.deployment.brokers.north.url };
    at.enter = (page) => (options.signIn ? signIn(page, "ada", "right") : page.locator("#tabs").waitFor());
    const [begin, end] = options.anew ? [beforeEach, afterEach] : [before, after];
    begin(async () => {
      at.deployment = await Deployment.start(options);
      await at.deployment.populate({ vehicles: VEHICLES });
    });
    end(() => at.deployment?.stop());
    define(at);
  });
}

if (!BINARY) {
  test("real brokers", { skip: "no WHIMBREL_BIN: set it to the binary, and the console is tried against three real brokers too" }, () => {});
} else if (!REAL) {
  withBrokers("real brokers, everybody may everything", { signIn: false }, (at) => {
    viewTests(at);
    eventTests(at);
  });
  withBrokers("real brokers that ask who somebody is", { signIn: true }, (at) => {
    viewTests(at);
    rightsTests(at);
  });
  withBrokers("real brokers that die", { signIn: false, anew: true }, deathTests);
}
