// The server and the browser of the journeys.
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { IntlMessageFormat } from "intl-messageformat";
import { chromium } from "playwright-core";

export const PASSWORD = "correct horse battery";
const SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
const axeSource = readFileSync(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** Returns the one-time code of a time (RFC 6238). */
export function totp(secret = SECRET, at = Date.now()) {
  const bits = [...secret]
    .map((digit) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(digit).toString(2).padStart(5, "0"))
    .join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const tag = createHmac("sha1", key).update(counter).digest();
  const offset = tag[19] & 15;
  return String((tag.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
/** The words for the engine's reasons; English is what the engine itself writes. */
const reasons = (language) =>
  read(language === "en" ? "../../reasons.json" : `../../src/i18n/reasons.${language}.json`);
const MESSAGES = Object.fromEntries(
  ["en", "ja", "ko"].map((language) => [
    language,
    {
      ...read(`../../src/i18n/${language}.json`),
      ...Object.fromEntries(Object.entries(reasons(language)).map(([code, text]) => [`reason.${code}`, text])),
    },
  ]),
);

/** Returns a function that renders the page's messages in a language. */
export function texts(language) {
  return (id, values = {}) => {
    const message = MESSAGES[language][id];
    if (message === undefined) throw new Error(`there is no message ${id} in ${language}`);
    return new IntlMessageFormat(message, language).format(values);
  };
}

/** Starts a server over a fresh exchange and returns its address and an end. */
export async function startServer(program, dist, address = "127.0.0.1:0", environment = {}) {
  const child = spawn(program, [address, dist], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...environment },
  });
  const lines = createInterface({ input: child.stdout });
  const line = await new Promise((resolve, reject) => {
    lines.once("line", resolve);
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
  });
  const url = line.replace("serving ", "").replace("127.0.0.1", "localhost");
  return { url, stop: () => child.kill(), post: (path) => fetch(url + path, { method: "POST" }) };
}

export function startBrowser() {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--no-first-run",
      "--disable-quic",
    ],
  });
}

/** Opens a page. Errors of scripts and violations of the policy fail the journey. */
export async function open(browser, { width = 1440, scheme = "light", locale = "en" } = {}) {
  const context = await browser.newContext({
    viewport: { width, height: width < 600 ? 844 : 900 },
    colorScheme: scheme,
    locale,
    reducedMotion: "reduce",
  });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Error:/.test(message.text()))
      faults.push(message.text());
  });
  page.setDefaultTimeout(15_000);
  return { page, context, faults };
}

/** The last code of each user at each server: a code is valid once. */
const lastCodes = new Map();

export async function signIn(page, url, user, path = "/") {
  await page.goto(url + path);
  await page.locator("#signin-name").fill(user);
  await page.locator("#signin-password").fill(PASSWORD);
  await page.keyboard.press("Enter");
  if (["ops", "noc", "pro", "reg"].includes(user)) {
    await page.locator("#signin-code").waitFor();
    const key = `${new URL(url).origin} ${user}`;
    while (totp() === lastCodes.get(key)) await new Promise((resolve) => setTimeout(resolve, 500));
    lastCodes.set(key, totp());
    await page.locator("#signin-code").fill(lastCodes.get(key));
    await page.keyboard.press("Enter");
  }
  await page.locator("#main h1").first().waitFor();
}

/**
 * Presses Tab until the focus is at an element, and fails after `limit` presses. It looks at each stop: the focus must
 * be visible and nothing may cover it.
 */
export async function tabTo(page, locator, limit = 80) {
  for (let press = 0; press < limit; press += 1) {
    if (
      await locator
        .first()
        .evaluate((element) => element === document.activeElement || element.contains(document.activeElement))
        .catch(() => false)
    )
      return;
    await page.keyboard.press("Tab");
    const fault = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return "";
      const style = getComputedStyle(element);
      const box = element.getBoundingClientRect();
      const outlined =
        style.outlineStyle !== "none" || style.boxShadow !== "none" || element.closest("[data-focus-visible]") !== null;
      const at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      const inside =
        box.width === 0 ||
        box.y < 0 ||
        box.y > innerHeight ||
        at === null ||
        element.contains(at) ||
        at.contains(element) ||
        at.closest("label")?.contains(element);
      const faults = [];
      if (!outlined) faults.push("no visible focus");
      if (!inside) faults.push(`covered by ${at?.className}`);
      const name = `${element.tagName}.${element.className} ${element.textContent?.slice(0, 30)}`;
      return faults.length === 0 ? "" : `${name}: ${faults.join(", ")}`;
    });
    if (fault) throw new Error(`at Tab: ${fault}`);
  }
  throw new Error(`Tab does not reach ${locator}`);
}

/** Returns what axe-core finds on the page, WCAG 2.0 to 2.2, levels A and AA. */
export async function violations(page) {
  // The policy forbids inline scripts; evaluation by the debugger is not one.
  await page.evaluate(axeSource);
  return page.evaluate(async () => {
    const found = await globalThis.axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
      resultTypes: ["violations"],
    });
    return found.violations.map(({ id, nodes }) => {
      const targets = nodes.map((node) => node.target.join(" ")).join(", ");
      return `${id}: ${targets} (${nodes[0]?.failureSummary?.replaceAll("\n", " ")})`;
    });
  });
}

/** Fails if the page is wider than its window. */
export async function assertFits(page, where) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (excess > 0) throw new Error(`${where}: the page is ${excess} px wider than its window`);
}

export function assert(condition, message) {
  if (!condition) throw new Error(message);
}
