// The audit chain: a read that nobody waits for any more ends.
import { QueryClientProvider } from "@tanstack/react-query";
import { render, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Audit } from "../../src/screens/audit";

const { address } = vi.hoisted(() => ({ address: { search: { actor: "al" } } }));
vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => () => {},
  useSearch: () => address.search,
}));

afterEach(() => vi.unstubAllGlobals());

it("a search of the audit chain ends when another one begins, and when the screen is left", async () => {
  const asked: Request[] = [];
  // Each request looks at a part of the chain and finds nothing, so that another one follows.
  vi.stubGlobal("fetch", (request: Request) => {
    asked.push(request);
    if (asked.length % 3 !== 0)
      return Promise.resolve(Response.json({ items: [], next: String(asked.length), total: 0 }));
    return new Promise((_, reject) =>
      request.signal.addEventListener("abort", () => reject(new DOMException("", "AbortError"))),
    );
  });
  const queries = newQueryClient();
  const page = () => (
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Audit />
      </QueryClientProvider>
    </Localized>
  );
  const { rerender, unmount } = render(page());
  await waitFor(() => expect(asked.length).toBe(3));
  address.search = { actor: "alice" };
  rerender(page());
  await waitFor(() => expect(asked.length).toBe(6));
  expect([asked[2]?.signal.aborted, asked[5]?.signal.aborted]).toEqual([true, false]);
  unmount();
  expect(asked[5]?.signal.aborted).toBe(true);
});
