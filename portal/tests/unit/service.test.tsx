// The page of a service: what belongs to one service is not shown at another one.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { order } from "../../src/api/orders";
import { newQueryClient } from "../../src/api/queries";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Service } from "../../src/screens/service";

const { address } = vi.hoisted(() => ({ address: { id: "sv-1" } }));
vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  Link: ({ children }: { children: React.ReactNode }) => <a href="/">{children}</a>,
  useNavigate: () => () => {},
  useSearch: () => ({}),
  useParams: () => address,
}));
vi.mock("../../src/app/shell", () => ({
  useIsStaff: () => false,
  useMe: () => ({ user: "us-1", account: { id: "ac-1", name: "Aoba", asns: [] }, roles: [], operator: false, can: [] }),
}));

afterEach(() => vi.unstubAllGlobals());

it("the secret of a service key is not shown at another service", async () => {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  const service = (id: string) => ({
    id,
    name: `name of ${id}`,
    kind: "p2p_vc",
    state: "waiting",
    account: { id: "ac-1", name: "Aoba", asns: [] },
    peer: null,
    consent: null,
    locked_by: null,
    ends: [],
    path: [],
    stages: [],
    status: [],
    networks: [],
    rules: null,
    revision: 1,
    can: ["create_service_key"],
  });
  const queries = newQueryClient();
  for (const id of ["sv-1", "sv-2"]) queries.setQueryData(["services", id], service(id));
  const make = vi
    .spyOn(order, "key")
    .mockResolvedValue({ created: [], changed: [], plan: [], secret: "s3cret" } as never);
  const page = () => (
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Service />
      </QueryClientProvider>
    </Localized>
  );
  const { container, rerender } = render(page());
  fireEvent.click(screen.getByRole("button", { name: en["service.makeKey"] }));
  fireEvent.submit(screen.getByRole("dialog").querySelector("form") ?? document.body);
  await screen.findByText("s3cret");
  address.id = "sv-2";
  rerender(page());
  expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("name of sv-2");
  expect(container.querySelector(".secret")).toBeNull();
  make.mockRestore();
});

it("an invited account sees the ordered rate before it accepts", () => {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  const end = {
    id: "nc-1",
    service: "sv-9",
    account: { id: "ac-2", name: "Sumire", asns: [] },
    own: false,
    site: "Tokyo",
    connection: null,
    vlan: null,
    vlan_text: null,
    capacity_mbps: 200,
    shut_down: false,
    macs: [],
    ips: [],
    checklist: null,
    quarantine: "not_needed",
    revision: 1,
    can: [],
  };
  const service = {
    id: "sv-9",
    name: "tokyo-osaka",
    kind: "p2p_vc",
    state: "requested",
    account: end.account,
    peer: { id: "ac-1", name: "Aoba", asns: [] },
    consent: "pending",
    locked_by: null,
    ends: [end],
    path: [],
    stages: [],
    status: [],
    networks: [],
    rules: null,
    revision: 1,
    can: ["accept", "refuse"],
  };
  const queries = newQueryClient();
  queries.setQueryData(["services", "sv-9"], service);
  queries.setQueryData(["connections"], []);
  address.id = "sv-9";
  const { container } = render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Service />
      </QueryClientProvider>
    </Localized>,
  );
  expect(container.querySelector(".notice")?.textContent).toContain(`${en["service.orderedRate"]}200\u00a0Mbit/s`);
  fireEvent.click(screen.getByRole("button", { name: en["service.accept"] }));
  expect(
    screen.getByLabelText<HTMLInputElement>(en["end.rate"], { exact: false }).value,
    "the same rate is proposed",
  ).toBe("200");
});

it("a service about which nothing can be done has no panel of acts", () => {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  const account = { id: "ac-2", name: "Sumire", asns: [] };
  const service = {
    id: "sv-5",
    name: "left",
    kind: "p2p_vc",
    state: "allocated",
    account,
    peer: { id: "ac-1", name: "Aoba", asns: [] },
    consent: "accepted",
    locked_by: null,
    ends: [],
    path: [],
    stages: [],
    status: [],
    networks: [],
    rules: null,
    revision: 1,
    can: [],
  };
  const queries = newQueryClient();
  queries.setQueryData(["services", "sv-5"], service);
  address.id = "sv-5";
  render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Service />
      </QueryClientProvider>
    </Localized>,
  );
  expect(screen.queryByText(en["service.acts"])).toBeNull();
});
