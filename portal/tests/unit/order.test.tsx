// The order of a path: the search for the member at its other end.
import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { OrderPath } from "../../src/screens/order";

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => () => {},
}));
vi.mock("../../src/app/shell", () => ({
  useMe: () => ({ user: "us-1", account: { id: "ac-1", name: "Aoba", asns: [] }, roles: [], operator: false, can: [] }),
}));

const members = ["Baikal", "Cirrus", "Delta"].map((name, number) => ({
  id: `ac-${number + 2}`,
  name,
  kind: "member",
  asns: [64501 + number],
}));

function page(isRead = true) {
  const queries = newQueryClient();
  if (isRead) queries.setQueryData(["accounts"], members);
  queries.setQueryData(["connections"], []);
  return (
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <OrderPath />
      </QueryClientProvider>
    </Localized>
  );
}
const field = () => document.querySelector("input[role=combobox]") as HTMLInputElement;
// A query by role computes the style of every element, which takes seconds in a loaded machine.
const shown = () =>
  [...document.querySelectorAll("[role=option]")].map((option) => option.querySelector("[slot=label]")?.textContent);
const kept = () =>
  JSON.parse(localStorage.getItem("order us-1") ?? "null") as { peer: string; peerText: string } | null;

beforeEach(() => void vi.stubGlobal("fetch", () => new Promise(() => {})));
afterEach(() => {
  vi.unstubAllGlobals();
  localStorage.clear();
});

it("the list has the members that are typed, by name or AS number, and Enter takes the first of them", () => {
  render(page());
  act(() => field().focus());
  fireEvent.change(field(), { target: { value: "as6450" } });
  expect(shown()).toEqual(["Baikal", "Cirrus", "Delta"]);
  fireEvent.change(field(), { target: { value: "delt" } });
  expect(shown()).toEqual(["Delta"]);
  fireEvent.keyDown(field(), { key: "ArrowDown" });
  fireEvent.keyDown(field(), { key: "Enter" });
  expect(kept()).toMatchObject({ peer: "ac-4", peerText: "Delta" });
});

it("a member that is typed in full is kept when the focus leaves the field", () => {
  render(page());
  act(() => field().focus());
  fireEvent.change(field(), { target: { value: "AS64502" } });
  act(() => field().blur());
  expect([field().value, kept()?.peer]).toEqual(["Cirrus", "ac-3"]);
});

it("a text that is no member is removed when the focus leaves the field", () => {
  render(page());
  act(() => field().focus());
  fireEvent.change(field(), { target: { value: "Del" } });
  act(() => field().blur());
  expect([field().value, kept()?.peer]).toEqual(["", ""]);
});

it.each([true, false])(
  "a kept draft keeps its member when the focus passes the field (members are read: %s)",
  (isRead) => {
    localStorage.setItem("order us-1", JSON.stringify({ peer: "ac-3", peerText: "Cirrus" }));
    render(page(isRead));
    act(() => field().focus());
    act(() => field().blur());
    expect([field().value, kept()?.peer]).toEqual(["Cirrus", "ac-3"]);
  },
);

it("a cleared form does not bring the former member back", () => {
  render(page());
  act(() => field().focus());
  fireEvent.change(field(), { target: { value: "Delta" } });
  fireEvent.keyDown(field(), { key: "ArrowDown" });
  fireEvent.keyDown(field(), { key: "Enter" });
  act(() => field().blur());
  fireEvent.click(screen.getByText(en["order.clear"]));
  act(() => field().focus());
  act(() => field().blur());
  expect(field().value).toBe("");
});
