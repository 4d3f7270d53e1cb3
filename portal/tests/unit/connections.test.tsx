// The page of connections: rates have the words of the reader's own router, and what is unknown is not green.
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { newQueryClient, observedConnections } from "../../src/api/queries";
import type { Connection } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import ja from "../../src/i18n/ja.json";
import ko from "../../src/i18n/ko.json";
import { Localized } from "../../src/i18n/text";
import { Connections } from "../../src/screens/connections";

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => () => {},
  useSearch: () => ({}),
  Link: ({ children }: { children: React.ReactNode }) => <a href="/">{children}</a>,
}));
vi.mock("../../src/app/shell", () => ({
  useIsStaff: () => false,
  useMe: () => ({ user: "us-1", account: { id: "ac-1", name: "Aoba", asns: [] }, roles: [], operator: false, can: [] }),
}));

afterEach(() => vi.unstubAllGlobals());

const CONNECTION: Connection = {
  id: "cn-1",
  name: "aoba-ote",
  account: { id: "ac-1", name: "Aoba", asns: [] },
  kind: "standalone",
  site: "Otemachi",
  ports: [{ id: "sw-1:3", switch: "ote-1", site: "Otemachi", number: 3, speed_mbps: 10_000, up: null }],
  state: "production",
  speed_mbps: 10_000,
  reserved_mbps: 0,
  ends: 1,
  load: { in_bps: 3e9, out_bps: 7e6 },
  locked_by: null,
  revision: 1,
  can: [],
};

function page(connection: Connection) {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  const queries = newQueryClient();
  queries.setQueryData(observedConnections.queryKey, [connection]);
  return render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Connections />
      </QueryClientProvider>
    </Localized>,
  );
}

const fact = (term: string) => screen.getByText(term).nextElementSibling;

it("what enters the exchange is what the router sends, and what leaves is what it receives", () => {
  page(CONNECTION);
  expect(fact(en["connection.in"])?.textContent).toBe("3\u00a0Gbit/s");
  expect(fact(en["connection.out"])?.textContent).toBe("7\u00a0Mbit/s");
  expect([en["connection.in"], en["connection.out"]]).toEqual(["Sent by the router", "Received by the router"]);
  // "In" and "out" have two sides: no word of the pages is one of them alone.
  const sides = /^(in|out|入力|出力|입력|출력|수신|송신|受信|送信)$/i;
  for (const messages of [en, ja, ko]) expect(Object.values(messages).filter((text) => sides.test(text))).toEqual([]);
});

it("a port whose switch does not answer is neither up nor down", () => {
  const { container } = page(CONNECTION);
  const port = fact(en["connection.port"].replace("{number}", "3"));
  expect(port?.querySelector(".state")?.getAttribute("data-tone")).toBe("off");
  expect(port?.textContent).toContain(en["state.unknown"]);
  expect(container.querySelector('.facts [data-tone="ok"]')).toBeNull();
});
