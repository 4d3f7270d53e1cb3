// What a screen reader hears and a keyboard does, which axe-core cannot see.
import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/api/problem";
import { newQueryClient } from "../../src/api/queries";
import type { Change } from "../../src/api/types";
import { StaleBanner } from "../../src/app/shell";
import { Shortcuts } from "../../src/app/shortcuts";
import { setSingleKeys } from "../../src/app/singlekeys";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { AwaitsConfirmation } from "../../src/ui/confirmation";
import { Loaded } from "../../src/ui/loaded";

const { live } = vi.hoisted(() => ({ live: { connected: false, since: 0 } }));
vi.mock("../../src/api/live", () => ({ useLive: () => live, LiveUpdates: () => null }));
vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => () => {},
}));

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    <QueryClientProvider client={newQueryClient()}>{children}</QueryClientProvider>
  </Localized>
);

describe("a live region", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("says its sentence once, while the time beside it passes", async () => {
    live.since = Date.now() - 10_000;
    const change = {
      id: "ch-1",
      operation: "drain_trunk",
      confirm_until: new Date(Date.now() + 60_000).toISOString(),
      can_confirm: false,
    } as unknown as Change;
    const query = {
      data: 1,
      isError: true,
      error: new RequestError(undefined),
      dataUpdatedAt: Date.now() - 10_000,
      refetch: () => {},
    } as never;
    const { container } = render(
      <>
        <StaleBanner />
        <AwaitsConfirmation change={change} />
        <Loaded query={query}>{() => null}</Loaded>
      </>,
      { wrapper },
    );
    const spoken = () =>
      [...container.querySelectorAll("[role=status], [role=alert]")].map((region) => region.textContent);
    const [before, text] = [spoken(), container.textContent];
    expect(before.length).toBe(3);
    await act(() => vi.advanceTimersByTimeAsync(3_000));
    expect(spoken()).toEqual(before);
    expect(container.textContent, "the times pass").not.toBe(text);
  });
});

it("shortcuts of one key can be turned off", () => {
  const search = vi.fn();
  render(<Shortcuts jumps={[]} onSearch={search} />, { wrapper });
  const press = () => fireEvent.keyDown(window, { key: "/" });
  act(() => setSingleKeys(false));
  press();
  expect([search.mock.calls.length, localStorage.getItem("shortcuts")]).toEqual([0, "off"]);
  act(() => setSingleKeys(true));
  press();
  expect(search).toHaveBeenCalledOnce();
});
