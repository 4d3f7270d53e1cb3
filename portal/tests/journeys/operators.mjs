// Journeys of operators, and journeys by keyboard only.
import { assert, tabTo } from "./support.mjs";

const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();
const dialogOf = (page) => page.getByRole("dialog");

/** Reaches a button by Tab and presses it. */
async function press(page, locator, key = "Enter") {
  await tabTo(page, locator);
  await page.keyboard.press(key);
}

async function jump(page, letter) {
  await page.keyboard.press("g");
  await page.keyboard.press(letter);
}

export const journeys = [
  {
    name: "an operator drains a trunk after a look at who is hit, and takes it back",
    run: async ({ as }) => {
      const { page, t } = await as("noc", "/fabric");
      await page
        .getByRole("button", { name: t("fabric.drain"), exact: true })
        .first()
        .click();
      await dialogOf(page).locator("p", { hasText: "Aoba Networks" }).waitFor();
      await dialogOf(page).getByText(/south/).first().waitFor();
      await dialogOf(page)
        .getByRole("button", { name: t("fabric.drain"), exact: true })
        .click();
      await page.getByRole("button", { name: t("fabric.undrain") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("fabric.undrain") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByRole("button", { name: t("fabric.undrain") }).waitFor({ state: "hidden" });
    },
  },
  {
    name: "a drain that nobody confirms is undone at its time, and one that is confirmed stays",
    run: async ({ as, post }) => {
      const { page, t } = await as("noc", "/fabric");
      const drain = async () => {
        await page
          .getByRole("button", { name: t("fabric.drain"), exact: true })
          .first()
          .click();
        await dialogOf(page)
          .getByRole("button", { name: new RegExp(t("confirm.within")) })
          .click();
        await page.getByRole("option", { name: t("confirm.minutes", { count: 10 }) }).click();
        await dialogOf(page)
          .getByRole("button", { name: t("fabric.drain"), exact: true })
          .click();
        await dialogOf(page).waitFor({ state: "hidden" });
        await page.getByRole("button", { name: t("fabric.undrain") }).waitFor();
        await page.getByRole("button", { name: t("confirm.keep") }).waitFor();
      };
      const undrained = () => page.getByRole("button", { name: t("fabric.undrain") }).waitFor({ state: "hidden" });
      await drain();
      await post("confirmation/over");
      await undrained();
      await page.getByRole("button", { name: t("confirm.keep") }).waitFor({ state: "hidden" });
      await drain();
      await page.getByRole("button", { name: t("confirm.undo") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("confirm.undo") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await undrained();
      await drain();
      // The page of the change has the same decision.
      await page.goto(new URL("/changes", page.url()).href);
      await page.getByText(t("confirm.open")).first().waitFor();
      await page
        .getByRole("link", { name: t("op.drainTrunk") })
        .first()
        .click();
      await page.getByRole("button", { name: t("confirm.keep") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("confirm.keep") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByRole("button", { name: t("confirm.keep") }).waitFor({ state: "hidden" });
      await post("confirmation/over");
      await page.goto(new URL("/fabric", page.url()).href);
      await page.getByRole("button", { name: t("fabric.undrain") }).waitFor();
    },
  },
  {
    name: "the wall shows a switch that does not answer, and a change that waits with the switch's own error",
    run: async ({ as, post }) => {
      const { page, t } = await as("noc", "/noc");
      await post("change/stuck");
      await page.getByText(/OFPBFC_MSG_FAILED/).waitFor();
      await post("switch/unreachable");
      await page.getByText(t("task.switchUnreachable", { name: "otemachi-1" })).waitFor();
      await post("switch/up");
      await page.getByText(t("task.switchUnreachable", { name: "otemachi-1" })).waitFor({ state: "hidden" });
      await post("change/done");
      await page.getByText(/OFPBFC_MSG_FAILED/).waitFor({ state: "hidden" });
    },
  },
  {
    name: "a trunk in use is deleted by two persons, and the first one cannot approve",
    run: async ({ as }) => {
      const ops = await as("ops", "/fabric");
      await ops.page
        .getByRole("button", { name: ops.t("service.delete"), exact: true })
        .first()
        .click();
      await dialogOf(ops.page)
        .getByRole("button", { name: ops.t("service.delete"), exact: true })
        .click();
      await ops.page.getByText(ops.t("fabric.needsSecond")).waitFor();
      await ops.page
        .locator(".notice")
        .getByRole("link", { name: ops.t("nav.approvals") })
        .click();
      await ops.page.getByText(ops.t("approval.own")).waitFor();
      assert(
        (await ops.page.getByRole("button", { name: ops.t("approval.approve"), exact: true }).count()) === 0,
        "the first person can approve",
      );
      const pro = await as("pro", "/");
      await pro.page.getByText(pro.t("task.approval", { name: "north" })).click();
      await pro.page.getByRole("button", { name: pro.t("approval.approve"), exact: true }).click();
      await dialogOf(pro.page)
        .getByRole("button", { name: pro.t("approval.approve"), exact: true })
        .click();
      await pro.page.getByText(pro.t("approval.none")).waitFor();
      // The stream updates the page of the first person.
      await ops.page.getByText(ops.t("approval.none")).waitFor();
    },
  },
  {
    name: "an order that waits for a second person is withdrawn",
    run: async ({ as }) => {
      const { page, t } = await as("ops", "/fabric");
      await page
        .getByRole("button", { name: t("service.delete"), exact: true })
        .first()
        .click();
      await dialogOf(page)
        .getByRole("button", { name: t("service.delete"), exact: true })
        .click();
      await page
        .locator(".notice")
        .getByRole("link", { name: t("nav.approvals") })
        .click();
      await page.getByRole("button", { name: t("approval.withdraw") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("approval.withdraw") })
        .click();
      await page.getByText(t("approval.none")).waitFor();
    },
  },
  {
    name: "keyboard only: keys are listed, screens are reached, everything is found",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await page.keyboard.press("?");
      await dialogOf(page)
        .getByRole("heading", { name: t("keys.title") })
        .waitFor();
      await page.keyboard.press("Escape");
      await jump(page, "s");
      await heading(page, t("nav.services"));
      await page.keyboard.press("/");
      await page.getByRole("searchbox", { name: t("search.title") }).waitFor();
      await page.keyboard.type("VLAN 300");
      await page.getByText(t("search.none")).waitFor();
      for (let press = 0; press < 8; press += 1) await page.keyboard.press("Backspace");
      await page.keyboard.type("AS64501");
      await page.getByRole("option", { name: /transit-baikal/ }).waitFor();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await heading(page, "transit-baikal");
    },
  },
  {
    name: "keyboard only: a path is ordered",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await jump(page, "o");
      await heading(page, t("nav.order"));
      await tabTo(page, page.locator("input#order-peer, #order-peer input"));
      // A member that is not the first of all, by its AS number.
      await page.keyboard.type("AS64502");
      await page.getByRole("option", { name: /Baikal/ }).waitFor({ state: "detached" });
      await page.getByRole("option", { name: /청담 호스팅/ }).waitFor();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await tabTo(page, page.locator("button#end-connection, #end-connection button"));
      await page.keyboard.press("Enter");
      await page.getByRole("option").first().waitFor();
      await page.keyboard.press("Home");
      await page.keyboard.press("Enter");
      await tabTo(page, page.locator("input#order-name, #order-name input"));
      await page.keyboard.type("by keys");
      await page.keyboard.press("Enter");
      await heading(page, "by keys");
      await page.getByText(t("service.waitsFor", { account: "청담 호스팅" })).waitFor();
    },
  },
  {
    name: "keyboard only: an invitation is refused",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await press(page, page.locator("a.task", { hasText: "cache-fill" }));
      await heading(page, "cache-fill");
      await press(page, page.getByRole("button", { name: t("service.refuse"), exact: true }));
      await tabTo(page, dialogOf(page).locator("input"));
      await page.keyboard.type("no capacity");
      await page.keyboard.press("Enter");
      await page.getByText(/no capacity/).waitFor();
    },
  },
  {
    name: "keyboard only: an attack is dropped and the drop is taken back",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await jump(page, "u");
      await heading(page, t("nav.attack"));
      const drop = page.getByRole("button", { name: t("attack.drop"), exact: true });
      await drop.nth(2).waitFor();
      await press(page, drop.first());
      await press(page, dialogOf(page).getByRole("button", { name: t("attack.drop"), exact: true }));
      await page.locator(".rule", { hasText: "source port 123" }).waitFor();
      await page.keyboard.press("Home");
      await page.locator("#main").focus();
      await press(page, page.locator(".notice").getByRole("button").first());
      await page.locator(".rule", { hasText: "source port 123" }).waitFor({ state: "hidden" });
    },
  },
  {
    name: "keyboard only: a router is swapped",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await jump(page, "l");
      await heading(page, t("nav.lan"));
      await page.getByRole("button", { name: t("mac.swap") }).waitFor();
      await press(page, page.getByRole("button", { name: t("mac.swap") }));
      await tabTo(page, page.locator("input#mac-new, #mac-new input"));
      await page.keyboard.type("02:00:00:00:99:02");
      await page.keyboard.press("Enter");
      await page.getByText("02:00:00:00:99:02").waitFor();
    },
  },
  {
    name: "keyboard only: a filter is written and a packet explained",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await jump(page, "f");
      await heading(page, t("nav.filters"));
      await press(page, page.getByRole("button", { name: t("filterForm.title") }));
      await tabTo(page, page.locator("input#filter-destination, #filter-destination input"));
      await page.keyboard.type("203.0.113.41");
      await page.keyboard.press("Enter");
      await page.getByText("to 203.0.113.41/32").waitFor();
      await tabTo(page, page.getByLabel(t("explain.to")));
      await page.keyboard.type("203.0.113.41");
      await page.keyboard.press("Enter");
      await page.getByText(t("explain.drop")).waitFor();
    },
  },
  {
    name: "keyboard only: an API key is made",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await jump(page, "k");
      await heading(page, t("nav.keys"));
      await press(page, page.getByRole("button", { name: t("keys.create") }));
      await tabTo(page, dialogOf(page).locator("input[type=text]").first());
      await page.keyboard.type("by keys");
      await page.keyboard.press("Enter");
      await page.locator("code.secret").waitFor();
    },
  },
  {
    name: "keyboard only: a trunk is drained",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("noc");
      await jump(page, "b");
      await heading(page, t("nav.fabric"));
      await page
        .getByRole("button", { name: t("fabric.drain"), exact: true })
        .first()
        .waitFor();
      await press(page, page.getByRole("button", { name: t("fabric.drain"), exact: true }));
      await press(page, dialogOf(page).getByRole("button", { name: t("fabric.drain"), exact: true }));
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByRole("button", { name: t("fabric.undrain") }).waitFor();
    },
  },
  {
    name: "keyboard only: a quarantine is ended by an operator",
    keyboard: true,
    run: async ({ as }) => {
      const { page, t } = await as("noc");
      await jump(page, "l");
      await heading(page, t("nav.lan"));
      await page
        .getByRole("button", { name: t("quarantine.waive") })
        .first()
        .waitFor();
      await press(page, page.getByRole("button", { name: t("quarantine.waive") }));
      await tabTo(page, dialogOf(page).locator("input"));
      await page.keyboard.type("known router");
      await page.keyboard.press("Enter");
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByRole("button", { name: t("quarantine.waive") }).waitFor({ state: "hidden" });
    },
  },
  {
    name: "keyboard only: language and colours are chosen, and kept after a reload",
    keyboard: true,
    only: "en",
    run: async ({ as }) => {
      const { page } = await as("ann");
      await press(page, page.locator(".who button"));
      await page.getByRole("menuitemradio", { name: "한국어" }).waitFor();
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.documentElement.lang === "ko");
      await page.reload();
      await page.locator("#main h1").waitFor();
      assert((await page.evaluate(() => document.documentElement.lang)) === "ko", "the language is lost");
    },
  },
];
