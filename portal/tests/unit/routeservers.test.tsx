import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import type { MemberRoute, RejectedRoute, RouteServerSession } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { RejectedTable, RoutesTable, RouteServers, SessionTable } from "../../src/screens/routeservers";

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    {children}
  </Localized>
);

const session: RouteServerSession = {
  server: "rs1.ix.example",
  server_asn: 64999,
  freshness: "fresh",
  read_at: "2026-11-27T05:33:14.000Z",
  failing_since: null,
  failure: null,
  address: "192.0.2.10",
  name: "as64500_1",
  asn: 64500,
  state: "established",
  imported: 14,
  rejected: 2,
  truncated: false,
  error: null,
};

const route: RejectedRoute = {
  server: "rs1.ix.example",
  address: "192.0.2.10",
  prefix: "203.0.113.0/24",
  next_hop: "192.0.2.10",
  as_path: "64500",
  causes: [{ community: "65520:2", text: "the prefix is a bogon", coded: [{ code: "route-bogon", values: {} }] }],
  read_at: "2026-11-27T05:33:14.000Z",
};

it("each session has its state as a word, its error, and if there are more rejected routes than are listed", () => {
  const others = [
    { ...session, name: "as64500_2", state: "open_sent", truncated: true, rejected: 1000 },
    { ...session, address: "2001:db8::10", name: null, state: "absent", imported: null, rejected: 0 },
    { ...session, address: "192.0.2.11", state: "idle", error: "BGP Error: Bad peer AS" },
  ];
  render(<SessionTable sessions={[session, ...others]} />, { wrapper });
  const rows = screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => row.textContent);
  expect(rows[0]).toContain("Established");
  expect(rows[1]).toMatch(/OpenSent.*1000\+$/);
  expect(rows[2]).toContain(en["rs.absent"]);
  expect(rows[3]).toContain("IdleBGP Error: Bad peer AS".replace("Idle", "Idle "));
});

it("a route is accepted or rejected, with its communities and its states by RPKI and registry as far as known", () => {
  const accepted: MemberRoute = {
    server: "rs1.ix.example",
    prefix: "203.0.113.0/24",
    next_hop: "192.0.2.10",
    as_path: "64500",
    communities: ["64999:1", "64999:1:2"],
    rpki: "valid",
    irr: true,
    accepted: true,
    causes: [],
  };
  const rejected: MemberRoute = {
    ...accepted,
    prefix: "192.0.2.0/25",
    communities: null,
    rpki: null,
    irr: false,
    accepted: false,
    causes: route.causes,
  };
  render(<RoutesTable routes={[accepted, rejected]} />, { wrapper });
  const rows = screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => row.textContent);
  for (const part of [en["glass.accepted"], en["glass.rpkiValid"], en["glass.irrThere"], "64999:1 64999:1:2"])
    expect(rows[0]).toContain(part);
  for (const part of [en["glass.rejected"], "bogon", en["rs.unknown"], en["glass.irrMissing"]])
    expect(rows[1]).toContain(part);
});

it("a rejected route has its causes in words with their communities", () => {
  const two = [...route.causes, { community: "64999:1101:99", text: "the cause 64999:1101:99", coded: [] }];
  render(<RejectedTable routes={[{ ...route, causes: two }]} />, { wrapper });
  const row = screen.getAllByRole("row")[1];
  for (const text of ["203.0.113.0/24", "the prefix is a bogon", "65520:2", "64999:1101:99"])
    expect(row?.textContent).toContain(text);
});

it("many rejected routes are shown on demand", () => {
  const routes = Array.from({ length: 50 }, (_, number) => ({ ...route, prefix: `203.0.113.${number}/32` }));
  render(<RejectedTable routes={routes} />, { wrapper });
  expect(screen.getAllByRole("row").length).toBe(21);
  fireEvent.click(screen.getByRole("button", { name: "Show all 50 routes" }));
  expect(screen.getAllByRole("row").length).toBe(51);
  expect(screen.queryByRole("button")).toBeNull();
});

it("the sessions of another member are read while they are open, and those of the own end at once", () => {
  const fetch = vi.fn(() => new Promise<Response>(() => {}));
  vi.stubGlobal("fetch", fetch);
  const page = (isOwn: boolean) => (
    <QueryClientProvider client={newQueryClient()}>
      <RouteServers end="nc-1" isOwn={isOwn} />
    </QueryClientProvider>
  );
  const { container, unmount } = render(page(false), { wrapper });
  expect(fetch).not.toHaveBeenCalled();
  const details = container.querySelector("details") as HTMLDetailsElement;
  details.open = true;
  fireEvent(details, new Event("toggle"));
  expect(fetch).toHaveBeenCalledOnce();
  unmount();
  render(page(true), { wrapper });
  expect(fetch).toHaveBeenCalledTimes(2);
  vi.unstubAllGlobals();
});
