// Journeys of members about their own account: people, webhooks, tables that leave the page, configurations of routers.
import { readFileSync } from "node:fs";
import { assert, tabTo } from "./support.mjs";

const dialogOf = (page) => page.getByRole("dialog");

/** Saves the table of a screen, and returns its rows. */
async function saved(page, t) {
  const waiting = page.waitForEvent("download");
  await page.getByRole("button", { name: t("act.csv") }).click();
  const download = await waiting;
  return readFileSync(await download.path(), "utf8")
    .replace("\ufeff", "")
    .trim()
    .split("\r\n");
}

export const journeys = [
  {
    name: "an administrator adds a person, and a webhook whose secret is shown once",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/keys");
      await page.getByText("tia@example.net").waitFor();
      await page.getByRole("button", { name: t("people.add") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("people.add") })
        .click();
      await dialogOf(page).getByText(t("signin.nameMissing")).waitFor();
      await dialogOf(page).getByLabel(t("signin.name")).fill("eve");
      await dialogOf(page).getByText(t("role.memberNoc"), { exact: true }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("people.add") })
        .click();
      await page.getByRole("row", { name: /^eve/ }).getByText(t("role.memberNoc")).waitFor();
      // An address in the exchange's own network is refused at the field's dialog, with the reason.
      await page.getByRole("button", { name: t("webhook.add") }).click();
      await dialogOf(page).getByLabel(t("webhook.url")).fill("https://127.0.0.1/hook");
      await dialogOf(page)
        .getByRole("button", { name: t("webhook.add") })
        .click();
      await dialogOf(page)
        .getByText(t("reason.url-private", { host: "127.0.0.1" }))
        .waitFor();
      await dialogOf(page).getByLabel(t("webhook.url")).fill("https://noc.example.net/hook");
      await dialogOf(page)
        .getByRole("button", { name: t("webhook.add") })
        .click();
      await page.getByText(/^whsec_/).waitFor();
      await page.getByText(t("webhook.noDelivery")).first().waitFor();
      await page.reload();
      await page.getByText("https://noc.example.net/hook").waitFor();
      assert((await page.getByText(/^whsec_/).count()) === 0, "the secret is shown again");
      await page
        .getByRole("listitem")
        .filter({ hasText: "noc.example.net" })
        .getByRole("button", { name: t("service.delete") })
        .click();
      await dialogOf(page)
        .getByRole("button", { name: t("service.delete") })
        .click();
      await page.getByText(t("webhook.none")).waitFor();
    },
  },
  {
    name: "an administrator removes a person, who is signed out at once",
    run: async ({ as }) => {
      const tia = await as("tia", "/services");
      const { page, t } = await as("ann", "/keys");
      const row = page.getByRole("row", { name: /^tia/ });
      const own = page.getByRole("row", { name: /^ann/ });
      await row.waitFor();
      assert(
        (await own.getByRole("button", { name: t("people.remove") }).count()) === 0,
        "an administrator can remove himself",
      );
      await row.getByRole("button", { name: t("people.remove") }).click();
      await dialogOf(page)
        .getByText(t("people.removeTitle", { name: "tia" }))
        .waitFor();
      await dialogOf(page)
        .getByRole("button", { name: t("people.remove") })
        .click();
      await row.waitFor({ state: "detached" });
      await tia.page.reload();
      await tia.page.locator("#signin-name").waitFor();
    },
  },
  {
    name: "the list of services keeps its columns in the address, and is saved as a table",
    run: async ({ as, url }) => {
      const { page, t } = await as("ann", "/services");
      await page.getByRole("link", { name: "transit-baikal" }).waitFor();
      const rows = await saved(page, t);
      assert(rows[0].startsWith("id,name,kind,state"), rows[0]);
      assert(
        rows.some((row) => row.includes("transit-baikal") && row.includes("aoba-tokyo") && row.includes(",200,")),
        rows.join("\n"),
      );
      if (page.viewportSize().width < 600) return;
      await page.getByLabel(t("services.with")).uncheck();
      await page.getByRole("columnheader", { name: t("services.with") }).waitFor({ state: "detached" });
      const address = page.url();
      assert(address.includes("hide"), `the address is ${address}`);
      await page.goto(url);
      await page.goto(address);
      await page.getByRole("columnheader", { name: t("services.rate") }).waitFor();
      assert(
        (await page.getByRole("columnheader", { name: t("services.with") }).count()) === 0,
        "the column is there again",
      );
      await page.getByLabel(t("services.with")).check();
      await page.getByRole("columnheader", { name: t("services.with") }).waitFor();
    },
  },
  {
    name: "the configuration of the router follows the end, and the history says who changed it",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/services");
      await page.getByRole("link", { name: "transit-baikal" }).click();
      await page.locator("summary", { hasText: t("router.title") }).click();
      await page.getByText(/encapsulation dot1q 100/).waitFor();
      await page.getByText(/shape average 200 mbps/).waitFor();
      await page.getByRole("button", { name: new RegExp(t("router.dialect")) }).click();
      await page.getByRole("option", { name: "Linux (FRR, BIRD)" }).click();
      await page.getByText(/ip link add link eth0 name eth0\.100 type vlan id 100/).waitFor();
      await page.getByText(t("service.noHistory")).waitFor();
      await page.getByRole("button", { name: t("service.changeRate") }).click();
      await dialogOf(page).getByLabel(t("end.rate")).fill("300");
      await dialogOf(page)
        .getByRole("button", { name: t("service.changeRate") })
        .click();
      await page.getByText(/tbf rate 300mbit/).waitFor();
      const row = page.getByRole("row", { name: new RegExp(t("op.setRate")) });
      await row.getByText("ann", { exact: true }).waitFor();
      // The other side learns the account and none of its people.
      const bob = await as("bob", "/services");
      await bob.page.getByRole("link", { name: "transit-baikal" }).click();
      const theirs = bob.page.getByRole("row", { name: new RegExp(bob.t("op.setRate")) });
      await theirs.getByText("Aoba Networks").waitFor();
      assert(
        (await theirs.getByText("ann", { exact: true }).count()) === 0,
        "the other side reads the name of a person",
      );
    },
  },
  {
    name: "by keyboard only: a search by an address of a peering LAN leads to its service",
    keyboard: true,
    run: async ({ as }) => {
      const { page } = await as("ann");
      await page.keyboard.press("/");
      await page.getByRole("dialog").waitFor();
      await page.keyboard.type("198.51.100.10");
      await page.getByRole("option", { name: /Tokyo peering LAN/ }).waitFor();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { level: 1, name: "Tokyo peering LAN" }).waitFor();
      await tabTo(page, page.locator("summary").first());
      await page.keyboard.press("Enter");
      await page.getByText(/ipv4 address 198\.51\.100\.10\/24/).waitFor();
    },
  },
];
