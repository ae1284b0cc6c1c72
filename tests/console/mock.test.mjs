// What can be shown with invented brokers only: sign-in, rights, brokers that fail, texts that mean harm, and the map.
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, test } from "node:test";
import { open, REAL, signIn, until, VIEWS, visit } from "./harness.mjs";
import { HOSTILE, HOSTILE_ID } from "./invented.mjs";
import { Mock, TOKEN, USERS } from "./mock.mjs";

const EVENT = "p6sK5Vha1Dh:hPVn17Pr66B";

/** Tests with brokers of their own each. */
function withMock(name, options, define) {
  describe(name, () => {
    const at = {};
    beforeEach(async () => {
      at.mock = await Mock.start(options);
    });
    afterEach(() => at.mock.stop());
    define(at);
  });
}

/** Opens a session of the broker that is asked. */
async function pickSession(page) {
  await open(page, "sessions");
  await page.getByLabel("Search").fill("dispatch-north");
  await page.locator(".sessions tbody a", { hasText: "dispatch-north" }).first().click();
  await page.locator(".panel .facts").waitFor();
}

const stored = (page) => page.evaluate(() => ({ session: { ...sessionStorage }, local: { ...localStorage }, cookie: document.cookie }));

function signInTests(at) {
  test("whoever signs in sees everything, also over MQTT, until signing out", () => visit(at.mock.url, async (page) => {
    await page.locator(".sign-in").waitFor();
    await signIn(page, "ada", "right");
    await page.locator(".map-state.good").waitFor();
    assert.equal(await page.locator("#who").textContent(), "ada");
    const kept = await stored(page);
    assert.deepEqual(Object.keys(kept.session), ["whimbrel.credentials"]);
    assert.deepEqual([kept.local, kept.cookie], [{}, ""]);
    await page.reload();
    await page.locator(".map-state.good").waitFor();
    await page.locator("#sign-out").click();
    await page.locator(".sign-in").waitFor();
    assert.deepEqual((await stored(page)).session, {});
  }, { expectsFailures: true }));

  test("a wrong password is told, and the next try may be right", () => visit(at.mock.url, async (page) => {
    await signIn(page, "ada", "wrong");
    await page.getByRole("alert").filter({ hasText: "does not accept this" }).waitFor();
    assert.deepEqual((await stored(page)).session, {});
    await signIn(page, "ada", "right");
    await page.locator(".tabs:not([hidden])").waitFor();
  }, { expectsFailures: true }));

  test("a token will do, over HTTP and MQTT", () => visit(at.mock.url, async (page) => {
    await page.getByRole("radio", { name: "Token" }).check();
    await page.getByLabel("Token (JWT)").fill(TOKEN);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator(".map-state.good").waitFor();
  }, { expectsFailures: true }));

  test("who is no longer known is asked again, and told why", () => visit(at.mock.url, async (page) => {
    await signIn(page, "ada", "right");
    await page.locator(".tabs:not([hidden])").waitFor();
    at.mock.set.users = {};
    await page.locator(".sign-in").getByText("no longer accepts").waitFor();
  }, { expectsFailures: true }));

  test("who may only look can change nothing", () => visit(at.mock.url, async (page) => {
    await signIn(page, "bob", "right");
    await pickSession(page);
    await page.getByText("needs the action administer").waitFor();
    await open(page, "status");
    await page.locator(".status tbody tr").first().waitFor();
    assert.equal(await page.locator("#drain").isVisible(), false);
  }, { expectsFailures: true }));

  test("who may not look is told so, with what to do, in every view", () => visit(at.mock.url, async (page) => {
    await signIn(page, "eve", "right");
    for (const view of VIEWS.filter((name) => name !== "map")) {
      await open(page, view);
      await page.locator(`#view-${view}`).getByText("no rule allows eve to observe").waitFor();
      await page.locator(`#view-${view}`).getByText("Ask whoever keeps the broker's rules for the action observe").waitFor();
    }
  }, { expectsFailures: true }));

  test("who may neither look nor change anything has the map, until the rules allow more", () => visit(at.mock.url, async (page) => {
    await signIn(page, "dan", "right");
    await page.locator(".map-state.good").waitFor();
    await until("nodes", () => nodes(page), (count) => count > 0);
    await page.locator("#health", { hasText: "Connected" }).waitFor();
    assert.equal(await page.locator("#place").textContent(), "north in baltic");
    await open(page, "status");
    await page.locator("#view-status").getByText("no rule allows dan to observe").waitFor();
    at.mock.set.users = { ...USERS, dan: { ...USERS.dan, may: ["observe"] } };
    await page.locator("#health", { hasText: "3 brokers" }).waitFor();
    await page.locator("#view-status .trouble").getByText("no rule allows").waitFor({ state: "detached" });
    await page.locator(".status tbody tr", { hasText: "tower" }).waitFor();
  }, { expectsFailures: true }));
}

function failureTests(at) {
  test("brokers that are silent, cut off, or refuse are named in every view", () => visit(at.mock.url, async (page) => {
    at.mock.set.silent = ["harbour"];
    at.mock.set.missed = ["tower"];
    for (const view of VIEWS.filter((name) => name !== "map")) {
      await open(page, view);
      await page.locator(`#view-${view} .missing`).getByText("harbour has not answered in time").waitFor();
      await page.locator(`#view-${view} .missing`).getByText("tower could not be asked").waitFor();
    }
    await page.locator("#health", { hasText: "2 brokers missing" }).waitFor();
    await page.locator(".status tbody tr", { hasText: "harbour" }).getByText("silent").waitFor();
    at.mock.set.silent = [];
    at.mock.set.missed = [];
    at.mock.set.refusing = ["tower"];
    await page.locator("#view-status .missing").getByText("its answer was too long for a letter").waitFor();
  }));

  test("a broker that is gone is told, and found again", () => visit(at.mock.url, async (page) => {
    await open(page, "streams");
    await page.locator(".streams tbody tr").first().waitFor();
    await at.mock.die();
    await page.locator("#banner").getByText("cannot be reached").waitFor();
    await page.locator("#health", { hasText: "Not reachable" }).waitFor();
    await at.mock.comeBack();
    await page.locator("#health", { hasText: "3 brokers" }).waitFor();
    assert.equal(await page.locator("#banner").isVisible(), false);
  }, { expectsFailures: true }));

  test("a request that fails is told in the broker's words", () => visit(at.mock.url, async (page) => {
    at.mock.set.failing["/system/streams"] = { status: 504, error: "the answer has taken too long; the broker is busy: ask again later" };
    await open(page, "streams");
    await page.locator(".streams .trouble").getByText("the broker is busy").waitFor();
    at.mock.set.failing = {};
    await page.locator(".streams tbody tr").first().waitFor();
    assert.equal(await page.locator(".streams .trouble .notice").count(), 0);
  }, { expectsFailures: true }));

  test("a broker without an overlay is shown alone", () => visit(at.mock.url, async (page) => {
    at.mock.set.isAlone = true;
    await open(page, "overlay");
    await page.locator(".overlay").getByText("this broker has no overlay").first().waitFor();
    assert.equal(await page.locator(".graph .node").count(), 1);
    for (const view of ["streams", "sessions", "status"]) {
      await open(page, view);
      await page.locator(`#view-${view} tbody tr`, { hasText: "north" }).first().waitFor();
    }
    await page.locator("#health", { hasText: "1 broker" }).waitFor();
  }));
}

/** What may be found in no page: elements that came out of texts, and what their scripts would do. */
async function assertUnharmed(page) {
  const found = await page.evaluate(() => ({ harmed: window.harmed ?? null, images: document.querySelectorAll("main img, main script, main b").length }));
  assert.deepEqual(found, { harmed: null, images: 0 });
}

function hostileTests(at) {
  test("hostile texts stay texts", () => visit(at.mock.url, async (page) => {
    await page.locator(".map-area[data-fitted]").waitFor();
    await page.locator(".map-area").press("n");
    await page.locator(".node-panel").getByText("onerror").first().waitFor();
    await page.locator(".legend").getByText("<b>").first().waitFor();
    await assertUnharmed(page);
    for (const view of VIEWS.slice(1)) {
      await open(page, view);
      await page.locator(`#view-${view} :is(tbody tr, .plot canvas)`).first().waitFor();
      await assertUnharmed(page);
    }
    await page.getByLabel("Event id").fill(EVENT);
    await page.getByRole("button", { name: "Trace" }).click();
    await page.locator(".way").getByText("onerror").waitFor();
    await assertUnharmed(page);
    await open(page, "overlay");
    await page.getByLabel("Ways of topic").fill(HOSTILE);
    await page.keyboard.press("Enter");
    await page.locator(".ways-panel").getByText("onerror").waitFor();
    await assertUnharmed(page);
  }));

  test("a session with a hostile name is looked into and ended as any other", () => visit(at.mock.url, async (page) => {
    await open(page, "sessions");
    await page.getByLabel("Search").fill("</td>");
    await page.locator(".sessions tbody a").first().click();
    await page.locator(".panel h2", { hasText: HOSTILE_ID }).waitFor();
    await page.locator(".panel code", { hasText: "onerror" }).first().waitFor();
    await page.getByRole("button", { name: "End this session" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "End session" }).click();
    await page.getByText("The session has ended.").waitFor();
    assert.deepEqual([...at.mock.set.ended], [HOSTILE_ID]);
    await assertUnharmed(page);
  }));
}

function sessionTests(at) {
  test("sessions are searched, sorted, paged, and more are asked for", () => visit(at.mock.url, async (page) => {
    await open(page, "sessions");
    await page.getByText("1 – 50 of").waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("51 – 100 of").waitFor();
    await page.getByRole("button", { name: "Ask for more" }).click();
    await page.getByText("of 1,660 sessions").waitFor();
    await page.getByRole("button", { name: "Lag" }).click();
    await page.locator("th[aria-sort=descending]", { hasText: "Lag" }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("billing-north-0001");
    await until("rows", () => page.locator(".sessions tbody tr").count(), (count) => count === 1);
  }));

  test("what is searched is found among all sessions, also among those that were not listed", () => visit(at.mock.url, async (page) => {
    await open(page, "sessions");
    await page.getByText("1 – 50 of").waitFor();
    await page.getByText("Of north only a part is here").waitFor();
    await page.getByLabel("Search").fill("bus-north-139");
    await until("rows", () => page.locator(".sessions tbody tr th").allTextContents(), (ids) => ids.join() === "bus-north-1391,bus-north-1397");
    await page.getByText("2 of 1,262 sessions").waitFor();
    await page.locator(".sessions tbody a", { hasText: "bus-north-1397" }).click();
    await page.locator(".panel .facts").getByText("connected").first().waitFor();
    // Their numbers are no totals while a broker is away.
    at.mock.set.silent = ["tower"];
    await page.locator(".filter [role=status]", { hasText: "without tower" }).waitFor();
  }));

  test("connected clients are listed with address, protocol, user and rates, and can be disconnected", () => visit(at.mock.url, async (page) => {
    await open(page, "sessions");
    await page.getByText("1 – 50 of").waitFor();
    await page.getByLabel("Search").fill("dispatch-north-0000");
    await page.getByLabel("Show", { exact: true }).selectOption("here");
    const row = page.locator(".sessions tbody tr:visible", { hasText: "dispatch-north-0000" });
    const cells = await until("a rate", () => row.locator("td").allTextContents(), (texts) => /\d/.test(texts[5] ?? ""));
    assert.deepEqual(cells.slice(0, 4), ["north", "10.1.0.0:40000", "3.1.1 bridge, mqtt", "desk"]);
    await row.getByRole("button", { name: "Disconnect dispatch-north-0000" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
    assert.equal(at.mock.set.kicked.size, 0);
    await row.getByRole("button", { name: "Disconnect dispatch-north-0000" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Disconnect", exact: true }).click();
    await page.locator(".panel").getByText("The client was disconnected. Its session stays for 7 d").waitFor();
    assert.deepEqual([...at.mock.set.kicked], ["dispatch-north-0000"]);
    await until("rows", () => row.count(), (count) => count === 0);
    await page.getByLabel("Show", { exact: true }).selectOption("away");
    await row.waitFor();
  }));

  test("ending a session is asked about first, and can be left", () => visit(at.mock.url, async (page) => {
    await pickSession(page);
    await page.getByRole("button", { name: "End this session" }).click();
    await page.keyboard.press("Escape");
    await until("windows", () => page.getByRole("dialog").count(), (count) => count === 0);
    assert.equal(at.mock.set.ended.size, 0);
    assert.ok(!at.mock.set.requests.some((request) => request.startsWith("DELETE")));
    await page.keyboard.press("Escape");
    await until("the panel", () => page.locator("#view-sessions .panel").isVisible(), (isThere) => !isThere);
  }));

  test("a session elsewhere says where it can be looked into", () => visit(at.mock.url, async (page) => {
    await open(page, "sessions");
    await page.getByLabel("Search").fill("tower-0005");
    await page.locator(".sessions tbody a").first().click();
    await page.locator(".panel").getByRole("link", { name: "the console of tower" }).waitFor();
  }));

  test("a stream's holder leads to its session, and what is not there is told", () => visit(at.mock.url, async (page) => {
    await open(page, "streams");
    await page.locator(".holder a").first().click();
    await page.locator("#view-sessions .panel").getByText("there is no session with the client id").waitFor();
  }, { expectsFailures: true }));
}

function actionTests(at) {
  test("draining is asked about first, and shown", () => visit(at.mock.url, async (page) => {
    await open(page, "status");
    await page.getByRole("button", { name: "Drain this broker" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Drain", exact: true }).click();
    await page.locator("#health", { hasText: "Draining" }).waitFor();
    assert.ok(at.mock.set.requests.includes("POST /api/v1/drain"));
  }));

  test("mistakes of a configuration that is read again are told line by line", () => visit(at.mock.url, async (page) => {
    at.mock.set.mistakes = ["whimbrel.toml:3:1: there is no action \"publsh\"", "whimbrel.toml:5:9: a rule names no `principals`"];
    await open(page, "status");
    await page.getByRole("button", { name: "Reload configuration" }).click();
    const said = page.locator(".status .lines", { hasText: "there is no action" });
    await said.waitFor();
    assert.equal((await said.innerText()).split("\n").length, 3);
    at.mock.set.mistakes = [];
    await page.getByRole("button", { name: "Reload configuration" }).click();
    await page.locator(".status .lines", { hasText: "was read again" }).waitFor();
  }, { expectsFailures: true }));

  test("peers that are not reached are told with the reason", () => visit(at.mock.url, async (page) => {
    await open(page, "status");
    const peers = page.locator(".status .plain-list").first();
    await peers.getByText("its name does not resolve").waitFor();
    await until("states", () => peers.locator(".pill").allTextContents(), (states) => states[0] === "reached" && states[1].startsWith("not reached for"));
  }));

  test("an event's way is shown, and a wrong id is told", () => visit(at.mock.url, async (page) => {
    await open(page, "status");
    await page.getByLabel("Event id").fill(EVENT);
    await page.keyboard.press("Enter");
    await until("brokers of the way", () => page.locator(".way h4").allTextContents(), (names) => names.join() === "north,harbour,tower");
    // What became of its copies, in words and, on request, in the picture: a lost one is faint from where it was seen last.
    await page.locator(".status .ways").getByText("north › tower planned 93\u202fms, too late: no sign of it beyond north").waitFor();
    await page.getByRole("button", { name: "Draw these ways" }).click();
    await page.locator(".overlay .ways").getByText("came first, 20\u202fms old").waitFor();
    assert.equal(await page.locator(".graph line.route-0").count(), 2);
    assert.equal(await page.locator(".graph line.unseen.route-1").count(), 1);
    await page.keyboard.press("Escape");
    await until("no ways", () => page.locator(".graph .route").count(), (count) => count === 0);
    await open(page, "status");
    await page.getByLabel("Event id").fill("yesterday");
    await page.keyboard.press("Enter");
    await page.locator(".trace").getByText("is no event id").waitFor();
  }, { expectsFailures: true }));
}

const nodes = (page) => page.locator(".controls").evaluate((node) => Number(node.textContent.match(/([\d,]+) nodes?/)?.[1].replace(",", "") ?? 0));

function mapTests(at) {
  test("nodes come in, are picked by keys and by pointer, followed, found, and filtered", () => visit(at.mock.url, async (page) => {
    await until("nodes", () => nodes(page), (count) => count === 300);
    await page.locator(".map-area[data-fitted]").waitFor();
    const area = page.locator(".map-area");
    await area.focus();
    for (const key of ["+", "ArrowLeft", "ArrowUp", "-", "0", "n"]) await page.keyboard.press(key);
    const panel = page.locator(".node-panel");
    await panel.getByText("speed").first().waitFor();
    await page.keyboard.press("f");
    await until("following", () => page.getByRole("button", { name: "Follow", pressed: true }).count(), (count) => count === 1);
    // The node that is followed is in the middle.
    const box = await area.boundingBox();
    await page.keyboard.press("Escape");
    await until("the panel", () => panel.isVisible(), (isThere) => !isThere);
    await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
    await panel.waitFor();
    await page.getByLabel("Find").fill("bus0042");
    await page.keyboard.press("Enter");
    await panel.locator("h2", { hasText: "bus0042" }).waitFor();
    await page.getByLabel("Filter").fill("fleet/N56/+/position");
    await page.keyboard.press("Enter");
    await until("nodes of one line", () => nodes(page), (count) => count === 19);
    await page.getByRole("radio", { name: "by age" }).check();
    await page.locator(".legend").getByText("within 10 s: 19").waitFor();
  }));

  test("the map moves by mouse and wheel, and draws", () => visit(at.mock.url, async (page) => {
    await page.locator(".map-area[data-fitted]").waitFor();
    const scale = page.locator(".scale span");
    const before = await scale.textContent();
    const box = await page.locator(".map-area").boundingBox();
    await page.mouse.move(box.x + 300, box.y + 300);
    await page.mouse.wheel(0, -900);
    await until("the scale", () => scale.textContent(), (words) => words !== before);
    await page.mouse.down();
    await page.mouse.move(box.x + 400, box.y + 340, { steps: 4 });
    await page.mouse.up();
    const colours = await page.locator(".map-area").evaluate((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return new Set(new Uint32Array(data.buffer)).size;
    });
    assert.ok(colours > 10, `${colours} colours`);
  }));

  test("brokers stand on the map where they say, also in words", () => visit(at.mock.url, async (page) => {
    await until("brokers", () => page.locator(".map-area li").allTextContents(), (names) => names.join() === "harbour: 53.428, 14.553,north: 54.352, 18.646,tower: 52.230, 21.011");
    at.mock.set.missed = ["tower"];
    await until("brokers that answer", () => page.locator(".map-area li").count(), (count) => count === 2);
  }));

  test("messages without a place are counted, and places in properties found", () => visit(at.mock.url, async (page) => {
    await until("nodes", () => nodes(page), (count) => count === 300);
    const base = { cmd: "publish", qos: 0, dup: false, retain: false };
    for (const payload of ["", "null", "{", "[1]", "{\"lat\":91,\"lon\":0}", "{\"lat\":\"x\",\"lon\":{}}"]) at.mock.mqtt.publish({ ...base, topic: "fleet/x/y/position", payload });
    at.mock.mqtt.publish({ ...base, topic: "fleet/x/ferry/position", payload: "ahoy", properties: { userProperties: { lat: "54.5", lon: "18.6" } } });
    await page.getByText("6 messages without a position").waitFor();
    await page.getByLabel("Find").fill("ferry");
    await page.keyboard.press("Enter");
    await page.locator(".node-panel").getByText("54.50000, 18.60000").waitFor();
  }));

  test("what README and tour publish is shown without another filter", () => visit(at.mock.url, async (page) => {
    await until("nodes", () => nodes(page), (count) => count === 300);
    const base = { cmd: "publish", qos: 0, dup: false, retain: false };
    at.mock.mqtt.publish({ ...base, topic: "fleet/7/position", payload: "{\"lat\":52.23,\"lon\":21.01}" });
    at.mock.mqtt.publish({ ...base, topic: "fleet/8/position", payload: "52.19,20.97", properties: { userProperties: { line: "N56", speed: "20" } } });
    await until("nodes", () => nodes(page), (count) => count === 302);
    await page.getByLabel("Find").fill("8");
    await page.getByRole("button", { name: "8", exact: true }).click();
    await page.locator(".node-panel").getByText("52.19000, 20.97000").waitFor();
    await page.locator(".node-panel dd", { hasText: "N56" }).first().waitFor();
  }));

  test("the line at 180° is a place like any other", () => visit(at.mock.url, async (page) => {
    await page.locator(".map-area[data-fitted]").waitFor();
    const seen = await page.evaluate(async () => {
      const { around, lonOf, View, worldX, worldY } = await import("./js/map/projection.js");
      const { Fleet } = await import("./js/map/fleet.js");
      const { decode, draw } = await import("./js/map/outlines.js");
      // Two places on either side of it are near each other, and are seen together.
      const box = around([[178.44, -18.14], [-171.75, -13.83]]);
      const view = new View(600, 400);
      view.fit(box);
      const across = (lon) => view.screenX(view.first(worldX(lon)));
      const [suva, apia] = [across(178.44), across(-171.75)];
      // A ship that goes over it leaves a short trail.
      const fleet = new Fleet();
      const at = (lon) => ({ topic: "fleet/ship/position", payload: new TextEncoder().encode(`{"lat":-17,"lon":${lon}}`) });
      fleet.take(at(179.9), 0, true);
      const ship = fleet.take(at(-179.9), 1000, true);
      const xs = [];
      ship.trail.each((x) => xs.push(x));
      // Land on both sides of it: Chukotka lies at 170° and at -175°.
      const outlines = decode(await (await fetch("vendor/outlines.bin")).arrayBuffer());
      const canvas = Object.assign(document.createElement("canvas"), { width: 600, height: 400 });
      const context = canvas.getContext("2d");
      const chukotka = new View(600, 400);
      chukotka.centre(worldX(180), worldY(67), 600 * 12);
      draw(context, chukotka, outlines, { land: "#00ff00", coast: "#ff0000", border: "#0000ff", label: "#0000ff" });
      const green = (lon) => [...context.getImageData(chukotka.screenX(chukotka.first(worldX(lon))), chukotka.screenY(worldY(67.3)), 1, 1).data].join();
      return {
        width: box.east - box.west, suva, apia, trail: Math.max(...xs) - Math.min(...xs), worlds: chukotka.worlds().length,
        colours: [175, 179.5, -179.5, -176].map(green), degrees: [worldX(180), worldX(-180), 1.25].map((x) => Math.round(lonOf(x))),
      };
    });
    assert.ok(Math.abs(seen.width - 9.81 / 360) < 1e-9, `${seen.width}`);
    assert.ok(seen.suva > 0 && seen.suva < seen.apia && seen.apia < 600, JSON.stringify(seen));
    assert.ok(Math.abs(seen.trail - 0.2 / 360) < 1e-9, `${seen.trail}`);
    assert.deepEqual([seen.worlds, seen.colours, seen.degrees], [2, Array(4).fill("0,255,0,255"), [-180, -180, -90]]);
  }));

  test("a filter that is refused is told with the reason", () => visit(at.mock.url, async (page) => {
    await page.locator(".map-state.good").waitFor();
    await page.getByLabel("Filter").fill("secret/#");
    await page.keyboard.press("Enter");
    await page.locator(".map-state.bad", { hasText: "You may not subscribe to secret/#" }).waitFor();
  }));

  test("thousands of nodes are drawn without holding the page up", () => visit(at.mock.url, async (page) => {
    await page.locator(".map-area[data-fitted]").waitFor();
    const base = { cmd: "publish", qos: 0, dup: false, retain: false };
    for (let number = 0; number < 5000; number += 1) {
      const body = { lat: 52 + (number % 71) / 150, lon: 20.5 + Math.floor(number / 71) / 80 };
      at.mock.mqtt.publish({ ...base, topic: `fleet/many/n${number}/position`, payload: JSON.stringify(body) });
    }
    await until("nodes", () => nodes(page), (count) => count === 5300);
    const frames = await page.evaluate(() => new Promise((resolve) => {
      const times = [];
      const look = (time) => (times.push(time) < 60 ? requestAnimationFrame(look) : resolve(times));
      requestAnimationFrame(look);
    }));
    const gaps = frames.slice(1).map((time, at) => time - frames[at]).sort((a, b) => a - b);
    // Without a graphics card and with other work on the machine: a bound that only a page that hangs breaks.
    assert.ok(gaps[Math.floor(gaps.length / 2)] < 120, `between frames: ${gaps.map(Math.round)}`);
  }));
}

function chartTests(at) {
  test("charts tell values at the crosshair, by keys, for each broker too", () => visit(at.mock.url, async (page) => {
    await open(page, "charts");
    const first = page.locator(".chart").first();
    await until("a value", () => first.locator("dd").first().textContent(), (words) => /\d/.test(words));
    await first.focus();
    await page.keyboard.press("ArrowLeft");
    await until("the crosshair's time", () => first.locator(".head .quiet").textContent(), (words) => /\d\d:\d\d:\d\d/.test(words));
    await page.keyboard.press("Escape");
    await until("now", () => first.locator(".head .quiet").textContent(), (words) => words === "now");
    await page.getByLabel("Of", { exact: true }).selectOption("each");
    await until("brokers", () => first.locator("dt").allTextContents(), (names) => names.join() === "harbour,north,tower");
    await page.getByLabel("Of", { exact: true }).selectOption("=tower");
    await until("series", () => first.locator("dt").allTextContents(), (names) => names.join() === "accepted,logged");
  }));

  test("the overlay tells load, and the way to the broker that is picked", () => visit(at.mock.url, async (page) => {
    await open(page, "overlay");
    await page.locator(".edge-label", { hasText: "/s" }).first().waitFor();
    await page.locator(".node", { hasText: "tower" }).focus();
    await page.keyboard.press("Enter");
    await page.locator(".overlay .facts").getByText("north › harbour › tower").waitFor();
    await page.locator(".overlay .facts").getByText("eu, port").waitFor();
    // What events with a deadline find of a link: in the picture and in the table.
    await page.locator(".graph .edge.slow").waitFor({ state: "attached" });
    await page.locator(".overlay .pill").getByText("slow").waitFor();
    await page.locator(".overlay small").getByText(/to tower: events arrive late, for 4\d.s/).waitFor();
    assert.equal(await page.locator(".graph .way").count(), 2);
  }));

  test("the ways of a topic are drawn apart, without colour too, and told", () => visit(at.mock.url, async (page) => {
    await open(page, "overlay");
    await page.locator(".graph .node").first().waitFor();
    await page.getByLabel("Ways of topic").fill("alarm/1");
    await page.keyboard.press("Enter");
    const told = page.locator(".ways");
    await told.getByText("to harbour: 2 ways, 1 of them within 80\u202fms, nothing in common").waitFor();
    assert.equal(await page.locator(".graph line.route").count(), 3, "one link, and two");
    await page.getByLabel("to", { exact: true }).selectOption("tower");
    await until("ways to tower", () => told.locator("li").allTextContents(), (words) => words.length === 2 && words[0].includes("north › harbour › tower 20") && words[1].includes("north › tower 92") && words[1].includes("too late"));
    const look = (number) => page.locator(`.graph line.route-${number}`).first().evaluate((line) => {
      const { stroke, strokeDasharray } = getComputedStyle(line);
      return { stroke, dashes: strokeDasharray, x: line.x1.baseVal.value, y: line.y1.baseVal.value };
    });
    const [first, second] = [await look(0), await look(1)];
    assert.notEqual(first.stroke, second.stroke);
    assert.notEqual(first.dashes, second.dashes);
    assert.deepEqual(await page.locator(".graph .badge-number").allTextContents(), ["1", "1", "2"]);
    assert.equal(await page.locator(".graph .way").count(), 0, "the best way does not lie below");
    // A destination is picked in the picture, too; and another source asks another broker.
    await page.locator(".node", { hasText: "harbour" }).click();
    await told.getByText("to harbour:").waitFor();
    await page.getByLabel("from", { exact: true }).selectOption("tower");
    await page.locator(".ways-panel").getByText("Ways of alarm/1 from tower").waitFor();
    await told.locator("li", { hasText: "tower › harbour" }).first().waitFor();
    await page.getByLabel("Ways of topic").fill("nobody/wants");
    await page.keyboard.press("Enter");
    await page.locator(".ways-panel").getByText("No other broker wants nobody/wants from tower.").waitFor();
    assert.equal(await page.locator(".graph .route").count(), 0);
    await page.getByRole("button", { name: "Clear" }).click();
    assert.equal(await page.locator("#topic-clear").isVisible(), false);
  }));

  test("a broker that has no answer about a topic is told in its words", () => visit(at.mock.url, async (page) => {
    at.mock.set.failing["/system/paths"] = { status: 400, error: "\"a/+\" is no topic: write one without wildcards" };
    await open(page, "overlay");
    await page.locator(".graph .node").first().waitFor();
    await page.getByLabel("Ways of topic").fill("a/+");
    await page.keyboard.press("Enter");
    await page.locator(".ways-panel").getByText("write one without wildcards").waitFor();
  }, { expectsFailures: true }));
}

if (!REAL) {
  withMock("sign-in", { signIn: true, vehicles: 20 }, signInTests);
  withMock("failures", { vehicles: 20 }, failureTests);
  withMock("hostile texts", { hostile: true, vehicles: 20 }, hostileTests);
  withMock("sessions", { vehicles: 20 }, sessionTests);
  withMock("actions", { vehicles: 20 }, actionTests);
  withMock("the map", { vehicles: 300 }, mapTests);
  withMock("charts and overlay", { vehicles: 20 }, chartTests);
}
