// Journeys of the desk: members, people by mail, notices, cross-connects, closed groups, and what is public.
import { assert, assertFits, open, signIn, violations } from "./support.mjs";

const dialogOf = (page) => page.getByRole("dialog");

/** Waits for the letter to an address, and returns its text. */
async function letterTo(url, address) {
  for (let tries = 0; tries < 600; tries += 1) {
    const letters = await (await fetch(`${url}/test/mail`)).json();
    const found = letters.findLast((letter) => letter.includes(`To: ${address}`));
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`there is no letter to ${address}`);
}

/** Chooses an option of a select. */
async function choose(page, label, name) {
  await dialogOf(page)
    .getByRole("button", { name: new RegExp(label) })
    .click();
  await page.getByRole("option", { name }).first().click();
}

/** The texts that people read on a page: words, titles, labels, values. */
const readTexts = () => {
  const texts = [document.body.innerText];
  for (const element of document.querySelectorAll("[title], [aria-label], input, textarea")) {
    texts.push(element.getAttribute("title") ?? "", element.getAttribute("aria-label") ?? "", element.value ?? "");
  }
  return texts.join("\n");
};

/**
 * Identifiers of the engine: connections, services, switches, ends, MAC and IP addresses, accounts, users, filters,
 * changes.
 */
const IDENTIFIER = /(?<![\w-])(?:cn|sv|sw|nc|mc|ip|ac|us|fi|ch|tr|st|ct|no|xc|sk|wh)-\d+\b/;

/** The pages without a sign-in. */
export const PUBLIC = ["/status", "/looking-glass", "/letter", "/link#x"];

export const journeys = [
  {
    name: "the staff adds a member with ports and a connection; its person follows the invitation and sees them",
    run: async ({ as, guest, url }) => {
      const { page, t } = await as("ops", "/members");
      await page.getByRole("button", { name: t("members.add") }).click();
      await dialogOf(page)
        .getByRole("textbox", { name: t("members.name") })
        .fill("Echo Net");
      await dialogOf(page).getByLabel(t("members.asns")).fill("AS64520");
      await dialogOf(page)
        .getByRole("button", { name: t("members.add") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      const row = page.getByRole("row", { name: /^Echo Net/ });
      await row.getByRole("button", { name: t("people.add") }).click();
      await dialogOf(page).getByLabel(t("signin.name")).fill("eve");
      await dialogOf(page).getByLabel(t("members.mail")).fill("eve@echo.example");
      await dialogOf(page)
        .getByRole("button", { name: t("people.add") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.goto(`${url}/fabric`);
      await page
        .getByRole("row", { name: /^otemachi-1/ })
        .getByRole("button", { name: t("fabric.addPorts") })
        .click();
      await dialogOf(page).getByLabel(t("fabric.portNumbers")).fill("77");
      await dialogOf(page)
        .getByRole("button", { name: t("fabric.addPorts") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.goto(`${url}/connections`);
      await page.getByRole("button", { name: t("connections.add") }).click();
      await choose(page, t("connection.account"), "Echo Net");
      await dialogOf(page)
        .getByRole("textbox", { name: t("members.name") })
        .fill("echo-1");
      await choose(page, t("fabric.switch"), /otemachi-1/);
      await dialogOf(page)
        .getByText(t("connection.port", { number: 77 }))
        .click();
      await dialogOf(page)
        .getByRole("button", { name: t("connections.add") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      const link = /http:\/\/localhost:\d+\/link#\S+/.exec(await letterTo(url, "eve@echo.example"))?.[0];
      assert(link, "the letter has no link");
      const eve = await guest();
      await eve.page.goto(link);
      await eve.page.locator("#link-password").fill("a new horse battery");
      assert(!eve.page.url().includes("#"), `the token stays in the address ${eve.page.url()}`);
      await eve.page.getByRole("button", { name: eve.t("link.submit") }).click();
      await eve.page.getByText(eve.t("link.done")).waitFor();
      await eve.page.goto(url);
      await eve.page.locator("#signin-name").fill("eve");
      await eve.page.locator("#signin-password").fill("a new horse battery");
      await eve.page.keyboard.press("Enter");
      await eve.page.locator("#main h1").first().waitFor();
      await eve.page.goto(`${url}/connections`);
      await eve.page.getByRole("heading", { name: "echo-1" }).waitFor();
      const again = await guest();
      await again.page.goto(link);
      await again.page.getByText(again.t("problem.linkOver")).waitFor();
    },
  },
  {
    name: "an administrator deactivates a person, who is out until the activation, and signs in again after it",
    run: async ({ as, url }) => {
      const tia = await as("tia", "/services");
      const { page, t } = await as("ann", "/keys");
      const row = page.getByRole("row", { name: /^tia/ });
      await row.getByRole("button", { name: t("people.deactivate") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("people.deactivate") })
        .click();
      await row.getByText(t("people.deactivated"), { exact: true }).waitFor();
      await tia.page.reload();
      await tia.page.locator("#signin-name").waitFor();
      await row.getByRole("button", { name: t("people.activate") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("people.activate") })
        .click();
      await row.getByText(t("people.deactivated"), { exact: true }).waitFor({ state: "hidden" });
      await signIn(tia.page, url, "tia", "/services");
    },
  },
  {
    name: "maintenance is read before it is announced, reaches a member's NOC contact, and stands on the public page",
    run: async ({ as, guest, url }) => {
      const ann = await as("ann", "/keys");
      await ann.page.getByRole("button", { name: ann.t("contact.add") }).click();
      await dialogOf(ann.page).getByLabel(ann.t("members.name")).fill("Desk");
      await dialogOf(ann.page).getByLabel(ann.t("members.mail")).fill("desk@aoba.example");
      await dialogOf(ann.page).getByText(ann.t("contact.noc"), { exact: true }).click();
      await dialogOf(ann.page)
        .getByRole("button", { name: ann.t("contact.add") })
        .click();
      await dialogOf(ann.page).getByText(ann.t("problem.contactIncomplete")).waitFor();
      await dialogOf(ann.page).getByLabel(ann.t("contact.telephone")).fill("+81 3 1234 5678");
      await dialogOf(ann.page)
        .getByRole("button", { name: ann.t("contact.add") })
        .click();
      await ann.page.getByText("desk@aoba.example").waitFor();
      const { page, t } = await as("ops", "/notices");
      await page.getByRole("button", { name: t("notice.announce") }).click();
      await dialogOf(page).getByLabel(t("notice.title")).fill("Card swap");
      await dialogOf(page).getByLabel(t("notice.begins")).fill("2036-12-01T02:00");
      await dialogOf(page).getByLabel(t("notice.ends")).fill("2036-12-01T04:00");
      await choose(page, t("notice.object"), "Otemachi");
      await dialogOf(page)
        .getByRole("button", { name: t("notice.announce") })
        .click();
      await dialogOf(page).getByText(t("notice.checked")).waitFor();
      await dialogOf(page).getByText("メンテナンス: Card swap").first().waitFor();
      await dialogOf(page)
        .getByRole("button", { name: t("notice.announce") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      const letter = await letterTo(url, "desk@aoba.example");
      assert(letter.includes("BEGIN:VCALENDAR") && letter.includes("aoba-tokyo"), letter);
      await ann.page.goto(`${url}/notices`);
      await ann.page.getByText("aoba-tokyo").first().waitFor();
      const someone = await guest();
      await someone.page.goto(`${url}/status`);
      await someone.page.getByText("Card swap").waitFor();
      await page.getByRole("button", { name: t("notice.cancel") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("notice.cancel") })
        .click();
      await page.getByText(t("state.cancelled")).first().waitFor();
    },
  },
  {
    name: "a cross-connect goes from the request over the letter, which a data centre verifies, to the installation",
    run: async ({ as, guest, url }) => {
      const ann = await as("ann", "/cross-connects");
      await ann.page.getByRole("button", { name: ann.t("cross.request") }).click();
      await choose(ann.page, ann.t("service.site"), "Otemachi");
      await dialogOf(ann.page).getByLabel(ann.t("cross.memberSide")).fill("cage 7, rack 2");
      await dialogOf(ann.page).getByLabel(ann.t("cross.medium")).fill("single-mode LC");
      await dialogOf(ann.page)
        .getByRole("button", { name: ann.t("cross.request") })
        .click();
      await ann.page.getByText("cage 7, rack 2").waitFor();
      const ops = await as("ops", "/cross-connects");
      await ops.page.getByRole("button", { name: ops.t("cross.authorise") }).click();
      await dialogOf(ops.page).getByLabel(ops.t("cross.ourSide")).fill("rack 3, panel A, 17-18");
      await dialogOf(ops.page)
        .getByRole("button", { name: ops.t("cross.authorise") })
        .click();
      await ops.page.getByText(ops.t("cross.authorised")).first().waitFor();
      await ann.page.reload();
      await ann.page.getByRole("link", { name: ann.t("cross.letter") }).waitFor();
      const address = await ann.page.getByRole("link", { name: ann.t("cross.letter") }).getAttribute("href");
      const text = await ann.page.evaluate(async (at) => (await fetch(at)).text(), address);
      const code = /Code\s+(\S+)/.exec(text)?.[1];
      assert(code, text);
      const centre = await guest();
      await centre.page.goto(`${url}/letter#${code}`);
      await centre.page.getByRole("button", { name: centre.t("letter.check") }).click();
      await centre.page.getByText("Aoba Networks").waitFor();
      await ann.page.getByRole("button", { name: ann.t("cross.place") }).click();
      await dialogOf(ann.page).getByLabel(ann.t("cross.orderNumber")).fill("DC-77");
      await dialogOf(ann.page)
        .getByRole("button", { name: ann.t("cross.place") })
        .click();
      await ann.page.getByText("DC-77").waitFor();
      await ops.page.reload();
      await ops.page.getByRole("button", { name: ops.t("cross.install") }).click();
      await dialogOf(ops.page)
        .getByRole("button", { name: ops.t("cross.install") })
        .click();
      await ops.page.getByRole("button", { name: ops.t("cross.remove") }).waitFor();
    },
  },
  {
    name: "a member orders a closed group, and a listed member joins it",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/groups");
      await page.getByRole("button", { name: t("group.add") }).click();
      await dialogOf(page)
        .getByRole("textbox", { name: t("members.name") })
        .fill("storage");
      await dialogOf(page).getByText("Baikal Telecom").click();
      await choose(page, t("end.connection"), /aoba-tokyo/);
      await dialogOf(page)
        .getByRole("button", { name: t("group.add") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page
        .getByRole("row", { name: /Baikal Telecom/ })
        .getByText(t("group.listed"))
        .waitFor();
      const bob = await as("bob", "/groups");
      await bob.page.getByRole("button", { name: bob.t("lan.join") }).click();
      await choose(bob.page, bob.t("end.connection"), /baikal-makuhari/);
      await dialogOf(bob.page)
        .getByRole("button", { name: bob.t("lan.join") })
        .click();
      await dialogOf(bob.page).waitFor({ state: "hidden" });
      await bob.page.getByText(bob.t("group.joined")).waitFor();
      const cho = await as("cho", "/groups");
      await cho.page.getByText(cho.t("group.none")).waitFor();
    },
  },
  {
    name: "a member reads no identifier of the engine on any screen",
    once: true,
    run: async ({ as, url, post }) => {
      await post("quarantine/dirty");
      const { page, t } = await as("ann");
      const found = [];
      // An order gives the audit log and the history something to show.
      await page.goto(`${url}/services`);
      await page.getByRole("link", { name: "transit-baikal" }).click();
      await page.getByRole("button", { name: t("service.changeRate") }).click();
      await dialogOf(page).getByLabel(t("end.rate")).fill("150");
      await dialogOf(page)
        .getByRole("button", { name: t("service.changeRate") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      const paths = new Set(["/", "/nowhere"]);
      const seen = new Set();
      while (paths.size > 0) {
        const [path] = paths;
        paths.delete(path);
        seen.add(path);
        await page.goto(url + path);
        await page.locator("#main h1").first().waitFor();
        await page.locator("[aria-busy=true]").first().waitFor({ state: "hidden" });
        await page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));
        await page.waitForTimeout(400);
        const text = await page.evaluate(readTexts);
        const identifier = IDENTIFIER.exec(text);
        if (identifier)
          found.push(
            `${path}: ${text.slice(Math.max(0, identifier.index - 60), identifier.index + 40).replaceAll("\n", " ")}`,
          );
        const links = await page.evaluate(() =>
          [...document.querySelectorAll("a[href^='/']")].map((link) => link.getAttribute("href").split("#")[0]),
        );
        for (const link of links)
          if (!seen.has(link) && !link.startsWith("/api/") && seen.size + paths.size < 60) paths.add(link);
      }
      console.log(`      ${seen.size} screens read`);
      assert(seen.size > 15, `only ${seen.size} screens are linked`);
      assert(found.length === 0, found.join("\n"));
    },
  },
  {
    name: "the pages without a sign-in pass axe-core, fit, and show no identifier",
    once: true,
    run: async ({ browser, url, opened }) => {
      const found = [];
      for (const [width, scheme, locale] of [
        [1440, "light", "en"],
        [320, "dark", "ja"],
        [390, "light", "ko"],
      ]) {
        const someone = await open(browser, { width, scheme, locale });
        opened.push(someone);
        for (const path of PUBLIC) {
          await someone.page.goto(url + path);
          await someone.page.locator("#main h1").first().waitFor();
          await someone.page.waitForTimeout(400);
          found.push(...(await violations(someone.page)).map((text) => `${path} ${width} ${text}`));
          await assertFits(someone.page, `${path} ${width}`).catch((error) => found.push(error.message));
          const identifier = IDENTIFIER.exec(await someone.page.evaluate(readTexts));
          if (identifier) found.push(`${path}: ${identifier[0]}`);
        }
      }
      assert(found.length === 0, found.join("\n"));
    },
  },
];
