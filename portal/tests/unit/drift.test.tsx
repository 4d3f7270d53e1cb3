// Drift: plan against switch, entry by entry.
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import type { DriftedEntry, Whoami } from "../../src/api/types";
import { SignedInAs } from "../../src/app/shell";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Drift } from "../../src/screens/drift";

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

const ENTRY: DriftedEntry = {
  kind: "flow",
  table: 6,
  priority: 100,
  number: null,
  matching: "in_port=3",
  difference: "removed",
  owner: "end",
  object: "nc-7",
  name: "aoba-tokyo",
};

const GROUP: DriftedEntry = {
  kind: "group",
  table: null,
  priority: null,
  number: 5,
  matching: null,
  difference: "changed",
  owner: null,
  object: null,
  name: null,
};

/** Answers with one switch in a state and its drift. */
function serve(state: string, error: string | null, drift: object) {
  const entry = { id: "sw-1", name: "otemachi-1", site: "Otemachi", state, error, can: [] };
  vi.stubGlobal("fetch", (request: Request) =>
    Promise.resolve(
      Response.json(request.url.includes("/sw-1/drift") ? drift : { items: [entry], next: null, total: 1 }),
    ),
  );
  render(
    <Localized language="en" messages={en}>
      <SignedInAs value={STAFF}>
        <QueryClientProvider client={newQueryClient()}>
          <Drift />
        </QueryClientProvider>
      </SignedInAs>
    </Localized>,
  );
}

afterEach(() => vi.unstubAllGlobals());

it("each entry that differs has its place, what is wrong, and whose it is", async () => {
  serve("drifted", "2 entries differ, and the engine sends nothing", {
    differing: 2,
    entries: [ENTRY, GROUP],
    findings: [],
  });
  await screen.findByText("2 entries differ now");
  screen.getByText("2 entries differ, and the engine sends nothing");
  const [, flow, group] = screen.getAllByRole("row").map((row) => within(row));
  flow?.getByText("Table 6, priority 100");
  flow?.getByText("in_port=3");
  flow?.getByText(en["drift.removed"]);
  flow?.getByText("nc-7");
  group?.getByText("Group 5");
  group?.getByText(en["drift.changed"]);
  group?.getByText(en["drift.noOwner"]);
});

it("a finding stays when the switch is mended, and says if somebody else has changed it", async () => {
  const finding = { differing: 1, entries: [ENTRY] };
  const mended = { ...finding, found_at: "2026-11-24T01:00:00Z", by_another: true, mended_at: "2026-11-24T01:00:05Z" };
  const open = { ...finding, found_at: "2026-11-24T02:00:00Z", by_another: false, mended_at: null };
  serve("in_sync", null, { differing: 0, entries: [], findings: [open, mended] });
  await screen.findByText(en["drift.none"]);
  screen.getByText(en["drift.byAnother"]);
  screen.getByText((text) => text.startsWith(en["drift.mended"]));
  screen.getByText(en["drift.atConnection"]);
  screen.getByText(en["drift.open"]);
  expect(screen.getAllByRole("table")).toHaveLength(2);
});

it("nothing is said about the content of a switch that is away", async () => {
  serve("unreachable", null, { differing: 0, entries: [], findings: [] });
  await screen.findByText(en["drift.away"]);
  expect(screen.queryByText(en["drift.none"])).toBeNull();
});
