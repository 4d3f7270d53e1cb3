// Journeys of members who order paths.
import { PASSWORD, assert } from "./support.mjs";

const heading = (page, name) => page.getByRole("heading", { level: 1, name }).waitFor();
const dialogOf = (page) => page.getByRole("dialog");

/** Chooses the connection of an end by its name. */
async function chooseConnection(guest, scope, name) {
  await scope.getByRole("button", { name: new RegExp(guest.t("end.connection")) }).click();
  await guest.page.getByRole("option", { name: new RegExp(name) }).click();
}

export const journeys = [
  {
    name: "a member orders a path, the other accepts, both see it in service",
    run: async ({ as }) => {
      const ann = await as("ann", "/order");
      const { page, t } = ann;
      await page.locator("input#order-peer, #order-peer input").fill("Baik");
      await page.getByRole("option", { name: /Baikal Telecom/ }).click();
      await chooseConnection(ann, page, "aoba-tokyo");
      const vlan = page.locator("input#end-vlan, #end-vlan input");
      await vlan.fill("100");
      await page
        .getByText(t("end.vlanUsed", { service: "transit-baikal" }))
        .first()
        .waitFor();
      await vlan.fill("555");
      await page.keyboard.press("Escape");
      await page.locator("input#end-rate, #end-rate input").fill("250");
      await page.locator("input#order-name, #order-name input").fill("journey");
      await page.getByRole("button", { name: t("order.dryRun") }).click();
      await page.getByText(t("plan.valid")).waitFor();
      await page.getByRole("button", { name: t("order.submit"), exact: true }).click();
      await heading(page, "journey");
      await page.getByText(t("state.requested")).first().waitFor();
      const bob = await as("bob");
      await bob.page.getByText(bob.t("task.accept", { account: "Aoba Networks", name: "journey" })).click();
      await heading(bob.page, "journey");
      await bob.page.getByRole("button", { name: bob.t("service.accept"), exact: true }).click();
      await chooseConnection(bob, dialogOf(bob.page), "baikal-makuhari");
      await dialogOf(bob.page)
        .getByRole("button", { name: bob.t("service.accept"), exact: true })
        .click();
      await bob.page.getByText(bob.t("state.production")).first().waitFor();
      // The stream updates the other page, without a reload.
      await page.getByText(t("state.production")).first().waitFor();
      await page.getByText("Baikal Telecom").first().waitFor();
    },
  },
  {
    name: "an invitation is refused with a reason that the other side reads",
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await page
        .getByText(/cache-fill/)
        .first()
        .click();
      await page.getByRole("button", { name: t("service.refuse"), exact: true }).click();
      const dialog = dialogOf(page);
      await dialog.getByRole("button", { name: t("service.refuse"), exact: true }).click();
      await dialog.getByText(t("service.reasonMissing")).waitFor();
      await dialog.getByLabel(t("service.reason")).fill("no capacity this week");
      await dialog.getByRole("button", { name: t("service.refuse"), exact: true }).click();
      const cho = await as("cho", "/services");
      await cho.page.getByRole("link", { name: "cache-fill" }).click();
      await cho.page.getByText(/no capacity this week/).waitFor();
    },
  },
  {
    name: "a service key is made, shown once, and lets another member in",
    run: async ({ as }) => {
      const ann = await as("ann", "/order");
      const { page, t } = ann;
      await page.getByText(t("order.toHolder"), { exact: true }).first().click();
      await chooseConnection(ann, page, "aoba-chiba");
      await page.locator("input#order-name, #order-name input").fill("by key");
      await page.getByRole("button", { name: t("order.submit"), exact: true }).click();
      await heading(page, "by key");
      await page.getByRole("button", { name: t("service.makeKey") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("service.makeKey") })
        .click();
      const secret = await page.locator("code.secret").innerText();
      await page.reload();
      await heading(page, "by key");
      assert(!(await page.content()).includes(secret), "the key is shown again");
      const dan = await as("dan", "/order");
      await dan.page.getByText(dan.t("order.toKey"), { exact: true }).first().click();
      await dan.page.locator("input#order-secret, #order-secret input").fill(secret);
      await chooseConnection(dan, dan.page, "delta-dc");
      await dan.page.getByRole("button", { name: dan.t("order.submit"), exact: true }).click();
      await heading(dan.page, "by key");
      await dan.page.getByText(dan.t("state.production")).first().waitFor();
      await page.getByText(t("state.production")).first().waitFor();
    },
  },
  {
    name: "a service key is revoked, and nobody can use it",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/keys");
      await page.getByRole("button", { name: t("keys.revoke") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("keys.revoke") })
        .click();
      await page.getByText(t("keys.noService")).waitFor();
      const dan = await as("dan", "/order");
      await dan.page.getByText(dan.t("order.toKey"), { exact: true }).first().click();
      await dan.page.locator("input#order-secret, #order-secret input").fill("demo-key-of-tokyo-waves");
      await chooseConnection(dan, dan.page, "delta-dc");
      await dan.page.getByRole("button", { name: dan.t("order.submit"), exact: true }).click();
      await dan.page.locator(".summary, .notice[data-tone=bad]").first().waitFor();
    },
  },
  {
    name: "rate, shut-down, lock and delete of a service",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/services");
      const act = async (name) => {
        await page.getByRole("button", { name, exact: true }).first().click();
        await dialogOf(page).getByRole("button", { name, exact: true }).click();
        await dialogOf(page).waitFor({ state: "hidden" });
      };
      await page.getByRole("link", { name: "backbone" }).click();
      await page
        .getByRole("button", { name: t("service.changeRate") })
        .first()
        .click();
      await dialogOf(page).getByLabel(t("end.rate")).fill("3 G");
      await dialogOf(page)
        .getByRole("button", { name: t("service.changeRate") })
        .click();
      await page.getByText("3 Gbit/s").first().waitFor();
      await act(t("service.shutDown"));
      await page.getByRole("button", { name: t("service.bringUp") }).waitFor();
      await act(t("service.lock"));
      await page
        .getByText(t("service.lockedBy", { account: "Aoba Networks" }))
        .first()
        .waitFor();
      assert(
        await page.getByRole("button", { name: t("service.delete"), exact: true }).isDisabled(),
        "a locked service can be deleted",
      );
      await act(t("service.unlock"));
      await act(t("service.delete"));
      await heading(page, t("nav.services"));
    },
  },
  {
    name: "an end is moved to another VLAN after a look at what it does",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/services");
      await page.getByRole("link", { name: "transit-baikal" }).click();
      await page.getByText("VLAN 100").first().waitFor();
      await page.getByRole("button", { name: t("service.move") }).click();
      const dialog = dialogOf(page);
      await dialog.getByRole("button", { name: new RegExp(t("end.connection")) }).click();
      await page.getByRole("option", { name: /aoba-tokyo/ }).click();
      await page.locator("input#move-vlan, #move-vlan input").fill("777");
      await page.keyboard.press("Escape");
      await dialog.getByRole("button", { name: t("order.dryRun") }).click();
      await dialog.getByText(t("plan.valid")).waitFor();
      await dialog.getByRole("button", { name: t("service.move") }).click();
      await page.getByText("VLAN 777").first().waitFor();
    },
  },
  {
    name: "a member leaves a path that it has accepted, and a peering LAN",
    run: async ({ as }) => {
      const ann = await as("ann", "/services");
      await ann.page.getByRole("link", { name: "transit-baikal" }).click();
      await heading(ann.page, "transit-baikal");
      assert(
        (await ann.page.getByRole("button", { name: ann.t("leave.act") }).count()) === 0,
        "the owner can leave its own path",
      );
      const { page, t } = await as("bob", "/services");
      const leave = async () => {
        await page
          .getByRole("button", { name: t("leave.act") })
          .first()
          .click();
        await dialogOf(page)
          .getByRole("button", { name: t("leave.act") })
          .click();
        await dialogOf(page).waitFor({ state: "hidden" });
      };
      await page.getByRole("link", { name: "transit-baikal" }).click();
      await heading(page, "transit-baikal");
      await leave();
      await page.getByRole("heading", { name: t("service.noFarEnd"), exact: true }).waitFor();
      await page.getByRole("button", { name: t("leave.act") }).waitFor({ state: "detached" });
      // The other side sees it without a reload.
      await ann.page.getByRole("heading", { name: ann.t("service.noFarEnd"), exact: true }).waitFor();
      // It returns to the path by another end.
      await page.getByRole("button", { name: t("leave.return"), exact: true }).click();
      await chooseConnection({ page, t }, dialogOf(page), "baikal-makuhari");
      await dialogOf(page)
        .getByRole("button", { name: t("leave.return"), exact: true })
        .click();
      await page.getByText(t("state.production")).first().waitFor();
      await ann.page.getByText(ann.t("state.production")).first().waitFor();
      const lan = await as("ann", "/lan");
      const act = lan.page.getByRole("button", { name: lan.t("leave.act") });
      await act.first().waitFor();
      const before = await act.count();
      await act.first().click();
      await dialogOf(lan.page)
        .getByRole("button", { name: lan.t("leave.act") })
        .click();
      await dialogOf(lan.page).waitFor({ state: "hidden" });
      await act.nth(before - 1).waitFor({ state: "detached" });
    },
  },
  {
    name: "errors stand at the fields and in a summary that takes the focus; the draft survives a reload",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/order");
      await page.locator("input#order-name, #order-name input").fill("kept");
      await page.getByRole("button", { name: t("order.submit"), exact: true }).click();
      await page.getByText(t("form.summary", { count: 2 })).waitFor();
      const focused = await page.evaluate(() => document.activeElement?.className);
      assert(focused === "summary", `the focus is at ${focused}`);
      await page.getByRole("link", { name: t("order.peerMissing") }).click();
      const field = await page.evaluate(
        () => document.activeElement?.closest("#order-peer") !== null || document.activeElement?.id === "order-peer",
      );
      assert(field, "the summary leads to the field");
      await page.reload();
      await page.locator("input#order-name, #order-name input").waitFor();
      assert((await page.locator("input#order-name, #order-name input").inputValue()) === "kept", "the draft is lost");
    },
  },
  {
    name: "a refusal of the engine stands at its field",
    run: async ({ as }) => {
      const ann = await as("ann", "/order");
      const { page, t } = ann;
      await page.getByText(t("order.toHolder"), { exact: true }).first().click();
      await chooseConnection(ann, page, "aoba-tokyo");
      await page.locator("input#end-vlan, #end-vlan input").fill("100");
      await page.keyboard.press("Escape");
      await page.locator("input#order-name, #order-name input").fill("second");
      await page.getByRole("button", { name: t("order.submit"), exact: true }).click();
      await page.locator(".summary").waitFor();
      assert(
        (await page
          .locator(".field", { has: page.locator("#end-vlan") })
          .locator(".error")
          .innerText()) !== "",
        "the field has no error",
      );
    },
  },
  {
    name: "Enter that ends a composition submits nothing",
    run: async ({ as }) => {
      const { page } = await as("ann", "/order");
      await page.locator("input#order-name, #order-name input").focus();
      const session = await page.context().newCDPSession(page);
      await session.send("Input.imeSetComposition", { text: "けいろ", selectionStart: 3, selectionEnd: 3 });
      await page.evaluate(() =>
        document.activeElement?.dispatchEvent(
          new KeyboardEvent("keydown", {
            key: "Enter",
            keyCode: 229,
            bubbles: true,
            cancelable: true,
            isComposing: true,
          }),
        ),
      );
      await page.waitForTimeout(200);
      assert((await page.locator(".summary").count()) === 0, "the form was submitted");
    },
  },
  {
    name: "a filter of services is composed by an input method, letter by letter",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/services");
      const field = page.getByRole("searchbox", { name: t("services.filter") });
      await field.focus();
      // A text that something else writes into the field ends the composition.
      await field.evaluate((element) => {
        globalThis.written = 0;
        // React has a property of its own on the element.
        const { get, set } =
          Object.getOwnPropertyDescriptor(element, "value") ??
          Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
        Object.defineProperty(element, "value", {
          get,
          set: (text) => ((globalThis.written += get.call(element) === text ? 0 : 1), set.call(element, text)),
          configurable: true,
        });
      });
      const session = await page.context().newCDPSession(page);
      for (const text of ["ㅎ", "하", "한"]) {
        await session.send("Input.imeSetComposition", { text, selectionStart: 1, selectionEnd: 1 });
        await page.waitForURL((url) => url.searchParams.get("q") === text);
      }
      await session.send("Input.insertText", { text: "한" });
      assert((await field.inputValue()) === "한", `the field has "${await field.inputValue()}"`);
      assert(
        (await page.evaluate(() => globalThis.written)) === 0,
        "the address wrote into the field during a composition",
      );
    },
  },
  {
    name: "an ended session asks again and keeps what was typed",
    run: async ({ as }) => {
      const ann = await as("ann", "/order");
      const { page, context, t } = ann;
      await page.locator("input#order-name, #order-name input").fill("half-filled");
      await context.clearCookies();
      await chooseConnection(ann, page, "aoba-tokyo");
      await page.getByText(t("session.ended")).waitFor();
      await page.locator("#signin-password").fill(PASSWORD);
      await page.keyboard.press("Enter");
      await page.getByText(t("session.ended")).waitFor({ state: "hidden" });
      assert(
        (await page.locator("input#order-name, #order-name input").inputValue()) === "half-filled",
        "what was typed is lost",
      );
    },
  },
  {
    name: "the engine without its database refuses orders in words, and reading goes on",
    run: async ({ as, post }) => {
      const { page, t } = await as("ann", "/services");
      await page.getByRole("link", { name: "transit-baikal" }).click();
      await page.getByRole("button", { name: t("service.lock"), exact: true }).click();
      await post("database/away");
      await dialogOf(page)
        .getByRole("button", { name: t("service.lock"), exact: true })
        .click();
      await page.getByText(t("problem.unavailable")).waitFor();
      await post("database/back");
      await dialogOf(page)
        .getByRole("button", { name: t("service.lock"), exact: true })
        .click();
      await page
        .getByText(t("service.lockedBy", { account: "Aoba Networks" }))
        .first()
        .waitFor();
    },
  },
  {
    name: "the engine restarts under an open page: the page says so, comes back, and keeps the draft",
    run: async ({ as, restart, down }) => {
      const { page, t } = await as("ann", "/order");
      await page.locator("input#order-name, #order-name input").fill("outlives");
      await down();
      await page.locator(".stale").waitFor({ timeout: 20_000 });
      await restart();
      // The database in memory has forgotten the session: the page asks for it above the draft.
      await page
        .getByText(t("session.ended"))
        .waitFor({ timeout: 30_000 })
        .catch(() => {});
      if (await page.locator("#signin-password").isVisible()) {
        await page.locator("#signin-password").fill(PASSWORD);
        await page.keyboard.press("Enter");
      }
      await page.locator(".stale").waitFor({ state: "hidden", timeout: 30_000 });
      assert(
        (await page.locator("input#order-name, #order-name input").inputValue()) === "outlives",
        "the draft is lost",
      );
    },
  },
  {
    name: "another person's change makes an order stale: the page shows the newest state, and the second try succeeds",
    run: async ({ as }) => {
      const ann = await as("ann", "/services");
      await ann.page.getByRole("link", { name: "backbone" }).click();
      await ann.page.getByRole("button", { name: ann.t("service.lock"), exact: true }).waitFor();
      // The first page misses the change: its stream and its reads are cut off.
      await ann.page.route("**/api/v1/services/**", (route) =>
        route.request().method() === "GET" ? route.abort() : route.continue(),
      );
      const tia = await as("tia", "/services");
      await tia.page.getByRole("link", { name: "backbone" }).click();
      await tia.page.getByRole("button", { name: tia.t("service.lock"), exact: true }).click();
      await dialogOf(tia.page)
        .getByRole("button", { name: tia.t("service.lock"), exact: true })
        .click();
      await tia.page.getByRole("button", { name: tia.t("service.unlock") }).waitFor();
      await ann.page.getByRole("button", { name: ann.t("service.lock"), exact: true }).click();
      await dialogOf(ann.page)
        .getByRole("button", { name: ann.t("service.lock"), exact: true })
        .click();
      await ann.page.getByText(ann.t("problem.stale")).waitFor();
      await ann.page.unroute("**/api/v1/services/**");
      await ann.page.keyboard.press("Escape");
      await ann.page.getByRole("button", { name: ann.t("service.unlock") }).waitFor();
    },
  },
];
