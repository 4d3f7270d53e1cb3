// The screen of an attack, and the tasks that lead to it.
import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/api/problem";
import { filterOrder } from "../../src/api/orders";
import { newQueryClient } from "../../src/api/queries";
import type { Filter, Task, Traffic } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Numbers, UnderAttack } from "../../src/screens/attack";
import { ActiveRules } from "../../src/screens/attack.rules";
import { Tasks } from "../../src/screens/home";

const { navigate, address } = vi.hoisted(() => ({ navigate: vi.fn(), address: { search: {} as { target?: string } } }));

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  Link: ({ children, to, search }: { children: React.ReactNode; to: string; search?: Record<string, string> }) => (
    <a href={search ? `${to}?${new URLSearchParams(search)}` : to}>{children}</a>
  ),
  useNavigate: () => navigate,
  useSearch: () => address.search,
}));

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    <QueryClientProvider client={newQueryClient()}>{children}</QueryClientProvider>
  </Localized>
);

describe("the rates to a destination", () => {
  const traffic = (bits: number, dropped: number, usual: number | null): Traffic => ({
    target: { prefix: "203.0.113.7/32", bits_per_s: bits, usual_bits_per_s: usual },
    dropped_bits_per_s: dropped,
    packets_per_s: 1e6,
    error_percent: 2,
    minutes: [0, 1].map((number) => ({ at: `2026-11-24T01:0${number}:00.000Z`, passed_bps: 1e6, dropped_bps: 0 })),
    breakdown: [],
    suggestions: [],
  });
  const shown = (of: Traffic) => {
    const { container, unmount } = render(<Numbers traffic={of} />, { wrapper });
    const [passed, dropped] = container.querySelectorAll(".big-value");
    const found = {
      passed: passed?.textContent,
      tone: passed?.getAttribute("data-tone"),
      dropped: dropped?.textContent,
      words: passed?.nextSibling?.textContent,
      chart: screen.getByRole("img").getAttribute("aria-label"),
      lines: container.querySelectorAll(".chart-usual").length,
    };
    unmount();
    return found;
  };

  it("are those of the last half minute, and not of the last minute of the chart", () => {
    expect(shown(traffic(9e9, 6e9, 2.5e8))).toMatchObject({
      passed: "3\u00a0Gbit/s",
      dropped: "6\u00a0Gbit/s",
      tone: "bad",
      words: "arrives, 12 times the usual rate",
      lines: 1,
    });
    expect(shown(traffic(9e9, 8.8e9, 2.5e8)).tone, "filters drop the attack").toBe("ok");
  });

  it("of minutes that were not measured are unknown and not 0", () => {
    const of = traffic(9e9, 0, 1e9);
    of.minutes = [{ at: "2026-11-24T00:59:00.000Z", passed_bps: null, dropped_bps: null }, ...of.minutes];
    const { container, unmount } = render(<Numbers traffic={of} />, { wrapper });
    const cells = [...container.querySelectorAll(".chart-table td")].map((cell) => cell.textContent);
    expect(cells.slice(-2)).toEqual([en["chart.unknown"], en["chart.unknown"]]);
    const points = container.querySelector(".chart-line")?.getAttribute("points")?.split(" ") ?? [];
    expect(
      points.map((point) => point.split(",")[0]),
      "the line begins where the measurement begins",
    ).toEqual(["300.0", "600.0"]);
    unmount();
  });

  it("are no quiet ones if the usual rate is unknown", () => {
    expect(shown(traffic(9e9, 0, null))).toMatchObject({ tone: "bad", words: en["attack.arrivesUnknown"], lines: 0 });
    expect(shown(traffic(9e9, 0, null)).chart).toContain(en["chart.unknown"]);
    expect(shown(traffic(9e9, 0, 0))).toMatchObject({ tone: "bad", words: en["attack.arrivesNew"] });
    expect(shown(traffic(5e7, 0, null)).tone).toBe("ok");
  });
});

it("a filter that could not be extended says why", async () => {
  const stale = new RequestError({
    type: "https://ix.example/problems/stale",
    title: "stale",
    status: 412,
    detail: "the filter has changed",
  });
  const extend = vi.spyOn(filterOrder, "extend").mockRejectedValue(stale);
  const filter = {
    id: "fi-1",
    matching: "to 203.0.113.7/32",
    destination: "203.0.113.7/32",
    action: "drop",
    rate_kbps: null,
    counter: null,
    order: null,
    expires: new Date(Date.now() + 600_000).toISOString(),
    revision: 7,
    can: ["write_filter"],
    state: "active",
  } as unknown as Filter;
  render(<ActiveRules filters={[filter]} done={() => {}} />, { wrapper });
  fireEvent.click(screen.getByRole("button", { name: en["attack.extend"] }));
  expect((await screen.findByRole("alert")).textContent).toContain(en["problem.stale"]);
  expect(extend).toHaveBeenCalledOnce();
  extend.mockRestore();
});

it("one hour more of a filter is said in a sentence and can be undone", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ revision: 9 })));
  const extend = vi.spyOn(filterOrder, "extend").mockResolvedValue({} as never);
  const done = vi.fn();
  render(<ActiveRules filters={[rule("fi-1")]} done={done} />, { wrapper });
  fireEvent.click(screen.getByRole("button", { name: en["attack.extend"] }));
  await waitFor(() => expect(done).toHaveBeenCalledOnce());
  const [sentence, undo] = done.mock.calls[0] as [string, () => Promise<unknown>];
  expect(sentence).toContain("to fi-1");
  await undo();
  expect(extend.mock.calls).toEqual([
    ["fi-1", 7, 70],
    ["fi-1", 9, 10],
  ]);
  extend.mockRestore();
  vi.unstubAllGlobals();
});

const rule = (id: string): Filter =>
  ({
    id,
    matching: `to ${id}`,
    destination: "203.0.113.7/32",
    action: "drop",
    rate_kbps: null,
    counter: null,
    order: { destination: id },
    expires: new Date(Date.now() + 600_000).toISOString(),
    revision: 7,
    can: ["write_filter"],
    state: "active",
  }) as unknown as Filter;

it("filters that were removed before a failure can be made again, each once", async () => {
  const failure = new RequestError({
    type: "https://ix.example/problems/unavailable",
    title: "",
    status: 503,
    detail: "x",
  });
  const remove = vi
    .spyOn(filterOrder, "remove")
    .mockResolvedValueOnce({} as never)
    .mockResolvedValueOnce({} as never)
    .mockRejectedValueOnce(failure);
  const create = vi
    .spyOn(filterOrder, "create")
    .mockResolvedValueOnce({} as never)
    .mockRejectedValueOnce(failure)
    .mockResolvedValue({} as never);
  const done = vi.fn();
  render(<ActiveRules filters={["fi-1", "fi-2", "fi-3"].map(rule)} done={done} />, { wrapper });
  fireEvent.click(screen.getByRole("button", { name: en["attack.stopAll"] }));
  fireEvent.submit(screen.getByRole("dialog").querySelector("form") ?? document.body);
  await screen.findByRole("alert");
  expect([remove.mock.calls.length, done.mock.calls.length]).toEqual([3, 1]);
  const [, undo] = done.mock.calls[0] as [string, () => Promise<unknown>];
  await expect(undo()).rejects.toBe(failure);
  await undo();
  const made = create.mock.calls.map(([body, key]) => [body.destination, key] as const);
  expect(made.map(([destination]) => destination)).toEqual(["fi-1", "fi-2", "fi-2"]);
  expect(made[1]?.[1], "the engine knows a repeated order by its key").toBe(made[2]?.[1]);
  remove.mockRestore();
  create.mockRestore();
});

describe("the screen", () => {
  const traffic = (prefix: string): Traffic => ({
    target: { prefix, bits_per_s: 1e9, usual_bits_per_s: 0 },
    dropped_bits_per_s: 0,
    packets_per_s: 1,
    error_percent: 2,
    minutes: [],
    breakdown: [],
    suggestions: [],
  });
  const screenOf = (client: ReturnType<typeof newQueryClient>) => (
    <Localized language="en" messages={en}>
      <QueryClientProvider client={client}>
        <UnderAttack />
      </QueryClientProvider>
    </Localized>
  );
  const targets = ["203.0.113.7/32", "203.0.113.8/32"].map((prefix) => ({
    prefix,
    bits_per_s: 1e9,
    usual_bits_per_s: 0,
  }));

  it("stays at the target that was the first", async () => {
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    const client = newQueryClient();
    client.setQueryData(["attack", ""], { targets, traffic: null });
    address.search = {};
    render(screenOf(client));
    await waitFor(() =>
      expect(navigate).toHaveBeenCalledWith({ to: "/attack", search: { target: "203.0.113.7/32" }, replace: true }),
    );
    navigate.mockClear();
    vi.unstubAllGlobals();
  });

  it("shows no rate of one target below the name of another one", () => {
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    const client = newQueryClient();
    client.setQueryData(["attack", ""], { targets, traffic: null });
    client.setQueryData(["attack", "203.0.113.7/32"], { targets, traffic: traffic("203.0.113.7/32") });
    address.search = { target: "203.0.113.7/32" };
    const { container, rerender } = render(screenOf(client));
    expect(container.querySelectorAll(".big-value").length).toBe(2);
    address.search = { target: "203.0.113.8/32" };
    rerender(screenOf(client));
    expect(container.querySelectorAll(".big-value").length).toBe(0);
    expect(screen.queryByText(en["attack.noSuggestions"]), "nothing is known yet").toBeNull();
    vi.unstubAllGlobals();
  });

  it("keeps the suggestion of an open dialog when the next read brings other ones", async () => {
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    const create = vi.spyOn(filterOrder, "create").mockResolvedValue({ created: [], changed: [], plan: [] } as never);
    const suggestion = (port: number) => ({
      matching: `source port ${port}`,
      why: "",
      coded: [],
      covers: 1,
      collateral: 0,
      order: { action: "drop", destination: "203.0.113.7/32", source_ports: [{ first: port, last: port }] },
    });
    const read = (bits_per_s: number, ...ports: number[]) => ({
      targets,
      traffic: {
        ...traffic("203.0.113.7/32"),
        target: { prefix: "203.0.113.7/32", bits_per_s, usual_bits_per_s: 0 },
        suggestions: ports.map(suggestion),
      },
    });
    const client = newQueryClient();
    client.setQueryData(["attack", ""], { targets, traffic: null });
    client.setQueryData(["attack", "203.0.113.7/32"], read(1e9, 123));
    address.search = { target: "203.0.113.7/32" };
    const { container } = render(screenOf(client));
    fireEvent.click(screen.getByText(en["attack.drop"]));
    const dialog = () => document.querySelector("[role=dialog]");
    for (const [next, rate] of [
      [read(2e9, 19), "2\u00a0Gbit/s"],
      [read(3e9), "3\u00a0Gbit/s"],
    ] as const) {
      act(() => void client.setQueryData(["attack", "203.0.113.7/32"], next));
      await waitFor(() => expect(container.querySelector(".big-value")?.textContent).toBe(rate));
      expect(dialog()?.textContent).toContain("source port 123");
    }
    fireEvent.submit(dialog()?.querySelector("form") ?? document.body);
    await waitFor(() => expect(dialog()).toBeNull());
    expect(create.mock.calls.map(([body]) => body.source_ports)).toEqual([[{ first: 123, last: 123 }]]);
    expect(screen.queryByText("source port 123"), "the list is the newest one again").toBeNull();
    create.mockRestore();
    vi.unstubAllGlobals();
  });

  it("suggests limits while the usual traffic is unknown; a suggestion is gone when its filter is made", async () => {
    vi.stubGlobal("fetch", () => new Promise(() => {}));
    const create = vi.spyOn(filterOrder, "create").mockResolvedValue({ created: [], changed: [], plan: [] } as never);
    const suggestion = {
      matching: "udp",
      why: "",
      coded: [],
      covers: 0.98,
      collateral: null,
      order: { destination: "203.0.113.7/32", protocol: 17, action: "shape", rate_kbps: 40_000 },
    };
    const client = newQueryClient();
    client.setQueryData(["attack", ""], { targets, traffic: null });
    client.setQueryData(["attack", "203.0.113.7/32"], {
      targets,
      traffic: { ...traffic("203.0.113.7/32"), suggestions: [suggestion] },
    });
    address.search = { target: "203.0.113.7/32" };
    render(screenOf(client));
    expect(screen.getByText(en["attack.collateralUnknown"])).toBeTruthy();
    expect(screen.getByText(en["attack.usualUnknown"])).toBeTruthy();
    expect(document.body.textContent, "an unknown share is not 0 %").not.toMatch(/hits|-?0\u00a0?%/);
    expect(screen.queryByText(en["attack.drop"])).toBeNull();
    fireEvent.click(screen.getByRole("button", { name: en["attack.limit"] }));
    const dialog = () => document.querySelector("[role=dialog]");
    fireEvent.change(screen.getByLabelText(en["end.rate"], { exact: false }), { target: { value: "25" } });
    fireEvent.submit(dialog()?.querySelector("form") ?? document.body);
    await waitFor(() => expect(dialog()).toBeNull());
    expect(create.mock.calls.map(([body]) => [body.action, body.rate_kbps])).toEqual([["shape", 25_000]]);
    expect(screen.queryByText("udp"), "no next read is needed").toBeNull();
    create.mockRestore();
    vi.unstubAllGlobals();
  });
});

it("tasks of one object are told apart", () => {
  const error = vi.spyOn(console, "error").mockImplementation(() => {});
  const task = (task: string, name: string, until: string | null = null): Task => ({
    task,
    object: "ac-1",
    name,
    account: null,
    severity: "error",
    until,
    since: null,
    members: null,
  });
  render(
    <Tasks
      tasks={[
        task("attack", "203.0.113.7/32"),
        task("attack", "203.0.113.8/32"),
        task("mac_ends", "LAN", "2026-11-24T01:00:00Z"),
        task("mac_ends", "LAN", "2026-11-24T01:00:00Z"),
      ]}
    />,
    { wrapper },
  );
  expect(screen.getAllByRole("listitem").length).toBe(4);
  expect(screen.getAllByRole("link").map((link) => link.getAttribute("href"))).toEqual([
    "/attack?target=203.0.113.7%2F32",
    "/attack?target=203.0.113.8%2F32",
    "/lan",
    "/lan",
  ]);
  expect(error).not.toHaveBeenCalled();
  error.mockRestore();
});
