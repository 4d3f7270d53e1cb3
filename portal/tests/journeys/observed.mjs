// Journeys of peering LANs, attacks and filters.
import { assert } from "./support.mjs";

const dialogOf = (page) => page.getByRole("dialog");

/** Returns the period of the graph that a page shows. */
const shownPeriod = (page) => page.locator("input[type=radio]:checked").first().inputValue();

export const journeys = [
  {
    name: "graphs of a connection, an end, a peer, a trunk and the whole exchange; the address keeps the period",
    run: async ({ as, guest, url }) => {
      const { page, t } = await as("ann", "/connections");
      const peakOf = (line) =>
        new RegExp(t("graph.sentence", { line, peak: "@", time: "@", average: "@", known: "@" }).split("@")[0].trim());
      await page
        .getByRole("img", { name: peakOf(t("connection.in")) })
        .first()
        .waitFor();
      await page.getByText(t("graph.week"), { exact: true }).first().click();
      await page.waitForURL(/period=week/);
      await page.reload();
      await page
        .getByRole("img", { name: peakOf(t("connection.out")) })
        .first()
        .waitFor();
      assert((await shownPeriod(page)) === "week", "the period is lost by a reload");
      await page.getByText(t("chart.table")).first().click();
      await page.getByRole("columnheader", { name: /IPv6/ }).first().waitFor();
      assert((await page.locator(".chart-table tbody tr").count()) === 336, "a week has 336 points");
      await page.goto(`${url}/services`);
      await page.getByRole("link", { name: "transit-baikal" }).click();
      await page.getByText(t("graph.title"), { exact: true }).first().click();
      await page
        .getByRole("img", { name: peakOf(t("connection.in")) })
        .first()
        .waitFor();
      await page.goto(`${url}/traffic?period=month`);
      await page
        .getByRole("img", { name: peakOf(t("traffic.incoming")) })
        .first()
        .waitFor();
      assert((await shownPeriod(page)) === "month", "the address has the period");
      const noc = await as("noc", "/fabric");
      await noc.page.getByText(noc.t("graph.exchange"), { exact: true }).click();
      await noc.page
        .getByRole("img", { name: peakOf(noc.t("graph.entered")) })
        .first()
        .waitFor();
      await noc.page.getByText(noc.t("graph.roundTrips"), { exact: true }).click();
      await noc.page
        .getByRole("img", { name: peakOf(noc.t("graph.roundTrip")) })
        .first()
        .waitFor();
      const everybody = await guest();
      await everybody.page.goto(`${url}/status`);
      await everybody.page
        .getByRole("img", { name: peakOf(everybody.t("graph.entered")) })
        .first()
        .waitFor();
    },
  },
  {
    name: "a member swaps a router: both addresses work, the old one has an end",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/lan");
      await page.getByRole("button", { name: t("mac.swap") }).click();
      await page.locator("input#mac-new, #mac-new input").fill("nonsense");
      await dialogOf(page)
        .getByRole("button", { name: t("mac.swap") })
        .click();
      await dialogOf(page).getByText(t("mac.wrong")).waitFor();
      await page.locator("input#mac-new, #mac-new input").fill("02:00:00:00:99:01");
      await dialogOf(page)
        .getByRole("button", { name: t("mac.swap") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByText("02:00:00:00:99:01").waitFor();
      const old = page.locator(".mac", { hasText: "02:00:00:00:64:00" });
      await old.getByText(t("task.until")).waitFor();
    },
  },
  {
    name: "a quarantine fails, is fixed and passes; the page follows without a reload",
    run: async ({ as, post }) => {
      const { page, t } = await as("bob", "/lan");
      await page.getByText(t("state.testing")).first().waitFor();
      await post("quarantine/dirty");
      await page.getByText(t("quarantine.failing", { count: 1 })).waitFor();
      await page
        .getByText(t("reason.frame-protocol", { name: "LLDP" }))
        .first()
        .waitFor();
      await page.getByText(t("check.lldpFix")).waitFor();
      await page.getByText("88 cc").waitFor();
      await post("quarantine/passed");
      await page.getByText(t("quarantine.failing", { count: 1 })).waitFor({ state: "hidden" });
      await page.getByText(t("state.production")).first().waitFor();
    },
  },
  {
    name: "a member sees why route servers reject its routes, also while they do not answer",
    run: async ({ as, post }) => {
      const { page, t } = await as("ann", "/lan");
      const row = page.locator("tr", { hasText: "203.0.113.0/24" });
      await row.getByText(t("reason.route-bogon")).waitFor();
      await row.getByText("65520:2").waitFor();
      await page.locator("tr", { hasText: "2001:db8:dead::/48" }).getByText(t("reason.route-rpki-invalid")).waitFor();
      await page.locator("tr", { hasText: "198.51.100.10" }).getByText("Established").first().waitFor();
      await post("route-server/unreachable");
      await page.reload();
      await page.getByText(t("rs.neverAbout")).waitFor();
      assert((await row.count()) === 0, "a route is shown that was never read");
      await post("route-server/stale");
      await page.reload();
      await row.getByText(t("reason.route-bogon")).waitFor();
      await page.locator(".notice", { hasText: "rs1.ix.example" }).waitFor();
      const path = "/run/bird/rs1.ctl";
      assert((await page.getByText(path).count()) === 0, "a member sees a path of the exchange's machine");
      const operator = await as("noc", "/lan");
      const aoba = operator.page.locator("section.panel", {
        has: operator.page.getByRole("heading", { name: /Aoba Networks/ }),
      });
      await aoba.locator(".route-servers summary").first().click();
      await operator.page.getByText(path).first().waitFor();
    },
  },
  {
    name: "a member joins the peering LAN and begins in quarantine",
    run: async ({ as }) => {
      const { page, t } = await as("dan", "/lan");
      await page.getByText(t("lan.notJoined")).waitFor();
      await page.getByRole("button", { name: t("lan.join") }).click();
      await dialogOf(page)
        .getByRole("button", { name: new RegExp(t("end.connection")) })
        .click();
      await page.getByRole("option", { name: /delta-dc/ }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("lan.join") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByText(t("mac.none")).waitFor();
      await page.getByText(t("lan.noAddresses")).waitFor();
    },
  },
  {
    name: "an operator ends a quarantine with a reason, and the audit chain has it",
    run: async ({ as }) => {
      const { page, t } = await as("noc", "/lan");
      await page
        .getByRole("button", { name: t("quarantine.waive") })
        .first()
        .click();
      await dialogOf(page)
        .getByRole("button", { name: t("quarantine.waive") })
        .click();
      await dialogOf(page).getByText(t("quarantine.reasonMissing")).waitFor();
      await dialogOf(page).getByLabel(t("service.reason")).fill("router known from the other site");
      await dialogOf(page)
        .getByRole("button", { name: t("quarantine.waive") })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByRole("button", { name: t("quarantine.waive") }).waitFor({ state: "hidden" });
    },
  },
  {
    name: "an attack from the phone: three taps from sign-in to a drop, and its effect",
    width: 390,
    run: async ({ as }) => {
      const { page, t } = await as("ann");
      await page.getByText(t("task.attack", { name: "203.0.113.7/32" })).click();
      await page
        .getByRole("button", { name: t("attack.drop"), exact: true })
        .first()
        .click();
      await dialogOf(page)
        .getByRole("button", { name: t("attack.drop"), exact: true })
        .click();
      await dialogOf(page).waitFor({ state: "hidden" });
      await page.getByText(t("attack.made", { destination: "203.0.113.7/32" })).waitFor();
      // The rates are those of the last half minute.
      await page.locator(".big-value").nth(1).getByText("6.4 Gbit/s").waitFor({ timeout: 45_000 });
    },
  },
  {
    name: "a suggestion becomes a rule and is taken back",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/attack");
      const suggestions = page.locator(".card");
      await suggestions.nth(2).waitFor();
      await suggestions
        .first()
        .getByRole("button", { name: t("attack.drop"), exact: true })
        .click();
      await dialogOf(page)
        .getByRole("button", { name: t("attack.drop"), exact: true })
        .click();
      await page.locator(".rule", { hasText: "source port 123" }).waitFor();
      await page.locator(".card", { hasText: "source port 123" }).waitFor({ state: "hidden" });
      await page.locator(".notice").getByRole("button").first().click();
      await page.locator(".rule", { hasText: "source port 123" }).waitFor({ state: "hidden" });
      await page.locator(".card", { hasText: "source port 123" }).waitFor();
    },
  },
  {
    name: "active filters are extended, stopped all at once, and brought back",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/attack");
      const drop = async (port) => {
        await page
          .locator(".card", { hasText: `source port ${port}` })
          .getByRole("button", { name: t("attack.drop"), exact: true })
          .click();
        await dialogOf(page)
          .getByRole("button", { name: t("attack.drop"), exact: true })
          .click();
        await page.locator(".rule", { hasText: `source port ${port}` }).waitFor();
      };
      await drop(123);
      await drop(53);
      const rule = page.locator(".rule", { hasText: "source port 53" });
      const before = await rule.locator("time").getAttribute("datetime");
      await rule.getByRole("button", { name: t("attack.extend") }).click();
      await page.waitForFunction(
        ([selector, text]) =>
          document.querySelector(selector) !== null &&
          [...document.querySelectorAll(".rule")].some(
            (rule) => rule.textContent.includes("source port 53") && rule.querySelector("time")?.dateTime !== text,
          ),
        [".rule", before],
      );
      await page.getByRole("button", { name: t("attack.stopAll") }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("attack.stopAll") })
        .click();
      await rule.waitFor({ state: "hidden" });
      await page.locator(".notice").getByRole("button").first().click();
      await rule.waitFor();
    },
  },
  {
    name: "a filter for somebody else's address is refused, and the missing object is named",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/filters");
      await page.getByRole("button", { name: t("filterForm.title") }).click();
      const dialog = dialogOf(page);
      await dialog.getByRole("button", { name: t("filterForm.title") }).click();
      await dialog.getByText(t("filterForm.destinationMissing")).waitFor();
      await page.locator("input#filter-destination, #filter-destination input").fill("192.0.2.1");
      await dialog.getByRole("button", { name: t("filterForm.title") }).click();
      await dialog
        .getByText(
          t("reason.no-object", { kind: "route", destination: "192.0.2.1/32", origins: "AS64500, AS-AOBA@RIPE" }),
        )
        .first()
        .waitFor();
      await page.locator("input#filter-destination, #filter-destination input").fill("203.0.113.40");
      await dialog.getByRole("button", { name: t("filterForm.title") }).click();
      await dialog.waitFor({ state: "hidden" });
      await page.getByText("to 203.0.113.40/32").waitFor();
    },
  },
  {
    name: "a refused Flowspec rule says why, and can be checked again",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/filters");
      const row = page.locator("tr", { hasText: "redirect 64500:100" });
      await row.getByText(t("state.refused"), { exact: true }).waitFor();
      for (const code of ["no-object", "missing-object"]) {
        await row
          .getByText(
            t(`reason.${code}`, {
              kind: "route",
              destination: "192.0.2.0/24",
              prefix: "192.0.2.0/24",
              origins: "AS64500",
            }),
          )
          .waitFor();
      }
      await page.getByRole("button", { name: t("filters.recheck") }).click();
      await page.getByText(t("filters.rechecked")).waitFor();
    },
  },
  {
    name: "a packet is explained: which filter decides, and why the others do not",
    run: async ({ as }) => {
      const { page, t } = await as("ann", "/filters");
      const form = page.getByRole("form", { name: t("explain.title") });
      await form.getByLabel(t("explain.to")).fill("203.0.113.9");
      await form.getByLabel(t("explain.portFrom")).fill("19");
      await form.getByRole("button", { name: t("explain.ask"), exact: true }).click();
      await page.getByText(t("explain.drop")).waitFor();
      await page.getByText(t("explain.applies"), { exact: true }).waitFor();
      await form.getByLabel(t("explain.portFrom")).fill("20");
      await form.getByRole("button", { name: t("explain.ask"), exact: true }).click();
      await page.getByText(t("explain.pass")).waitFor();
      await page.getByText(t("explain.other")).first().waitFor();
      await page.getByText("UDP *:20 → 203.0.113.9").waitFor();
      await form.getByLabel(t("explain.portFrom")).fill("53,80");
      await form.getByRole("button", { name: t("explain.ask"), exact: true }).click();
      await form.getByText(t("explain.portWrong")).waitFor();
      assert(!(await page.getByText(t("explain.pass")).isVisible()), "a port that is none is left out of the packet");
    },
  },
  {
    name: "an API key is made, shown once, and deleted",
    run: async ({ as, url }) => {
      const { page, t } = await as("ann", "/keys");
      await page.getByRole("button", { name: t("keys.create") }).click();
      await dialogOf(page).getByLabel(t("keys.name"), { exact: true }).fill("journey");
      await dialogOf(page)
        .getByRole("button", { name: t("keys.create") })
        .click();
      const secret = await page.locator("code.secret").innerText();
      const read = () => fetch(`${url}/api/v1/session`, { headers: { authorization: `Bearer ${secret}` } });
      assert((await read()).status === 200, "the key does not work");
      const row = page.locator("tr", { hasText: "journey" });
      await row.getByRole("button", { name: t("service.delete"), exact: true }).click();
      await dialogOf(page)
        .getByRole("button", { name: t("service.delete"), exact: true })
        .click();
      await row.waitFor({ state: "hidden" });
      assert((await read()).status === 401, "the deleted key works");
    },
  },
];
