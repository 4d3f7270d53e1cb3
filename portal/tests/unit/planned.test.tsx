// What an order would do: the frames that take other ways, and the filters that a new one meets.
import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";

import { filterOrder } from "../../src/api/orders";
import { newQueryClient } from "../../src/api/queries";
import type { Ordered } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { ManualFilter } from "../../src/ui/manualfilter";
import { Planned } from "../../src/ui/planned";

const outcome = {
  dry_run: true,
  change: null,
  created: [],
  changed: [],
  deleted: [],
  plan: [],
  effects: [],
  conflicts: [],
  vlan: null,
  secret: null,
} as Ordered;

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    <QueryClientProvider client={newQueryClient()}>{children}</QueryClientProvider>
  </Localized>
);

it("a dry run shows the frames that take other ways, ten at once and the others on request", () => {
  const effects = Array.from(
    { length: 13 },
    (_, number) => `VLAN ${number}: before, they are dropped; after, they leave`,
  );
  const { container, rerender } = render(<Planned outcome={{ ...outcome, effects }} />, { wrapper });
  expect(screen.getByText(en["plan.effects"])).toBeTruthy();
  expect(container.querySelectorAll("details li")).toHaveLength(3);
  expect(container.querySelectorAll("li")).toHaveLength(13);
  expect(screen.getByText("3 more")).toBeTruthy();
  rerender(<Planned outcome={outcome} />);
  expect(screen.queryByText(en["plan.effects"])).toBeNull();
});

it("a new filter that meets another one is made when it is confirmed again", async () => {
  const text = "the filter of packets to 203.0.113.0/24 matches the same packets already";
  const conflicts = [
    {
      relation: "identical",
      filter: "fi-1",
      text,
      coded: [{ code: "filter-identical", values: { filter: "the filter of packets to 203.0.113.0/24" } }],
    },
  ];
  const tried = vi.spyOn(filterOrder, "tried").mockResolvedValue({ ...outcome, conflicts });
  const make = vi.fn(() => Promise.resolve());
  render(<ManualFilter destination="203.0.113.0/24" make={make} label="Filter" />, { wrapper });
  fireEvent.click(screen.getByText("Filter"));
  const confirm = () => act(async () => fireEvent.submit(document.querySelector("form") as HTMLFormElement));
  await confirm();
  expect(screen.getByText(text)).toBeTruthy();
  expect(screen.getByText(en["filterForm.conflicts"])).toBeTruthy();
  expect(make).not.toHaveBeenCalled();
  await confirm();
  expect(make).toHaveBeenCalledTimes(1);
  expect(tried).toHaveBeenCalledTimes(1);
});
