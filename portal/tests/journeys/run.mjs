// Journeys through the page in Chromium, against the API over an engine between simulated switches:
//   node tests/journeys/run.mjs [--only TEXT] [--quick] [--all] [--languages ja,ko] [--small] [--measure]
//     [--pictures FOLDER]
// Each journey runs in English at 1,440 px, and in Japanese or Korean (in turn) at 390 px. `--quick` leaves out the
// second run, `--small` the first one; `--all` runs every combination of language and width, `--all --languages ja,ko`
// those of some languages. `--measure` adds the times of paints and interactions (A37).
import { mkdirSync } from "node:fs";
import { journeys as account } from "./account.mjs";
import { journeys as desk } from "./desk.mjs";
import { journeys as observed } from "./observed.mjs";
import { journeys as oidc } from "./oidc.mjs";
import { journeys as operators } from "./operators.mjs";
import { journeys as paths } from "./paths.mjs";
import { journeys as records } from "./records.mjs";
import { journeys as screens } from "./screens.mjs";
import { assert, open, signIn, startBrowser, startServer, texts } from "./support.mjs";

const option = (name) => {
  const at = process.argv.indexOf(name);
  return at > 0 ? process.argv[at + 1] : undefined;
};
const only = option("--only") ?? "";
const languages = option("--languages")?.split(",");
const pictures = option("--pictures");
const program = process.env.PORTAL_SERVER ?? new URL("../../../target/debug/examples/portal", import.meta.url).pathname;
const dist = new URL("../../dist", import.meta.url).pathname;
if (pictures) mkdirSync(pictures, { recursive: true });

/** Returns the widths and languages in which a journey runs. */
function variants(journey, index) {
  // A measurement means something on a quiet machine only.
  if (journey.measure && !process.argv.includes("--measure")) return [];
  if (journey.once) return process.argv.includes("--small") ? [] : [{ width: 1440, locale: "en" }];
  const first = { width: journey.width ?? 1440, locale: "en" };
  if (process.argv.includes("--quick") || journey.only === "en") return [first];
  const every = [1440, 390].flatMap((width) => ["en", "ja", "ko"].map((locale) => ({ width, locale })));
  const chosen = languages ? every.filter(({ locale }) => languages.includes(locale)) : every;
  // A journey by keyboard runs where a keyboard is.
  if (journey.keyboard && process.argv.includes("--all")) return chosen.filter(({ width }) => width === 1440);
  if (process.argv.includes("--all")) {
    return process.argv.includes("--small") ? chosen.filter(({ width }) => width === 390) : chosen;
  }
  const second = { width: journey.keyboard ? 1440 : 390, locale: index % 2 === 0 ? "ja" : "ko" };
  return process.argv.includes("--small") ? [second] : [first, second];
}

const browser = await startBrowser();
let failed = 0;
let done = 0;
const all = [...paths, ...account, ...desk, ...oidc, ...observed, ...operators, ...records, ...screens];
for (const [index, journey] of all.entries()) {
  if (!journey.name.includes(only)) continue;
  for (const { width, locale } of variants(journey, index)) {
    const name = journey.once ? journey.name : `${journey.name} (${width} px, ${locale})`;
    let server = await startServer(program, dist);
    const address = `127.0.0.1:${new URL(server.url).port}`;
    const opened = [];
    const began = Date.now();
    const stage = {
      browser,
      opened,
      url: server.url,
      post: (path) => server.post(`/test/${path}`),
      picture: async (page, where) =>
        pictures &&
        page.screenshot({ path: `${pictures}/${where.replaceAll(/[ /?=]+/g, "_")}-${index}.png`, fullPage: true }),
      /** Signs a user in on a page of its own. */
      as: async (user, path = "/") => {
        const guest = await open(browser, { width, locale });
        opened.push(guest);
        await signIn(guest.page, server.url, user, path);
        return { ...guest, t: texts(locale) };
      },
      down: () => server.stop(),
      restart: async (environment) => {
        server = await startServer(program, dist, address, environment);
      },
      /** Opens a page without signing in. */
      guest: async () => {
        const guest = await open(browser, { width, locale });
        opened.push(guest);
        return { ...guest, t: texts(locale) };
      },
    };
    try {
      await journey.run(stage);
      const faults = opened.flatMap((guest) => guest.faults);
      assert(faults.length === 0, `the page reported: ${faults.join("; ")}`);
      console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
      done += 1;
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}: ${error.message}`);
      if (pictures)
        for (const [number, context] of browser.contexts().entries())
          await context
            .pages()[0]
            ?.screenshot({ path: `${pictures}/failed-${index}-${number}.png` })
            .catch(() => {});
    }
    for (const context of browser.contexts()) await context.close();
    server.stop();
  }
}
await browser.close();
const counted = `${all.filter((journey) => !journey.once).length} journeys in all`;
const byKeyboard = `${all.filter((journey) => journey.keyboard).length} by keyboard only`;
console.log(`${done} journeys passed, ${failed} failed (${counted}, ${byKeyboard})`);
process.exit(failed === 0 ? 0 : 1);
