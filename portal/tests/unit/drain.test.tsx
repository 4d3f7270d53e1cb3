// The drain of a trunk: its effect and its dry run.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { RequestError } from "../../src/api/problem";
import { order } from "../../src/api/orders";
import { newQueryClient } from "../../src/api/queries";
import type { Impact, Trunk } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { DrainTrunk } from "../../src/screens/fabric.drain";

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  Link: ({ children }: { children: React.ReactNode }) => <a href="/">{children}</a>,
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

afterEach(() => vi.unstubAllGlobals());

it("a drain is confirmed when its effect is known, and says why a dry run is refused", async () => {
  const impact: Impact = {
    services: [],
    members: [],
    carrier: null,
    contracted_mbps: 0,
    capacity_mbps: 0,
  } as unknown as Impact;
  let answer: (response: Response) => void = () => {};
  vi.stubGlobal("fetch", () => new Promise<Response>((resolve) => (answer = resolve)));
  const drain = vi.spyOn(order, "drain").mockRejectedValue(failure);
  const trunk = {
    id: "tr-1",
    name: "t1",
    drained: false,
    services: 3,
    revision: 1,
    can: ["drain_trunk"],
  } as unknown as Trunk;
  render(page(newQueryClient(), <DrainTrunk trunk={trunk} />));
  fireEvent.click(screen.getByRole("button", { name: en["fabric.drain"] }));
  expect((await screen.findByRole("alert")).textContent).toContain(en["problem.unavailable"].split("{")[0]);
  const confirm = () => fireEvent.submit(screen.getByRole("dialog").querySelector("form") ?? document.body);
  confirm();
  expect(
    drain.mock.calls.map(([, , , , dryRun]) => dryRun),
    "only the dry run was ordered",
  ).toEqual([true]);
  answer(Response.json(impact));
  await waitFor(() => {
    confirm();
    expect(drain.mock.calls.length).toBeGreaterThan(1);
  });
  drain.mockRestore();
});

it("an open dialog keeps its act and its revision when another operator is faster", async () => {
  vi.stubGlobal("fetch", () =>
    Promise.resolve(Response.json({ services: [], members: [], carrier: null, contracted_mbps: 0, capacity_mbps: 0 })),
  );
  const drain = vi.spyOn(order, "drain").mockResolvedValue({ created: [], changed: [], plan: [] } as never);
  const trunk = {
    id: "tr-1",
    name: "t1",
    drained: false,
    services: 3,
    revision: 1,
    can: ["drain_trunk"],
  } as unknown as Trunk;
  const drained = { ...trunk, drained: true, revision: 2 };
  const queries = newQueryClient();
  const { rerender } = render(page(queries, <DrainTrunk trunk={trunk} />));
  fireEvent.click(screen.getByRole("button", { name: en["fabric.drain"] }));
  const title = screen.getByRole("heading").textContent;
  rerender(page(queries, <DrainTrunk trunk={drained} />));
  expect(screen.getByRole("heading").textContent).toBe(title);
  await waitFor(() => {
    fireEvent.submit(screen.getByRole("dialog").querySelector("form") ?? document.body);
    expect(drain.mock.calls.length).toBeGreaterThan(1);
  });
  expect(drain.mock.calls.at(-1)).toEqual(["tr-1", 1, true, 0]);
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  screen.getByRole("button", { name: en["fabric.undrain"] });
  drain.mockRestore();
});
