// The page against a running engine: node tests/journeys/live.mjs URL
// Reads the name of a step from each line of standard input, and prints `ok STEP` or `FAIL STEP: reason`. The test in
// Python that runs it (tests/interop/test_exchange_page.py) sends frames between the steps.
import { createInterface } from "node:readline";
import { open, PASSWORD, signIn, startBrowser } from "./support.mjs";

const [url] = process.argv.slice(2);
const browser = await startBrowser();
const people = {};
const page = async (user, path) => {
  if (!people[user]) {
    people[user] = await open(browser);
    await signIn(people[user].page, url, user, path);
  }
  return people[user].page;
};

/** Presses a button that asks for a confirmation, and confirms. */
async function act(page, name, within = page) {
  await within.getByRole("button", { name, exact: true }).first().click();
  await page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
  await page.getByRole("dialog").waitFor({ state: "hidden" });
}

const steps = {
  async order() {
    const ann = await page("ann", "/order");
    await ann.getByRole("combobox", { name: "Member" }).fill("Baikal");
    await ann.getByRole("option", { name: /Baikal/ }).click();
    await ann.getByRole("button", { name: /Connection/ }).click();
    await ann.getByRole("option").first().click();
    await ann.getByRole("combobox", { name: "VLAN" }).fill("100");
    await ann.keyboard.press("Escape");
    await ann.getByLabel("Rate").fill("200");
    await ann.getByLabel("Name of the path").fill("live");
    await ann.getByRole("button", { name: "Dry run" }).click();
    await ann.getByText("The order can be carried out").waitFor();
    await ann.getByRole("button", { name: "Order", exact: true }).click();
    await ann.getByText("Waits for acceptance").first().waitFor();
  },
  async accept() {
    const bob = await page("bob", "/");
    await bob.getByText(/invites you to live/).click();
    await bob.getByRole("button", { name: "Accept", exact: true }).click();
    const dialog = bob.getByRole("dialog");
    await dialog.getByRole("button", { name: /Connection/ }).click();
    await bob.getByRole("option").first().click();
    await dialog.getByText("The whole port").click();
    await dialog.getByRole("button", { name: "Accept", exact: true }).click();
    await bob.getByText("In service").first().waitFor();
    await (await page("ann")).getByText("In service").first().waitFor();
  },
  async shut_down() {
    await act(await page("ann"), "Shut down");
    await (await page("ann")).getByRole("button", { name: "Open this end" }).waitFor();
  },
  async open_again() {
    await act(await page("ann"), "Open this end");
    await (await page("ann")).getByText("In service").first().waitFor();
  },
  async filter_counts() {
    // The exact number of packets stands in the text that appears over the rate.
    const ann = await page("ann");
    const back = ann.url();
    await ann.goto(`${url}/filters`);
    const row = ann.locator("tr", { hasText: "to 203.0.113.7/32" });
    await row.getByText("Active").waitFor();
    await row.locator('[title*=" 100 packets"]').waitFor({ timeout: 40_000 });
    await ann.goto(back);
    await ann.getByText("In service").first().waitFor();
  },
  async engine_is_away() {
    await (await page("ann")).locator(".stale").waitFor({ timeout: 30_000 });
  },
  async engine_is_back() {
    const ann = await page("ann");
    await ann.locator(".stale").waitFor({ state: "hidden", timeout: 30_000 });
    if (await ann.getByText("Your session has ended").isVisible()) {
      await ann.locator("#signin-password").fill(PASSWORD);
      await ann.keyboard.press("Enter");
    }
    await ann.getByText("In service").first().waitFor();
  },
  async remove() {
    await act(await page("ann"), "Delete");
    await (await page("ann")).getByRole("heading", { level: 1, name: "Services" }).waitFor();
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const name = line.trim();
  try {
    await steps[name]();
    const faults = Object.values(people).flatMap((guest) => guest.faults);
    console.log(faults.length === 0 ? `ok ${name}` : `FAIL ${name}: ${faults.join("; ")}`);
  } catch (error) {
    console.log(`FAIL ${name}: ${error.message.replaceAll("\n", " ")}`);
  }
}
await browser.close();
