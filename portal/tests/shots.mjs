// Takes pictures of screens: node tests/shots.mjs URL FOLDER [width] [scheme] [language] PATH...
import { chromium } from "playwright-core";
import { createHmac } from "node:crypto";

const [url, folder, width = "1440", scheme = "light", language = "en", user = "ann", ...paths] = process.argv.slice(2);

export function totp(secret, at = Date.now()) {
  const bits = [...secret].map((digit) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".indexOf(digit).toString(2).padStart(5, "0")).join("");
  const key = Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)));
  const tag = createHmac("sha1", key).update(counter).digest();
  const offset = tag[19] & 15;
  return String((tag.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, "0");
}

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-quic"] });
const page = await (await browser.newContext({ viewport: { width: Number(width), height: width === "390" ? 844 : 900 }, colorScheme: scheme, locale: language })).newPage();
page.on("console", (message) => message.type() === "error" && console.log("console:", message.text()));
page.on("pageerror", (error) => console.log("page error:", error.message));
await page.goto(url);
await page.getByRole("textbox").first().waitFor();
await page.screenshot({ path: `${folder}/signin-${width}-${scheme}-${language}.png` });
await page.locator("#signin-name").fill(user);
await page.locator("#signin-password").fill("correct horse battery");
await page.keyboard.press("Enter");
if (["ops", "noc", "pro", "reg"].includes(user)) {
  await page.locator("#signin-code").fill(totp("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"));
  await page.keyboard.press("Enter");
}
await page.locator("h1").first().waitFor();
await page.waitForTimeout(600);
for (const path of paths.length > 0 ? paths : ["/"]) {
  await page.goto(url + path);
  await page.waitForTimeout(700);
  const name = path.replaceAll("/", "_");
  await page.screenshot({ path: `${folder}/${user}${name}-${width}-${scheme}-${language}.png`, fullPage: true });
}
await browser.close();
