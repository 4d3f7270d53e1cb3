// Filters an attack on the page, as Aoba does in Chromium:
//   node attack.mjs URL FOLDER
// Waits for a line on standard input before it presses the last button, so that the demo can start the attack. Prints the time
// of that press.
import { once } from "node:events";
import { open, signIn, startBrowser } from "../../portal/tests/journeys/support.mjs";

const [url, folder] = process.argv.slice(2);
const browser = await startBrowser();
const say = (event) => console.log(JSON.stringify({ event, at: Date.now() / 1000 }));
try {
  const { page } = await open(browser);
  await signIn(page, url, "ann", "/filters");
  await page.getByRole("button", { name: "New filter" }).click();
  const dialog = page.getByRole("dialog");
  await page.locator("input#filter-destination, #filter-destination input").fill("198.18.1.10");
  await dialog.getByRole("button", { name: /Protocol/ }).click();
  await page.getByRole("option", { name: "UDP" }).click();
  await dialog.getByLabel("Source ports").fill("123");
  await page.screenshot({ path: `${folder}/filter.png` });
  say("ready");
  await once(process.stdin, "data");
  say("ordered");
  await dialog.getByRole("button", { name: "New filter" }).click();
  await dialog.waitFor({ state: "hidden" });
  await page.getByText("198.18.1.10/32").first().waitFor();
  say("seen on the page");
  await page.screenshot({ path: `${folder}/filters.png` });
} finally {
  await browser.close();
  process.stdin.destroy();
}
