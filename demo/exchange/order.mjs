// Orders a path on the page as two members do, in Chromium:
//   node order.mjs URL FOLDER
// Aoba orders, Danube accepts. Prints the times of the two presses as JSON, and keeps pictures in FOLDER.
import { mkdirSync } from "node:fs";
import { open, signIn, startBrowser } from "../../portal/tests/journeys/support.mjs";

const [url, folder] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const browser = await startBrowser();
/** Keeps a picture of the whole page, in a window of the same height. */
const picture = async (page, name) => {
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  await page.setViewportSize({ width: 1440, height: Math.max(900, height) });
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.screenshot({ path: `${folder}/${name}.png` });
};
const say = (event) => console.log(JSON.stringify({ ...event, at: Date.now() / 1000 }));
try {
  const aoba = (await open(browser)).page;
  await signIn(aoba, url, "ann", "/order");
  await aoba.getByRole("combobox", { name: "Member" }).fill("Danube");
  await aoba.getByRole("option", { name: /Danube Net/ }).click();
  await aoba.getByRole("button", { name: /Connection/ }).click();
  await aoba.getByRole("option", { name: /aoba-path/ }).click();
  await aoba.getByRole("combobox", { name: "VLAN" }).fill("100");
  await aoba.keyboard.press("Escape");
  await aoba.getByLabel("Rate").fill("200");
  await aoba.getByLabel("Name of the path").fill("aoba-danube");
  await picture(aoba, "order");
  say({ event: "ordered" });
  await aoba.getByRole("button", { name: "Order", exact: true }).click();
  await aoba.getByRole("heading", { level: 1, name: "aoba-danube" }).waitFor();
  await aoba.getByText("Waits for acceptance").first().waitFor();

  const danube = (await open(browser)).page;
  await signIn(danube, url, "dan");
  await danube.getByText("Aoba Networks invites you to aoba-danube").click();
  await danube.getByRole("button", { name: "Accept" }).click();
  const dialog = danube.getByRole("dialog");
  await dialog.getByRole("button", { name: /Connection/ }).click();
  await danube.getByRole("option", { name: /danube-path/ }).click();
  await dialog.getByText("The whole port").click();
  say({ event: "accepted" });
  await dialog.getByRole("button", { name: "Accept" }).click();
  await danube.getByText("In service").first().waitFor();
  say({ event: "danube sees it in service" });
  // The event stream updates Aoba's page, without a reload.
  await aoba.getByText("In service").first().waitFor();
  say({ event: "aoba sees it in service" });
  await picture(aoba, "in-service");
} finally {
  await browser.close();
}
