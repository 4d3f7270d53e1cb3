// Journeys through the page in Chromium, against the API over an exchange in memory:
//   node tests/journeys/run.mjs [--only TEXT] [--pictures FOLDER]
import { mkdirSync } from "node:fs";
import { assert, assertFits, open, signIn, startBrowser, startServer, violations } from "./support.mjs";

const option = (name) => {
  const at = process.argv.indexOf(name);
  return at > 0 ? process.argv[at + 1] : undefined;
};
const only = option("--only") ?? "";
const pictures = option("--pictures");
const program = process.env.PORTAL_SERVER ?? new URL("../../../target/debug/examples/portal", import.meta.url).pathname;
const dist = new URL("../../dist", import.meta.url).pathname;
if (pictures) mkdirSync(pictures, { recursive: true });

const browser = await startBrowser();
const journeys = [];
const journey = (name, run) => journeys.push({ name, run });
const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();

journey("a member orders a path, the other accepts, both see it in service", async ({ url }) => {
  const ann = await open(browser);
  await signIn(ann.page, url, "ann", "/order");
  await ann.page.getByRole("combobox", { name: "Member" }).fill("Baik");
  await ann.page.getByRole("option", { name: /Baikal Telecom/ }).click();
  await ann.page.getByRole("button", { name: /Connection/ }).click();
  await ann.page.getByRole("option", { name: /aoba-tokyo/ }).click();
  const vlan = ann.page.getByRole("combobox", { name: "VLAN" });
  await vlan.fill("100");
  await ann.page.getByText("In use by transit-baikal").first().waitFor();
  await vlan.fill("555");
  await ann.page.keyboard.press("Escape");
  await ann.page.getByLabel("Rate").fill("250");
  await ann.page.getByLabel("Name of the path").fill("journey");
  await ann.page.getByRole("button", { name: "Dry run" }).click();
  await ann.page.getByText("The order can be carried out").waitFor();
  await ann.page.getByRole("button", { name: "Order", exact: true }).click();
  await heading(ann.page, "journey");
  await ann.page.getByText("Waits for acceptance").first().waitFor();
  const bob = await open(browser);
  await signIn(bob.page, url, "bob");
  await bob.page.getByText("Aoba Networks invites you to journey").click();
  await heading(bob.page, "journey");
  await bob.page.getByRole("button", { name: "Accept" }).click();
  await bob.page.getByRole("dialog").getByRole("button", { name: /Connection/ }).click();
  await bob.page.getByRole("option", { name: /baikal-makuhari/ }).click();
  await bob.page.getByRole("dialog").getByRole("button", { name: "Accept" }).click();
  await bob.page.getByText("In service").first().waitFor();
  // The other page follows by the stream, without a reload.
  await ann.page.getByText("In service").first().waitFor();
  await ann.page.getByText("Baikal Telecom").first().waitFor();
  return [ann, bob];
});

journey("an invitation is refused with a reason that the other side reads", async ({ url }) => {
  const ann = await open(browser);
  await signIn(ann.page, url, "ann");
  await ann.page.getByText(/invites you to cache-fill/).click();
  await ann.page.getByRole("button", { name: "Refuse" }).click();
  const dialog = ann.page.getByRole("dialog");
  await dialog.getByRole("button", { name: "Refuse" }).click();
  await dialog.getByText("Give the reason").waitFor();
  await dialog.getByLabel("Reason").fill("no capacity this week");
  await dialog.getByRole("button", { name: "Refuse" }).click();
  const cho = await open(browser);
  await signIn(cho.page, url, "cho", "/services");
  await cho.page.getByRole("link", { name: "cache-fill" }).click();
  await cho.page.getByText("no capacity this week").waitFor();
  return [ann, cho];
});

journey("rate, shut-down, lock and delete of a service", async ({ url }) => {
  const ann = await open(browser);
  const { page } = ann;
  await signIn(page, url, "ann", "/services");
  await page.getByRole("link", { name: "backbone" }).click();
  await page.getByRole("button", { name: "Change the rate" }).first().click();
  await page.getByRole("dialog").getByLabel("Rate").fill("3 G");
  await page.getByRole("dialog").getByRole("button", { name: "Change the rate" }).click();
  await page.getByText("3 Gbit/s").first().waitFor();
  await page.getByRole("button", { name: "Shut down" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Shut down" }).click();
  await page.getByRole("button", { name: "Open this end" }).waitFor();
  await page.getByRole("button", { name: "Lock", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Lock" }).click();
  await page.getByText("Locked by Aoba Networks").first().waitFor();
  assert(await page.getByRole("button", { name: "Delete" }).isDisabled(), "a locked service can be deleted");
  await page.getByRole("button", { name: "Unlock" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Unlock" }).click();
  await page.getByRole("button", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await heading(page, "Services");
  return [ann];
});

journey("errors stand at the fields and in a summary that takes the focus; the draft survives a reload", async ({ url }) => {
  const ann = await open(browser);
  const { page } = ann;
  await signIn(page, url, "ann", "/order");
  await page.getByLabel("Name of the path").fill("kept");
  await page.getByRole("button", { name: "Order", exact: true }).click();
  await page.getByText("2 fields need a correction").waitFor();
  const focused = await page.evaluate(() => document.activeElement?.className);
  assert(focused === "summary", `the focus is at ${focused}`);
  await page.getByRole("link", { name: "Choose the member" }).click();
  const field = await page.evaluate(() => document.activeElement?.closest("#order-peer") !== null || document.activeElement?.id === "order-peer");
  assert(field, "the summary leads to the field");
  await page.reload();
  await page.getByLabel("Name of the path").waitFor();
  assert((await page.getByLabel("Name of the path").inputValue()) === "kept", "the draft is lost");
  return [ann];
});

journey("Enter that ends a composition submits nothing", async ({ url }) => {
  const ann = await open(browser);
  const { page } = ann;
  await signIn(page, url, "ann", "/order");
  await page.getByLabel("Name of the path").focus();
  const session = await page.context().newCDPSession(page);
  await session.send("Input.imeSetComposition", { text: "けいろ", selectionStart: 3, selectionEnd: 3 });
  await page.evaluate(() => {
    const target = document.activeElement;
    target?.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true, isComposing: true }));
  });
  await page.waitForTimeout(200);
  assert((await page.locator(".summary").count()) === 0, "the form was submitted");
  return [ann];
});

journey("an ended session asks again and keeps what was typed", async ({ url }) => {
  const ann = await open(browser);
  const { page, context } = ann;
  await signIn(page, url, "ann", "/order");
  await page.getByLabel("Name of the path").fill("half-filled");
  await context.clearCookies();
  await page.getByRole("button", { name: /Connection/ }).click();
  await page.getByRole("option", { name: /aoba-tokyo/ }).click();
  await page.getByText("Your session has ended").waitFor();
  await page.locator("#signin-password").fill("correct horse battery");
  await page.keyboard.press("Enter");
  await page.getByText("Your session has ended").waitFor({ state: "hidden" });
  assert((await page.getByLabel("Name of the path").inputValue()) === "half-filled", "what was typed is lost");
  return [ann];
});

journey("the engine without its database refuses orders in words, and reading goes on", async ({ url, post }) => {
  const ann = await open(browser);
  const { page } = ann;
  await signIn(page, url, "ann", "/services");
  await page.getByRole("link", { name: "transit-baikal" }).click();
  await post("/test/database/away");
  await page.getByRole("button", { name: "Lock", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Lock" }).click();
  await page.getByText("The engine cannot take orders at the moment").waitFor();
  await post("/test/database/back");
  await page.getByRole("dialog").getByRole("button", { name: "Lock" }).click();
  await page.getByText("Locked by Aoba Networks").first().waitFor();
  return [ann];
});

journey("an operator drains a trunk and sees a switch that does not answer", async ({ url, post }) => {
  const noc = await open(browser);
  const { page } = noc;
  await signIn(page, url, "noc", "/fabric");
  await page.getByRole("button", { name: "Drain" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page.getByRole("button", { name: "Use again" }).waitFor();
  await page.goto(`${url}/noc`);
  await heading(page, "NOC wall");
  await post("/test/switch/unreachable");
  await page.getByText("Switch otemachi-1 does not answer").waitFor();
  await post("/test/switch/up");
  await page.getByText("Switch otemachi-1 does not answer").waitFor({ state: "hidden" });
  return [noc];
});

journey("keyboard only: keys are listed, screens are reached, everything is found", async ({ url }) => {
  const ann = await open(browser);
  const { page } = ann;
  await signIn(page, url, "ann");
  await page.keyboard.press("?");
  await page.getByRole("dialog").getByRole("heading", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("s");
  await heading(page, "Services");
  await page.keyboard.press("/");
  await page.getByRole("searchbox", { name: "Search everything" }).fill("VLAN 300");
  await page.getByText("Nothing matches").waitFor();
  await page.getByRole("searchbox", { name: "Search everything" }).fill("AS64501");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await heading(page, "transit-baikal");
  return [ann];
});

const SCREENS = {
  ann: ["/", "/order", "/services", "/services?q=nothing-matches", "/services/sv-999", "/connections", "/filters", "/audit", "/nowhere"],
  dan: ["/", "/services"],
  ops: ["/noc", "/fabric", "/changes", "/changes/ch-999", "/members", "/services", "/audit"],
};
for (const [width, scheme, locale] of [
  [1440, "light", "en"],
  [390, "dark", "ko"],
  [390, "light", "ja"],
  [320, "light", "en"],
  [1440, "dark", "ja"],
]) {
  journey(`every screen passes axe-core and fits: ${width} px, ${scheme}, ${locale}`, async ({ url }) => {
    const opened = [];
    const found = [];
    for (const [user, paths] of Object.entries(SCREENS)) {
      const guest = await open(browser, { width, scheme, locale });
      opened.push(guest);
      await guest.page.goto(url);
      await guest.page.locator("#signin-name").waitFor();
      if (user === "ann") found.push(...(await violations(guest.page)).map((text) => `sign-in ${text}`));
      await signIn(guest.page, url, user);
      const list = user === "ann" ? [...paths, "service"] : paths;
      for (const path of list) {
        if (path === "service") {
          await guest.page.goto(`${url}/services`);
          await guest.page.getByRole("link", { name: "transit-baikal" }).click();
        } else {
          await guest.page.goto(url + path);
        }
        await guest.page.locator("#main h1").first().waitFor();
        await guest.page.waitForTimeout(300);
        found.push(...(await violations(guest.page)).map((text) => `${user} ${path} ${text}`));
        await assertFits(guest.page, `${user} ${path}`).catch((error) => found.push(error.message));
        if (pictures) await guest.page.screenshot({ path: `${pictures}/${user}${path.replaceAll(/[/?=]/g, "_")}-${width}-${scheme}-${locale}.png`, fullPage: true });
      }
    }
    assert(found.length === 0, found.join("\n"));
    return opened;
  });
}

let failed = 0;
for (const { name, run } of journeys.filter(({ name }) => name.includes(only))) {
  const server = await startServer(program, dist);
  const began = Date.now();
  try {
    const opened = await run(server);
    const faults = opened.flatMap((guest) => guest.faults);
    assert(faults.length === 0, `the page reported: ${faults.join("; ")}`);
    console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}: ${error.message}`);
    if (pictures) for (const [index, context] of browser.contexts().entries()) await context.pages()[0]?.screenshot({ path: `${pictures}/failed-${journeys.findIndex((entry) => entry.name === name)}-${index}.png` });
  }
  for (const context of browser.contexts()) await context.close();
  server.stop();
}
await browser.close();
process.exit(failed === 0 ? 0 : 1);
