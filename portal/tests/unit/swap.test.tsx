// The swap of a router: clocks that differ, and answers that are lost.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import type { End } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Macs } from "../../src/screens/lan.macs";

const OLD = { id: "mc-1", address: "02:00:00:00:64:00", valid_from: "2026-11-01T00:00:00Z", valid_until: null };
const NEW = "02:00:00:00:99:01";
const DAY = 86_400_000;

/** An engine that permits one address, and two while one of them ends within a day by the engine's clock. */
function engine(now: () => number) {
  const ends = new Map<string, string | null>([["mc-1", null]]);
  const done = new Map<string, Response>();
  const state = { ends, lost: 0, orders: [] as string[] };
  const check = (next: Map<string, string | null>) =>
    next.size < 2 ||
    (next.size === 2 && [...next.values()].some((end) => end !== null && Date.parse(end) - now() <= DAY));
  vi.stubGlobal("fetch", async (request: Request) => {
    if (request.method === "GET") return new Promise<Response>(() => {});
    const key = request.headers.get("idempotency-key") ?? "";
    const body = (await request.json()) as { address?: string; valid_until: string | null };
    const name = request.method === "PUT" ? "mc-1" : (body.address ?? "");
    const next = new Map(ends).set(name, body.valid_until);
    const isTaken = request.method === "POST" && ends.has(name);
    const answer =
      done.get(key) ??
      (isTaken || !check(next)
        ? Response.json(
            {
              type: "https://ix.example/problems/conflict",
              title: "",
              status: 409,
              detail: isTaken ? "taken" : "full",
            },
            { status: 409 },
          )
        : Response.json({ created: [], changed: [], plan: [] }));
    if (answer.ok && !done.has(key)) for (const [id, end] of next) ends.set(id, end);
    done.set(key, answer);
    state.orders.push(`${request.method} ${answer.status}`);
    if (request.method === "POST" && state.lost-- > 0) throw new TypeError("the network is gone");
    return answer.clone();
  });
  return state;
}

function swap() {
  const end = { id: "nc-1", macs: [OLD], can: ["add_mac"] } as unknown as End;
  render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={newQueryClient()}>
        <Macs end={end} max={1} />
      </QueryClientProvider>
    </Localized>,
  );
  fireEvent.click(screen.getByRole("button", { name: en["mac.swap"] }));
  fireEvent.change(document.querySelector("input#mac-new, #mac-new input") as HTMLInputElement, {
    target: { value: NEW },
  });
}
const dialog = () => document.querySelector("[role=dialog]");
const confirm = () => fireEvent.submit(dialog()?.querySelector("form") ?? document.body);

beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"] }));
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("a router is swapped also by a reader whose clock is fast", async () => {
  const { ends } = engine(() => Date.now() - 10_000);
  swap();
  confirm();
  await waitFor(() => expect(dialog()).toBeNull());
  expect([...ends.keys()]).toEqual(["mc-1", NEW]);
  expect([ends.get("mc-1"), ends.get(NEW)]).toEqual([expect.stringMatching(/Z$/), null]);
});

it("a swap whose answer was lost succeeds when it is sent again", async () => {
  const state = engine(() => Date.now());
  state.lost = 1;
  swap();
  confirm();
  await waitFor(() => expect(dialog()?.textContent).toContain(en["problem.network"]));
  expect(state.orders, "the end of the old address is not taken back").toEqual(["PUT 200", "POST 200"]);
  confirm();
  await waitFor(() => expect(dialog()).toBeNull());
  expect([...state.ends.keys()]).toEqual(["mc-1", NEW]);
});

it("a refused address takes the end of the old one back", async () => {
  const state = engine(() => Date.now());
  state.ends.set(NEW, null);
  state.ends.delete("mc-1");
  swap();
  confirm();
  await waitFor(() => expect(dialog()?.textContent).toContain("taken"));
  expect(state.orders).toEqual(["PUT 200", "POST 409", "PUT 409"]);
});
