// The server and the browser of the journeys.
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

export const PASSWORD = "correct horse battery";
const SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
const axeSource = readFileSync(new URL("../../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");

/** Returns the one-time code of a time (RFC 6238). */
export function totp(secret = SECRET, at = Date.now()) {
  const bits = [...secret].map((digit) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(digit).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const tag = createHmac("sha1", key).update(counter).digest();
  const offset = tag[19] & 15;
  return String((tag.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

/** Starts a server over a fresh exchange and returns its address and an end. */
export async function startServer(program, dist) {
  const child = spawn(program, ["127.0.0.1:0", dist], { stdio: ["ignore", "pipe", "inherit"] });
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
    args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic"],
  });
}

/** Opens a page. Errors of scripts and violations of the policy fail the journey. */
export async function open(browser, { width = 1440, scheme = "light", locale = "en" } = {}) {
  const context = await browser.newContext({ viewport: { width, height: width < 600 ? 844 : 900 }, colorScheme: scheme, locale, reducedMotion: "reduce" });
  const page = await context.newPage();
  const faults = [];
  page.on("pageerror", (error) => faults.push(`script: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && /Content Security Policy|Error:/.test(message.text())) faults.push(message.text());
  });
  page.setDefaultTimeout(15_000);
  return { page, context, faults };
}

let lastCode = "";

export async function signIn(page, url, user, path = "/") {
  await page.goto(url + path);
  await page.locator("#signin-name").fill(user);
  await page.locator("#signin-password").fill(PASSWORD);
  await page.keyboard.press("Enter");
  if (["ops", "noc", "pro"].includes(user)) {
    await page.locator("#signin-code").waitFor();
    // A code is valid once: wait for the next step if this one was used.
    while (totp() === lastCode) await new Promise((resolve) => setTimeout(resolve, 500));
    lastCode = totp();
    await page.locator("#signin-code").fill(lastCode);
    await page.keyboard.press("Enter");
  }
  await page.locator("#main h1").first().waitFor();
}

/** Returns what axe-core finds on the page, WCAG 2.0 to 2.2, levels A and AA. */
export async function violations(page) {
  // The policy forbids inline scripts; evaluation by the debugger is not one.
  await page.evaluate(axeSource);
  return page.evaluate(async () => {
    const found = await globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"], resultTypes: ["violations"] });
    return found.violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => node.target.join(" ")).join(", ")} (${violation.nodes[0]?.failureSummary?.replaceAll("\n", " ")})`);
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
