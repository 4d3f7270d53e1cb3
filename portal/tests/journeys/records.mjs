// Journeys of people who read what the exchange records: drift of switches, policies, the audit chain, billing, the
// matrix of peers, the looking glass.
import { readFileSync } from "node:fs";
import { assert } from "./support.mjs";

const dialogOf = (page) => page.getByRole("dialog");

export const journeys = [
  {
    name: "an operator sees which entry of a switch somebody has removed, whose it is, and that it is mended",
    run: async ({ as, post }) => {
      const { page, t } = await as("noc", "/drift");
      await page.getByText(t("drift.none")).first().waitFor();
      assert((await page.getByText(t("drift.byAnother")).count()) === 0, "drift is shown that nobody has made");
      await post("switch/drifted");
      // The stream brings the finding to the open page.
      const finding = page.locator("section section").filter({ hasText: t("drift.byAnother") });
      await finding.waitFor();
      const row = finding.getByRole("row").filter({ hasText: t("drift.ofEnd") });
      await row.getByText(t("drift.removed")).waitFor();
      await row.getByText(/^nc-\d+$/).waitFor();
      await finding.getByText(t("drift.mended")).waitFor();
      await page.getByText(t("drift.none")).first().waitFor();
    },
  },
  {
    name: "a switch that is away has no known drift, and the page says so",
    run: async ({ as, post }) => {
      const { page, t } = await as("ops", "/drift");
      await page.getByText(t("drift.none")).nth(1).waitFor();
      await post("switch/unreachable");
      await page.getByText(t("drift.away")).waitFor();
      await post("switch/up");
      await page.getByText(t("drift.away")).waitFor({ state: "hidden" });
    },
  },
  {
    name: "a regulator reads the policies of the peering LANs and the audit chain, and is led to no member's screen",
    run: async ({ as, url }) => {
      const { page, t } = await as("reg", "/policies");
      const policy = page.locator("section.panel").filter({ hasText: t("policy.quarantine") });
      await policy.getByText("Tokyo peering LAN").waitFor();
      await policy.getByText(t("lan.macs")).waitFor();
      assert((await page.locator(".nav a[href='/services']").count()) === 0, "the navigation has the services");
      await page.goto(`${url}/audit`);
      await page.getByRole("row").nth(1).waitFor();
      await page.getByText(t("supervision.hidden")).waitFor();
    },
  },
  {
    name: "the staff sees which action of MANRS lacks evidence, and a contact of a member supplies it",
    run: async ({ as }) => {
      const { page, t } = await as("ops", "/manrs");
      const action = (title) => page.locator("section.panel", { has: page.getByRole("heading", { name: t(title) }) });
      await action("manrs.filtering").getByText(t("manrs.shown"), { exact: true }).waitFor();
      await action("manrs.platform").getByText(t("manrs.shown"), { exact: true }).waitFor();
      await action("manrs.tools")
        .getByText(/rs1\.ix\.example/)
        .waitFor();
      await action("manrs.promote").getByText(t("manrs.notMeasured")).waitFor();
      const communication = action("manrs.communication");
      await communication.getByText(/Baikal Telecom/).waitFor();
      const bob = await as("bob", "/keys");
      await bob.page.getByRole("button", { name: bob.t("contact.add") }).click();
      await dialogOf(bob.page).getByLabel(bob.t("members.name")).fill("Desk");
      await dialogOf(bob.page).getByLabel(bob.t("members.mail")).fill("desk@baikal.example");
      await dialogOf(bob.page).getByLabel(bob.t("contact.telephone")).fill("+7 495 000 00 00");
      await dialogOf(bob.page).getByText(bob.t("contact.noc"), { exact: true }).click();
      await dialogOf(bob.page)
        .getByRole("button", { name: bob.t("contact.add") })
        .click();
      await bob.page.getByText("desk@baikal.example").waitFor();
      await page.reload();
      await communication.getByText(t("manrs.missing"), { exact: true }).waitFor();
      await communication.getByText(/Baikal Telecom/).waitFor({ state: "hidden" });
    },
  },
  {
    name: "the audit chain is filtered by an object, and its address leads to the same entries",
    run: async ({ as, url }) => {
      const ann = await as("ann", "/services");
      await ann.page.getByRole("link", { name: "transit-baikal" }).click();
      await ann.page.getByRole("button", { name: ann.t("service.lock"), exact: true }).click();
      await dialogOf(ann.page)
        .getByRole("button", { name: ann.t("service.lock"), exact: true })
        .click();
      await ann.page.getByRole("button", { name: ann.t("service.unlock") }).waitFor();
      const service = new URL(ann.page.url()).pathname.split("/").pop();
      const { page, t } = await as("ops", "/audit");
      const locked = page.getByRole("row").filter({ hasText: "transit-baikal" });
      await locked.first().waitFor();
      await page.getByLabel(t("audit.object")).fill("sv-999");
      await page.getByText(t("audit.none")).waitFor();
      await page.getByLabel(t("audit.object")).fill(service);
      await locked.first().waitFor();
      await page.waitForURL((address) => address.searchParams.get("object") === service);
      const address = page.url();
      await page.goto(`${url}/fabric`);
      await page.goto(address);
      await locked.first().waitFor();
      // Only a head and the entries of this service.
      assert((await page.getByRole("row").count()) === (await locked.count()) + 1, "other entries are shown");
    },
  },
  {
    name: "a member reads the 95th percentiles of a month that has ended, and they are final",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/billing");
      const row = page.getByRole("row", { name: /^aoba-tokyo/ });
      await row.waitFor();
      await page.getByText(t("billing.open")).waitFor();
      await page.getByRole("button", { name: new RegExp(t("billing.month")) }).click();
      // The present month, and then the one before it.
      await page.getByRole("option").nth(1).click();
      await page.getByText(t("billing.frozen")).waitFor();
      await row.waitFor();
      const month = new URL(page.url()).searchParams.get("month");
      const file = await page.getByRole("link", { name: t("act.csv") }).getAttribute("href");
      assert(month && file?.endsWith(`month=${month}`), `${file} is not the file of ${month}`);
      const text = await page.evaluate(async (at) => (await fetch(at)).text(), file);
      assert(text.includes("aoba-tokyo"), text);
    },
  },
  {
    name: "a member sees with whom it exchanges traffic, and saves the matrix as a table",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/matrix");
      await page.getByRole("table", { name: t("nav.matrix") }).waitFor();
      const waiting = page.waitForEvent("download");
      await page.getByRole("button", { name: t("act.csv") }).click();
      const text = readFileSync(await (await waiting).path(), "utf8").replace("\ufeff", "");
      const [head, ...pairs] = text.trim().split("\r\n");
      assert(head.startsWith("from,to,service,"), head);
      assert(pairs.length > 0 && pairs.every((pair) => pair.includes("Aoba Networks")), text);
    },
  },
  {
    name: "anybody finds a member in the looking glass, with the prefixes that a route server rejects and why",
    run: async ({ guest, url }) => {
      const { page, t } = await guest();
      await page.goto(`${url}/looking-glass`);
      const aoba = page.getByRole("row", { name: /AS64500/ });
      await aoba.first().waitFor();
      const all = await page.getByRole("row").count();
      await page.getByRole("searchbox", { name: t("glass.filter") }).fill("203.0.113.0/24");
      await page.waitForFunction((count) => document.querySelectorAll("tr").length < count, all);
      const found = aoba.filter({ hasText: "203.0.113.0/24" });
      await found.locator("summary").click();
      await found.getByText("203.0.113.0/24").first().waitFor();
      await found.getByText(t("reason.route-bogon")).first().waitFor();
      await page.getByRole("textbox", { name: t("glass.prefix") }).fill("no prefix");
      await page.getByRole("button", { name: t("glass.find") }).click();
      await page.getByText(t("problem.prefix")).waitFor();
    },
  },
];
