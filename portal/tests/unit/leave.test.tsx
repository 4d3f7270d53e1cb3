// Leaving: an account leaves a LAN and a path of another account, and an administrator removes a person.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { order, peopleOrder } from "../../src/api/orders";
import { newQueryClient } from "../../src/api/queries";
import type { End, Service } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { protocolName } from "../../src/i18n/protocols";
import { Localized, useText } from "../../src/i18n/text";
import { People } from "../../src/screens/people";
import { Leave } from "../../src/ui/leave";

vi.mock("../../src/app/shell", () => ({
  useMe: () => ({
    user: "us-1",
    account: { id: "ac-1", name: "Aoba", asns: [] },
    roles: [],
    operator: false,
    can: ["create_user"],
  }),
}));

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const AOBA = { id: "ac-1", name: "Aoba", asns: [] };
const SUMIRE = { id: "ac-2", name: "Sumire", asns: [] };

function show(content: React.ReactNode, queries = newQueryClient()) {
  return render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>{content}</QueryClientProvider>
    </Localized>,
  );
}

/** Confirms the dialog that a button opens, and returns the dialog's text. */
function confirm(name: string): string {
  fireEvent.click(screen.getByRole("button", { name }));
  const dialog = screen.getByRole("dialog");
  const text = dialog.textContent;
  fireEvent.submit(dialog.querySelector("form") ?? document.body);
  return text;
}

const end = (can: string[]) =>
  ({
    id: "nc-7",
    account: AOBA,
    own: true,
    site: "Tokyo",
    connection: { id: "cn-1", name: "aoba-tokyo", ports: ["1"] },
    revision: 4,
    can,
  }) as unknown as End;
const service = (kind: string, account: typeof AOBA) =>
  ({ id: "sv-1", name: "backbone", kind, account }) as unknown as Service;

it("an account leaves a LAN by its own end, at the revision that it has read", async () => {
  const leave = vi.spyOn(order, "leave").mockResolvedValue({} as never);
  show(<Leave end={end(["delete_end"])} service={service("exchange_lan", SUMIRE)} />);
  expect(confirm(en["leave.act"])).toContain("aoba-tokyo");
  await waitFor(() => expect(leave).toHaveBeenCalledWith("nc-7", 4));
});

it("an account leaves a path that another account has ordered, and its name is said", async () => {
  const leave = vi.spyOn(order, "leave").mockResolvedValue({} as never);
  show(<Leave end={end(["delete_end"])} service={service("p2p_vc", SUMIRE)} />);
  expect(confirm(en["leave.act"])).toContain("Sumire");
  await waitFor(() => expect(leave).toHaveBeenCalledTimes(1));
});

it("an account does not leave its own path, which it deletes, nor an end of another", () => {
  show(
    <>
      <Leave end={end(["delete_end"])} service={service("p2p_vc", AOBA)} />
      <Leave end={end([])} service={service("exchange_lan", SUMIRE)} />
    </>,
  );
  expect(screen.queryByRole("button", { name: en["leave.act"] })).toBeNull();
});

it("an administrator removes a person of the account, and never himself", async () => {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  const remove = vi.spyOn(peopleOrder, "remove").mockResolvedValue({} as never);
  const user = (id: string, name: string) => ({
    id,
    name,
    account: AOBA,
    roles: ["member_tech"],
    email: null,
    revision: 9,
    can: ["update_user", "delete_user"],
  });
  const queries = newQueryClient();
  queries.setQueryData(["users"], [user("us-1", "ann"), user("us-2", "eve")]);
  show(<People />, queries);
  expect(screen.getAllByRole("button", { name: en["people.remove"] }).length).toBe(1);
  expect(confirm(en["people.remove"])).toContain("eve");
  await waitFor(() => expect(remove).toHaveBeenCalledWith("us-2", 9));
});

it("a protocol has its name, and a number without a name says that it is a protocol", () => {
  function Names() {
    const t = useText();
    return <p>{[17, 58, 47, 200].map((number) => protocolName(t, number)).join(", ")}</p>;
  }
  show(<Names />);
  screen.getByText("UDP, ICMPv6, GRE, protocol 200");
});
