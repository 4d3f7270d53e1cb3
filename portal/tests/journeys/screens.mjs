// Every screen in light and dark, in each of its states: axe-core, width, size of targets.
import { readFileSync } from "node:fs";
import { PUBLIC } from "./desk.mjs";
import { assert, assertFits, open, signIn, texts, violations } from "./support.mjs";

/** The screens by user. `busy` is false for a screen that shows its form without any data. */
const SCREENS = {
  ann: [
    "/",
    "/order",
    "/services",
    "/services/SERVICE",
    "/lan",
    "/connections",
    "/traffic",
    "/billing",
    "/attack",
    "/filters",
    "/keys",
    "/audit",
    "/groups",
    "/cross-connects",
    "/matrix",
    "/notices",
  ],
  bob: ["/lan"],
  ops: [
    "/noc",
    "/fabric",
    "/drift",
    "/changes",
    "/changes/ch-1",
    "/approvals",
    "/members",
    "/policies",
    "/manrs",
    "/audit",
  ],
  reg: ["/audit", "/policies", "/notices"],
  ann2: ["/services?q=nothing-matches", "/services/sv-999", "/nowhere", "/changes/ch-999"],
};
const WITHOUT_DATA = ["/order"];
/** The reads of a screen that has no empty state: one object, or a form. */
const NEVER_EMPTY = ["/order", "/services/SERVICE", "/changes/ch-1"];

const EMPTY_OVERVIEW = {
  tasks: [],
  services: [],
  connections: [],
  switches: [],
  trunks: [],
  changes_open: 0,
  load: null,
  at: "2026-11-24T00:00:00.000Z",
  revision: 1,
};
const PROBLEM = {
  type: "/api/v1/problems/unavailable",
  title: "The engine does not answer",
  status: 503,
  detail: "the database does not answer",
};

/** Returns the answer of an exchange without objects, or undefined for what stays as it is. */
function emptyAnswer(url) {
  const { pathname } = new URL(url);
  if (pathname === "/api/v1/overview") return EMPTY_OVERVIEW;
  if (pathname === "/api/v1/traffic")
    return { measured: false, seconds: 0, incoming: [], outgoing: [], top: [], samples: 0, lost: 0 };
  if (pathname === "/api/v1/billing") return { measured: false, month: "", frozen: false, rows: [] };
  if (pathname === "/api/v1/matrix") return { measured: false, pairs: [] };
  if (pathname === "/api/v1/attack") return { targets: [], traffic: null };
  if (/^\/api\/v1\/[a-z-]+$/.test(pathname) && !pathname.endsWith("/session"))
    return { items: [], next: null, total: 0 };
  return undefined;
}

/** Makes the reads of a page fail, wait for ever, or answer nothing, as `mode.state` says. */
async function intercept(page, mode) {
  await page.route("**/api/v1/**", async (route) => {
    const request = route.request();
    const isData = request.method() === "GET" && !/\/(session|events)(\?|$)/.test(request.url());
    const empty = emptyAnswer(request.url());
    if (!isData || mode.state === "full" || (mode.state === "empty" && empty === undefined)) await route.continue();
    else if (mode.state === "empty") await route.fulfill({ json: empty });
    else if (mode.state === "error")
      await route.fulfill({ status: 503, json: PROBLEM, contentType: "application/problem+json" });
    // A read that waits for ever is left without an answer.
  });
}

/**
 * Returns controls that are smaller than 24 px in either direction (WCAG 2.2, 2.5.8); links in a line of text are
 * exempt.
 */
function smallTargets(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll("button, input, summary, [role=radio], a.button, .nav a, a.task")]
      .filter(
        (element) =>
          element.checkVisibility() &&
          !element.closest(".visually-hidden, [hidden], [aria-hidden=true]") &&
          !element.classList.contains("skip"),
      )
      .filter((element) => !(element instanceof HTMLInputElement && element.closest("label")))
      .map((element) => ({ element, box: element.getBoundingClientRect() }))
      .filter(({ box }) => box.width > 0 && (box.width < 24 || box.height < 24))
      .map(({ element, box }) => {
        const size = `${Math.round(box.width)} x ${Math.round(box.height)} px`;
        return `${element.tagName}.${element.className} "${element.textContent?.slice(0, 20)}" is ${size}`;
      }),
  );
}

async function look(guest, where, found, picture) {
  found.push(...(await violations(guest.page)).map((text) => `${where} ${text}`));
  await assertFits(guest.page, where).catch((error) => found.push(error.message));
  await picture(guest.page, where);
}

function matrix([width, scheme, locale]) {
  return {
    name: `every screen in every state passes axe-core and fits: ${width} px, ${scheme}, ${locale}`,
    once: true,
    run: async ({ browser, url, post, picture, opened }) => {
      const found = [];
      const t = texts(locale);
      await post("quarantine/dirty");
      await post("switch/drifted");
      await post("change/stuck");
      for (const [key, paths] of Object.entries(SCREENS)) {
        const user = key.replace(/\d$/, "");
        const guest = await open(browser, { width, scheme, locale });
        opened.push(guest);
        const { page } = guest;
        const mode = { state: "full" };
        await intercept(page, mode);
        if (key === "ann") {
          await page.goto(url);
          await page.locator("#signin-name").waitFor();
          await look(guest, "sign-in", found, picture);
        }
        await signIn(page, url, user);
        const service = await page.evaluate(
          async () => (await (await fetch("/api/v1/services?q=transit")).json()).items[0]?.id,
        );
        for (const path of paths) {
          const states =
            key === "ann2" || user === "bob"
              ? ["full"]
              : ["full", "empty", "loading", "error"].filter(
                  (state) => state !== "empty" || !NEVER_EMPTY.includes(path),
                );
          for (const state of states) {
            mode.state = state;
            const where = `${user} ${path} ${state}`;
            await page.goto(url + path.replace("SERVICE", service));
            await page.locator("#main h1").first().waitFor();
            if (state === "loading" && !WITHOUT_DATA.includes(path))
              await page
                .locator("[aria-busy=true]")
                .first()
                .waitFor({ timeout: 5_000 })
                .catch(() => found.push(`${where}: nothing says that it loads`));
            else if (state === "error" && !WITHOUT_DATA.includes(path))
              await page
                .getByText(t("problem.unavailable"))
                .first()
                .waitFor({ timeout: 10_000 })
                .catch(() => found.push(`${where}: nothing says what failed`));
            else await page.waitForTimeout(350);
            // Placeholders appear after 200 ms.
            if (state === "loading") await page.waitForTimeout(250);
            await look(guest, where, found, picture);
            if (state === "full") found.push(...(await smallTargets(page)).map((text) => `${where}: ${text}`));
          }
        }
        mode.state = "full";
      }
      assert(found.length === 0, found.join("\n"));
    },
  };
}

/** Returns the paths of the page's routes, with the names of their parameters. */
function routes() {
  const source = readFileSync(new URL("../../src/app/router.tsx", import.meta.url), "utf8");
  const found = [...source.matchAll(/(?:screen\(|path: )"([^"]+)"/g)].map((match) => match[1]);
  // Those of pages without a sign-in are looked at in desk.mjs, from a list of their own.
  return found.concat(PUBLIC.map((path) => path.split("#")[0]));
}

export const journeys = [
  {
    name: "every route of the page is a screen that axe-core looks at",
    once: true,
    run: async () => {
      const seen = [...Object.values(SCREENS).flat(), ...PUBLIC].map((path) => path.split(/[?#]/)[0]);
      const isSeen = (route) => {
        const pattern = new RegExp(`^${route.replaceAll(/\$\w+/g, "[^/]+")}$`);
        return seen.some((path) => pattern.test(path));
      };
      const all = routes();
      assert(all.length >= 25, `only ${all.length} routes are found in the router`);
      const unseen = all.filter((route) => !isSeen(route));
      assert(unseen.length === 0, `no state of these screens is looked at: ${unseen.join(", ")}`);
    },
  },
  ...[
    [1440, "light", "en"],
    [390, "dark", "ko"],
    [320, "light", "ja"],
    [1440, "dark", "ja"],
  ].map(matrix),
  {
    name: "old data is marked with its age when it cannot be read again",
    once: true,
    run: async ({ as, post }) => {
      const { page, t } = await as("ops", "/services");
      await page.getByRole("link", { name: "transit-baikal" }).waitFor();
      const mode = { state: "error" };
      await intercept(page, mode);
      await post("change/stuck");
      await page.getByText(t("load.stale")).waitFor();
      await page.getByRole("link", { name: "transit-baikal" }).waitFor();
      mode.state = "full";
      await page.getByRole("button", { name: t("act.retry") }).click();
      await page.getByText(t("load.stale")).waitFor({ state: "hidden" });
    },
  },
  {
    name: "the first load transfers at most 250 kB of script, whatever the first screen",
    once: true,
    run: async ({ browser, url, opened, as }) => {
      const ann = await as("ann");
      for (const path of ["/", "/attack", "/services", "/lan"]) {
        const guest = await open(browser);
        opened.push(guest);
        await guest.context.addCookies(await ann.context.cookies());
        const session = await guest.context.newCDPSession(guest.page);
        await session.send("Network.enable");
        const scripts = new Set();
        let bytes = 0;
        session.on(
          "Network.responseReceived",
          ({ requestId, response }) => response.mimeType.includes("javascript") && scripts.add(requestId),
        );
        session.on(
          "Network.loadingFinished",
          ({ requestId, encodedDataLength }) => scripts.has(requestId) && (bytes += encodedDataLength),
        );
        await guest.page.goto(url + path);
        await guest.page.locator("#main h1").first().waitFor();
        await guest.page.waitForLoadState("networkidle").catch(() => {});
        console.log(`      ${path}: ${(bytes / 1000).toFixed(0)} kB of script`);
        assert(bytes > 100_000 && bytes <= 250_000, `the first load of ${path} transfers ${bytes} bytes of script`);
      }
    },
  },
  {
    name: "at 50 kB/s the first load shows something within 3 s",
    once: true,
    run: async ({ browser, url, opened }) => {
      const slow = await open(browser);
      opened.push(slow);
      const session = await slow.context.newCDPSession(slow.page);
      await session.send("Network.enable");
      await session.send("Network.emulateNetworkConditions", {
        offline: false,
        latency: 100,
        downloadThroughput: 50_000,
        uploadThroughput: 50_000,
      });
      await slow.page.goto(url, { waitUntil: "commit" });
      const paint = await slow.page.evaluate(
        () =>
          new Promise((resolve) =>
            new PerformanceObserver((list) =>
              resolve(list.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0),
            ).observe({ type: "paint", buffered: true }),
          ),
      );
      console.log(`      first contentful paint at ${paint.toFixed(0)} ms`);
      assert(paint > 0 && paint <= 3_000, `something is shown after ${paint} ms`);
      await slow.page.locator("#signin-name").waitFor({ timeout: 60_000 });
    },
  },
  {
    name: "the largest paint of a first load and the next screen, at a processor four times slower",
    once: true,
    measure: true,
    run: async ({ as, url }) => {
      const { page, context, t } = await as("ann");
      const session = await context.newCDPSession(page);
      await session.send("Emulation.setCPUThrottlingRate", { rate: 4 });
      const paints = [];
      const presses = [];
      for (let round = 0; round < 5; round += 1) {
        await page.goto(`${url}/`);
        await page.getByText(t("home.needsMe")).waitFor();
        paints.push(
          await page.evaluate(
            () =>
              new Promise((resolve) =>
                new PerformanceObserver((list) => resolve(list.getEntries().at(-1)?.startTime ?? 0)).observe({
                  type: "largest-contentful-paint",
                  buffered: true,
                }),
              ),
          ),
        );
        await page.evaluate(() => {
          globalThis.longest = 0;
          new PerformanceObserver((list) =>
            list.getEntries().forEach((entry) => (globalThis.longest = Math.max(globalThis.longest, entry.duration))),
          ).observe({ type: "event", durationThreshold: 16 });
        });
        await page.locator(".nav a").nth(1).click();
        await page.getByRole("heading", { level: 1, name: t("nav.services") }).waitFor();
        await page.waitForTimeout(300);
        presses.push(await page.evaluate(() => globalThis.longest));
      }
      const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)] ?? 0;
      const [paint, press] = [median(paints), median(presses)];
      console.log(`      largest paint ${paint.toFixed(0)} ms, interaction ${press.toFixed(0)} ms (medians of 5)`);
      assert(median(paints) <= 1_500, `the largest paint takes ${median(paints)} ms`);
      assert(median(presses) <= 200, `the interaction takes ${median(presses)} ms`);
    },
  },
  {
    name: "10,000 rows scroll at 50 frames a second",
    once: true,
    measure: true,
    run: async ({ as, url }) => {
      const { page, t } = await as("ann");
      const count = 10_000;
      await page.route(/\/api\/v1\/services(\?|$)/, async (route) => {
        const answer = await (await route.fetch()).json();
        const items = Array.from({ length: count }, (_, number) => ({
          ...answer.items[number % answer.items.length],
          id: `sv-${100_000 + number}`,
          name: `path ${number}`,
        }));
        await route.fulfill({ json: { ...answer, items, next: null, total: count } });
      });
      await page.goto(`${url}/services`);
      const table = page.getByRole("table", { name: t("nav.services") });
      await table.waitFor();
      const rows = Number(await table.getAttribute("aria-rowcount"));
      assert(rows === count + 1, `the table has ${rows} rows`);
      const { frames, seconds, end } = await table.evaluate(
        (element) =>
          new Promise((resolve) => {
            const began = performance.now();
            let frames = 0;
            const step = () => {
              frames += 1;
              // A fast wheel: several screens a second.
              element.scrollTop += 60;
              const seconds = (performance.now() - began) / 1_000;
              if (seconds < 10) requestAnimationFrame(step);
              else resolve({ frames, seconds, end: element.scrollTop });
            };
            requestAnimationFrame(step);
          }),
      );
      console.log(`      ${(frames / seconds).toFixed(1)} frames a second, ${Math.round(end / seconds)} px a second`);
      assert(end > 1_000, `the table has scrolled ${end} px`);
      assert(frames / seconds >= 50, `${frames / seconds} frames a second`);
    },
  },
  {
    name: "live updates grow the heap by at most 5 MB in ten minutes",
    once: true,
    measure: true,
    run: async ({ as, post }) => {
      const seconds = Number(process.env.MEASURE_SECONDS ?? 600);
      const { page, context } = await as("ops", "/noc");
      const session = await context.newCDPSession(page);
      await session.send("HeapProfiler.enable");
      const heap = async () => {
        for (let round = 0; round < 3; round += 1) await session.send("HeapProfiler.collectGarbage");
        return (await session.send("Runtime.getHeapUsage")).usedSize / 1e6;
      };
      let reads = 0;
      page.on("response", (response) => response.url().includes("/api/v1/") && (reads += 1));
      const update = async (until) => {
        while (Date.now() < until) {
          for (const state of ["unreachable", "up"]) {
            await post(`switch/${state}`);
            await page.waitForTimeout(500);
          }
        }
      };
      // What a page needs once is there after some updates.
      await update(Date.now() + 10_000);
      const before = await heap();
      reads = 0;
      await update(Date.now() + 1_000 * seconds);
      const after = await heap();
      const grown = `${before.toFixed(1)} MB before and ${after.toFixed(1)} MB after ${seconds} s of updates`;
      console.log(`      ${grown}, ${reads} answers read`);
      assert(reads > seconds / 10, `the page has read ${reads} answers`);
      assert(after - before <= 5, `the heap has grown by ${after - before} MB`);
    },
  },
  {
    name: "the page asks no other host, and its policy reports nothing",
    once: true,
    run: async ({ as, url }) => {
      const { page, faults } = await as("ann");
      const foreign = [];
      page.on(
        "request",
        (request) =>
          !request.url().startsWith(url) && !request.url().startsWith("blob:") && foreign.push(request.url()),
      );
      for (const path of ["/", "/attack", "/lan", "/filters", "/order", "/services", "/keys"]) {
        const answer = await page.goto(url + path);
        const policy = answer?.headers()["content-security-policy"] ?? "";
        assert(policy.includes("default-src 'none'") && !policy.includes("unsafe"), `${path} has the policy ${policy}`);
        await page.locator("#main h1").first().waitFor();
        await page.waitForTimeout(200);
      }
      assert(foreign.length === 0, `requests to other hosts: ${foreign.join(", ")}`);
      assert(faults.length === 0, faults.join("; "));
    },
  },
];
