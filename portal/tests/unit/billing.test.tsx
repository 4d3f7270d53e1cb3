// The page of bills: what is final, what has gaps, and whose figures they are.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { billing as billingQuery, newQueryClient } from "../../src/api/queries";
import type { BillingRow } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Billing, months } from "../../src/screens/billing";
import { parseBillingSearch } from "../../src/screens/billing.search";

const page = vi.hoisted(() => ({ search: {} as Record<string, unknown>, navigate: vi.fn(), operator: false }));
vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => page.navigate,
  useSearch: () => page.search,
}));
vi.mock("../../src/app/shell", () => ({
  useIsStaff: () => page.operator,
  useMe: () => ({
    user: "us-1",
    account: { id: "ac-1", name: "Aoba", asns: [] },
    roles: [],
    operator: page.operator,
    can: ["read_traffic"],
  }),
}));

beforeEach(() => {
  page.search = {};
  page.operator = false;
  page.navigate.mockReset();
  vi.stubGlobal("fetch", () => new Promise(() => {}));
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const ROW: BillingRow = {
  account: "ac-1",
  account_name: "Aoba",
  connection: "cn-1",
  connection_name: "aoba-ote",
  in_bps: 2e9,
  out_bps: 3e9,
  billed_bps: 3e9,
  coverage: 1,
  billable: true,
  in_ipv4_bps: 1e9,
  out_ipv4_bps: 2e9,
  in_ipv6_bps: null,
  out_ipv6_bps: 1e9,
};

function show(rows: BillingRow[], more: { measured?: boolean; frozen?: boolean; month?: string } = {}) {
  const queries = newQueryClient();
  const month = typeof page.search["month"] === "string" ? page.search["month"] : undefined;
  queries.setQueryData(billingQuery(undefined).queryKey, { measured: true, frozen: false, month: "2027-03", rows: [] });
  queries.setQueryData(billingQuery(month).queryKey, {
    measured: true,
    frozen: false,
    month: "2026-11",
    rows,
    ...more,
  });
  render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Billing />
      </QueryClientProvider>
    </Localized>,
  );
}

const cell = (row: HTMLElement, title: string) =>
  [...row.querySelectorAll("td")].find((cell) => cell.getAttribute("data-label") === title)?.textContent;

it("a month that has ended is final, the present one is not, and its file is beside it", () => {
  page.search = { month: "2026-10" };
  show([ROW], { frozen: true, month: "2026-10" });
  expect(screen.getByText(en["billing.frozen"])).toBeDefined();
  expect(screen.queryByText(en["billing.open"])).toBeNull();
  expect(screen.getByRole("link", { name: en["act.csv"] }).getAttribute("href")).toBe(
    "/api/v1/billing.csv?month=2026-10",
  );
});

it("a figure has both directions and both families, what is billed, and what is not known is no zero", () => {
  show([ROW]);
  expect(screen.getByText(en["billing.open"])).toBeDefined();
  const row = screen.getByRole("row", { name: /aoba-ote/ });
  expect([en["connection.in"], en["connection.out"], en["billing.billed"]].map((title) => cell(row, title))).toEqual([
    "2\u00a0Gbit/s",
    "3\u00a0Gbit/s",
    "3\u00a0Gbit/s",
  ]);
  expect(cell(row, `${en["connection.in"]}, IPv6`)).toBe(en["chart.unknown"]);
  expect(cell(row, `${en["connection.out"]}, IPv6`)).toBe("1\u00a0Gbit/s");
});

it("a figure with too many gaps says that it is not billed by itself", () => {
  show([ROW, { ...ROW, connection: "cn-2", connection_name: "aoba-mak", coverage: 0.958, billable: false }]);
  expect(within(screen.getByRole("row", { name: /aoba-ote/ })).queryByText(en["billing.incomplete"])).toBeNull();
  const row = screen.getByRole("row", { name: /aoba-mak/ });
  expect(within(row).getByText(en["billing.incomplete"])).toBeDefined();
  expect(cell(row, en["billing.coverage"])).toContain("95.8%");
});

it("the staff reads whose connection it is, and a member reads no account", () => {
  show([ROW]);
  expect(screen.queryByRole("columnheader", { name: en["connection.account"] })).toBeNull();
  page.operator = true;
  show([ROW]);
  expect(screen.getByRole("columnheader", { name: en["connection.account"] })).toBeDefined();
});

it("an exchange without series says so, and offers no file", () => {
  show([], { measured: false, month: "" });
  expect(screen.getByText(en["graph.off"])).toBeDefined();
  expect(screen.queryByRole("link", { name: en["act.csv"] })).toBeNull();
});

it("months are the present one of the exchange and the twelve before it, and a choice goes to the address", () => {
  expect(months("2026-01")).toEqual([
    "2026-01",
    ...Array.from({ length: 12 }, (_, index) => `2025-${String(12 - index).padStart(2, "0")}`),
  ]);
  page.search = { month: "2026-10" };
  show([ROW], { month: "2026-10" });
  fireEvent.click(screen.getByRole("button", { name: new RegExp(en["billing.month"]) }));
  expect(screen.getAllByRole("option").map((option) => option.textContent)).toHaveLength(13);
  fireEvent.click(screen.getByRole("option", { name: "March 2027" }));
  expect(page.navigate).toHaveBeenCalledWith({ to: "/billing", search: {} });
});

it("the month of an address is a month and nothing else", () => {
  expect(parseBillingSearch({ month: "2026-11", other: 1 })).toEqual({ month: "2026-11" });
  for (const wrong of ["2026-13", "2026-1", 2026, ["2026-11"], "x"])
    expect(parseBillingSearch({ month: wrong })).toEqual({});
});
