// The wall of the NOC: figures that are old, and the number of changes.
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/api/problem";
import { newQueryClient } from "../../src/api/queries";
import type { Overview } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Fabric } from "../../src/screens/fabric";
import { NocWall } from "../../src/screens/noc";

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  Link: ({ children }: { children: React.ReactNode }) => <a href="/">{children}</a>,
  useNavigate: () => () => {},
  useSearch: () => ({}),
}));

const page = (queries: ReturnType<typeof newQueryClient>, shown: React.ReactNode) => (
  <Localized language="en" messages={en}>
    <QueryClientProvider client={queries}>{shown}</QueryClientProvider>
  </Localized>
);
const failure = new RequestError({
  type: "https://ix.example/problems/unavailable",
  title: "",
  status: 503,
  detail: "x",
});

beforeEach(() => void vi.stubGlobal("fetch", () => new Promise(() => {})));
afterEach(() => vi.unstubAllGlobals());

describe("the wall", () => {
  const overview: Overview = {
    tasks: [],
    services: [],
    connections: [],
    switches: [],
    trunks: [],
    changes_open: 250,
    load: null,
    at: "",
    revision: 1,
  };
  const KEYS: [string[], unknown][] = [
    [["overview"], overview],
    [["switches"], []],
    [["trunks"], []],
    [["changes", "open"], []],
    [["bgp-sessions"], []],
  ];
  const wall = (age: number, broken?: string) => {
    const queries = newQueryClient();
    for (const [key, data] of KEYS) {
      queries.setQueryData(key, data, { updatedAt: Date.now() - age });
      if (key[0] === broken)
        queries.getQueryCache().find({ queryKey: key })?.setState({ status: "error", error: failure });
    }
    const { container, unmount } = render(page(queries, <NocWall />));
    const found = {
      old: container.querySelector(".wall")?.getAttribute("data-old"),
      live: screen.queryByText(en["noc.live"]) !== null,
      numbers: [...container.querySelectorAll(".wall-value")].map((value) => value.textContent),
    };
    unmount();
    return found;
  };

  it("is live only while its figures are new and can be read", () => {
    expect(wall(5_000)).toMatchObject({ old: "false", live: true });
    expect(wall(60_000), "the polls bring nothing").toMatchObject({ old: "true", live: false });
    for (const key of ["overview", "switches", "trunks", "changes", "bgp-sessions"])
      expect(wall(5_000, key), key).toMatchObject({ old: "true", live: false });
  });

  it("alarms when the database cannot be written, and when a switch differs from its plan", () => {
    const task = (task: string, object: string, name: string) => ({
      task,
      object,
      name,
      account: null,
      severity: "error" as const,
      until: null,
      since: null,
      members: null,
    });
    const queries = newQueryClient();
    for (const [key, data] of KEYS) queries.setQueryData(key, data);
    const tasks = [
      task("database_unwritable", "engine", "disk full"),
      task("switch_drifted", "sw-1", "ote-1"),
      task("read_only", "sw-1", "ote-1"),
      task("switch_differs", "sw-2", "inz-1"),
    ];
    queries.setQueryData(["overview"], { ...overview, tasks });
    const { container } = render(page(queries, <NocWall />));
    const alarms = container.querySelector("[aria-labelledby=wall-alarms]")?.textContent ?? "";
    for (const sentence of [
      "The database cannot be written: disk full",
      "Switch ote-1 differs from its plan",
      "The engine is read-only: ote-1",
      "Switch inz-1 has differed",
    ])
      expect(alarms).toContain(sentence);
  });

  it("shows the load of a trunk, and says if it is not measured", () => {
    const trunk = {
      id: "tr-1",
      name: "east",
      kind: "vxlan",
      ends: [
        { id: "sw-1:9", site: "Otemachi" },
        { id: "sw-2:9", site: "Inzai" },
      ],
      cost: 1,
      capacity_mbps: 10_000,
      contracted_mbps: 0,
      load: { in_bps: 3e9, out_bps: 1e9 },
      drained: false,
      up: true,
      since: null,
      carries: true,
      services: 0,
      revision: 1,
      can: [],
    };
    const shown = (load: object | null) => {
      const queries = newQueryClient();
      for (const [key, data] of KEYS) queries.setQueryData(key, data);
      queries.setQueryData(["switches"], []);
      queries.setQueryData(["trunks"], [{ ...trunk, load }]);
      const { container, unmount } = render(page(queries, <Fabric />));
      const text = container.textContent ?? "";
      unmount();
      return text;
    };
    expect(shown(trunk.load)).toContain("3\u00a0Gbit/s");
    expect(shown(null)).toContain(en["rate.unknown"]);
  });

  it("counts the changes under way that the engine counts, not those of the first page", () => {
    expect(wall(0).numbers).toContain("250");
  });

  it("and the fabric read the open changes, which a page of the newest ones need not have", async () => {
    const drain = {
      id: "ch-1",
      operation: "drain_trunk",
      actor: "us-1",
      objects: ["tr-1"],
      state: "staged",
      waiting_for: [],
      error: null,
      confirm_until: new Date(Date.now() + 60_000).toISOString(),
      can_confirm: true,
    };
    vi.stubGlobal("fetch", (request: Request) => {
      const url = new URL(request.url);
      if (!url.pathname.endsWith("/changes")) return new Promise(() => {});
      const items = url.searchParams.get("open") === "true" ? [drain] : [];
      return Promise.resolve(Response.json({ items, next: null, total: items.length }));
    });
    const queries = newQueryClient();
    for (const [key, data] of KEYS) if (key[0] !== "changes") queries.setQueryData(key, data);
    const { container, unmount } = render(page(queries, <NocWall />));
    await waitFor(() =>
      expect(container.querySelector("[aria-labelledby=wall-changes]")?.textContent).toContain("tr-1"),
    );
    unmount();
    queries.removeQueries({ queryKey: ["changes"] });
    render(page(queries, <Fabric />));
    await screen.findByText(en["confirm.keep"]);
  });
});
