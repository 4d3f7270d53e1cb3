// Graphs over time: gaps are gaps, the sentence and the table say what the drawing shows, and the address keeps the
// period.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import type { Graph, GraphLine } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { formatMicros } from "../../src/i18n/units";
import { byObject, GraphChart, GraphOfObjects, Graphs, stretches } from "../../src/ui/graph";
import { parsePeriod } from "../../src/ui/graph.search";

const router = vi.hoisted(() => ({ search: {} as Record<string, unknown>, navigate: vi.fn() }));
vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => router.navigate,
  useSearch: () => router.search,
}));

beforeEach(() => {
  router.search = {};
  router.navigate.mockReset();
});
afterEach(() => vi.unstubAllGlobals());

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    <QueryClientProvider client={newQueryClient()}>{children}</QueryClientProvider>
  </Localized>
);

const DIRECTIONS = { in: "Sent", out: "Received" };

function line(measure: string, average: (number | null)[], more: Partial<GraphLine> = {}): GraphLine {
  return {
    object: "cn-1",
    name: "aoba-ote",
    measure,
    unit: "bit/s",
    sampled: false,
    average,
    peak: average,
    coverage: average.map((value) => (value === null ? 0 : 1)),
    ...more,
  };
}

function graph(lines: GraphLine[], more: Partial<Graph> = {}): Graph {
  return { measured: true, period: "day", start: "2026-11-28T12:00:00.000Z", step_seconds: 300, lines, ...more };
}

describe("the drawing", () => {
  it("has a gap where nothing is known, and no zero", () => {
    expect(stretches([1, 2, null, null, 4, 4], 4).length).toBe(2);
    expect(stretches([null, null], 4)).toEqual([]);
    expect(
      stretches([0, 0], 4)[0]
        ?.split(" ")
        .map((point) => point.split(",")[1]),
      "zero is at the bottom",
    ).toEqual(["150.0", "150.0"]);
  });

  it("shows a stretch of one point", () => {
    const [stretch] = stretches([null, 3, null], 3);
    const [from, to] = (stretch ?? "").split(" ").map((point) => Number(point.split(",")[0]));
    expect(to).toBeGreaterThan(from ?? 0);
  });
});

it("the sentence has the peak with its time, the average of the known time, and its share", () => {
  const lines = [line("in", [1e9, 3e9, null, null], { peak: [1e9, 5e9, null, null], coverage: [1, 0.5, 0, 0] })];
  const { container } = render(
    <GraphChart graph={graph(lines)} lines={lines} directions={DIRECTIONS} name="aoba-ote" />,
    { wrapper },
  );
  const time = new Intl.DateTimeFormat("en", { timeStyle: "short" }).format(new Date("2026-11-28T12:05:00.000Z"));
  // (1 Gbit/s of 5 minutes and 3 Gbit/s of 2.5 minutes) are 1.67 Gbit/s on average.
  const sentence = `Sent: peak 5\u00a0Gbit/s at ${time}, average 1.67\u00a0Gbit/s, known for 37.5% of the time.`;
  expect(screen.getByRole("img").getAttribute("aria-label")).toBe(sentence);
  expect(container.querySelector("figcaption")?.textContent, "people who see read it as well").toBe(sentence);
});

it("a line of which nothing is known says so, and draws nothing", () => {
  const lines = [line("in", [null, null])];
  const { container } = render(<GraphChart graph={graph(lines)} lines={lines} directions={DIRECTIONS} name="x" />, {
    wrapper,
  });
  expect(screen.getByRole("img").getAttribute("aria-label")).toBe("Sent: nothing is known of this time.");
  expect(container.querySelector("polyline")).toBeNull();
});

it("the table has each point, the newest first, IPv4 and IPv6 apart, and peaks of what is counted", () => {
  const lines = [
    line("in", [1e6, 2e6, null]),
    line("in_ipv4", [7e5, 1e6, null], { sampled: true }),
    line("in_ipv6", [3e5, 1e6, null], { sampled: true }),
  ];
  render(<GraphChart graph={graph(lines)} lines={lines} directions={DIRECTIONS} name="x" />, { wrapper });
  expect(screen.queryByRole("table"), "long tables are made when they are opened").toBeNull();
  const details = screen.getByText(en["chart.table"]).closest("details") as HTMLDetailsElement;
  details.open = true;
  fireEvent(details, new Event("toggle"));
  const rows = screen.getAllByRole("row").map((row) =>
    within(row)
      .getAllByRole(row.querySelector("td") ? "cell" : "columnheader")
      .map((cell) => cell.textContent),
  );
  expect(rows[0]).toEqual([en["graph.time"], "Sent", "Sent, IPv4", "Sent, IPv6", "Sent, peak"]);
  expect(rows.slice(1)).toEqual([
    Array(4).fill(en["chart.unknown"]),
    ["2\u00a0Mbit/s", "1\u00a0Mbit/s", "1\u00a0Mbit/s", "2\u00a0Mbit/s"],
    ["1\u00a0Mbit/s", "700\u00a0kbit/s", "300\u00a0kbit/s", "1\u00a0Mbit/s"],
  ]);
});

it("round-trip times are milliseconds", () => {
  expect([formatMicros(870, "en"), formatMicros(1_400, "en"), formatMicros(2_500_000, "en")]).toEqual([
    "870\u00a0µs",
    "1.4\u00a0ms",
    "2.5\u00a0s",
  ]);
  const lines = [line("round_trip", [1_400, 1_500], { unit: "us" })];
  render(<GraphChart graph={graph(lines)} lines={lines} directions={DIRECTIONS} name="Otemachi – Makuhari" />, {
    wrapper,
  });
  expect(screen.getByRole("img").getAttribute("aria-label")).toContain(`${en["graph.roundTrip"]}: peak 1.5\u00a0ms`);
});

describe("several objects", () => {
  const peers = [
    line("in", [1], { object: "ac-2", name: "Borealis" }),
    line("out", [2], { object: "ac-2", name: "Borealis" }),
    line("in", [3], { object: "", name: "" }),
    line("out", [4], { object: "", name: "" }),
    line("in", [5], { object: "", name: "" }),
    line("out", [6], { object: "", name: "" }),
  ];

  it("are apart, also those that the reader may not know", () => {
    expect(byObject(peers).map(({ name, lines }) => [name, lines.map((one) => one.average[0])])).toEqual([
      ["Borealis", [1, 2]],
      ["", [3, 4]],
      ["", [5, 6]],
    ]);
  });

  it("are chosen by name, and the heaviest is shown first", () => {
    render(<GraphOfObjects graph={graph(peers)} directions={DIRECTIONS} choose="Peer" />, { wrapper });
    expect(screen.getByRole("figure").getAttribute("aria-label")).toBe("Borealis");
    fireEvent.click(screen.getByRole("button", { name: /Peer/ }));
    const names = screen.getAllByRole("option").map((option) => option.textContent);
    expect(names).toEqual(["Borealis", "Another member (2)", "Another member (3)"]);
    fireEvent.click(screen.getByRole("option", { name: "Another member (2)" }));
    expect(screen.getByRole("figure").getAttribute("aria-label")).toBe("Another member (2)");
  });

  it("without series and without traffic say which of both it is", () => {
    const { rerender } = render(
      <GraphOfObjects graph={graph([], { measured: false })} directions={DIRECTIONS} choose="" />,
      { wrapper },
    );
    expect(screen.getByText(en["graph.off"])).toBeDefined();
    rerender(<GraphOfObjects graph={graph([])} directions={DIRECTIONS} choose="" />);
    expect(screen.getByText(en["graph.empty"])).toBeDefined();
  });
});

describe("the period", () => {
  it("is one of four, and a day in an address without it", () => {
    expect(["day", "week", "month", "year"].map((period) => parsePeriod({ period }).period)).toEqual([
      "day",
      "week",
      "month",
      "year",
    ]);
    for (const wrong of ["decade", 7, ["week"], undefined]) expect(parsePeriod({ period: wrong })).toEqual({});
  });

  it("is asked of the API, and a choice goes to the address", async () => {
    const asked: string[] = [];
    vi.stubGlobal("fetch", (request: Request) => {
      asked.push(new URL(request.url).pathname + new URL(request.url).search);
      return Promise.resolve(
        new Response(JSON.stringify(graph([line("in", [1e6]), line("out", [2e6])], { period: "week" })), {
          headers: { "content-type": "application/json" },
        }),
      );
    });
    router.search = { period: "week", q: "kept" };
    render(<Graphs of={{ kind: "connections", id: "cn-1" }} directions={DIRECTIONS} isOpen />, { wrapper });
    await waitFor(() => screen.getByRole("figure"));
    expect(asked).toEqual(["/api/v1/series/connections/cn-1?period=week"]);
    expect((screen.getByRole("radio", { name: en["graph.week"] }) as HTMLInputElement).checked).toBe(true);
    fireEvent.click(screen.getByRole("radio", { name: en["graph.year"] }));
    const [to] = router.navigate.mock.calls[0] as [{ search: (before: object) => object }];
    expect(to.search(router.search), "other words of the address stay").toEqual({ period: "year", q: "kept" });
  });

  it("nothing is read before the graphs are opened", () => {
    const fetch = vi.fn(() => new Promise(() => {}));
    vi.stubGlobal("fetch", fetch);
    render(<Graphs of={{ kind: "trunks", id: "tk-1" }} directions={DIRECTIONS} />, { wrapper });
    expect(fetch).not.toHaveBeenCalled();
    const details = screen.getByText(en["graph.title"]).closest("details") as HTMLDetailsElement;
    details.open = true;
    fireEvent(details, new Event("toggle"));
    expect(fetch).toHaveBeenCalledOnce();
  });
});
