// The journal of changes: its pages.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import type { Whoami } from "../../src/api/types";
import { SignedInAs } from "../../src/app/shell";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Changes } from "../../src/screens/changes";

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  Link: ({ children }: { children: React.ReactNode }) => <a href="/">{children}</a>,
}));

const STAFF: Whoami = {
  user: "us-1",
  name: "ops",
  account: { id: "ac-1", name: "IX", asns: [] },
  roles: [],
  operator: true,
  can: [],
  language: null,
  exchange: "IX",
};

const page = (queries: ReturnType<typeof newQueryClient>, shown: React.ReactNode) => (
  <Localized language="en" messages={en}>
    <SignedInAs value={STAFF}>
      <QueryClientProvider client={queries}>{shown}</QueryClientProvider>
    </SignedInAs>
  </Localized>
);

afterEach(() => vi.unstubAllGlobals());

it("the journal of changes goes on behind its first page, and back to the newest", async () => {
  const change = (id: string) => ({
    id,
    operation: "set_rate",
    actor: "us-1",
    objects: [],
    state: "cleaned",
    accepted_at: "2026-11-24T01:00:00Z",
    updated_at: "2026-11-24T01:00:00Z",
    waiting_for: [],
    error: null,
    confirm_until: null,
  });
  vi.stubGlobal("fetch", (request: Request) => {
    const after = new URL(request.url).searchParams.get("after");
    return Promise.resolve(
      Response.json(
        after === "c2"
          ? { items: [change("ch-1")], next: null, total: 2 }
          : { items: [change("ch-2")], next: "c2", total: 2 },
      ),
    );
  });
  render(page(newQueryClient(), <Changes />));
  await screen.findByText("ch-2");
  expect(screen.queryByRole("button", { name: en["audit.newest"] })).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: en["audit.older"] }));
  await screen.findByText("ch-1");
  expect(screen.queryByRole("button", { name: en["audit.older"] })).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: en["audit.newest"] }));
  await screen.findByText("ch-2");
});
