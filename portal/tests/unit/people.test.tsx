// People by mail, and the pages that need no sign-in: links in letters, a forgotten password, letters of authorisation,
// the looking glass.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { noticeOrder, peopleOrder } from "../../src/api/orders";
import { newQueryClient } from "../../src/api/queries";
import type { Notice, User, Whoami } from "../../src/api/types";
import { SignedInAs } from "../../src/app/shell";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { NoticePanel } from "../../src/screens/notices";
import { UseLink } from "../../src/screens/link";
import { VerifyLetter } from "../../src/screens/letter";
import { LookingGlass } from "../../src/screens/lookingglass";
import { SignIn } from "../../src/screens/signin";
import { PersonActs } from "../../src/ui/persons";

vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  Link: ({ children }: { children: React.ReactNode }) => <a href="/">{children}</a>,
}));

/** The requests of a test: path and body. */
let asked: { path: string; body: unknown }[] = [];

/** Answers requests by their path; a path without an answer waits. */
function serve(answers: Record<string, () => Response>) {
  vi.stubGlobal("fetch", async (request: Request) => {
    const path = new URL(request.url).pathname;
    const body: unknown = request.method === "GET" ? null : await request.clone().json();
    asked.push({ path, body });
    return answers[path]?.() ?? new Promise<Response>(() => {});
  });
}

const problem = (status: number, code: string) => () =>
  Response.json(
    { type: "https://millrace.example/problems/x", title: "x", status, detail: `detail of ${code}`, code },
    { status, headers: { "content-type": "application/problem+json" } },
  );

const show = (content: React.ReactNode) =>
  render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={newQueryClient()}>{content}</QueryClientProvider>
    </Localized>,
  );

const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
const submit = () => fireEvent.submit(document.querySelector("form") ?? document.body);
const to = (path: string) => asked.filter((request) => request.path === path).map((request) => request.body);

beforeEach(() => {
  asked = [];
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  history.replaceState(null, "", "/");
});

const READ = "/api/v1/session/links/read";
const USE = "/api/v1/session/links/use";
const link =
  (kind: string, totp: unknown = null) =>
  () =>
    Response.json({ kind, name: "zoe", exchange: "Test IX", valid_until: "2036-12-01T00:00:00Z", totp });
const done = () => new Response(null, { status: 204 });

it("the token of a link leaves the address, and sets a password that is long enough", async () => {
  history.replaceState(null, "", "/link#TOKEN");
  serve({ [READ]: link("invitation"), [USE]: done });
  show(<UseLink />);
  await screen.findByDisplayValue("zoe");
  expect([location.pathname, location.hash]).toEqual(["/link", ""]);
  expect(to(READ)[0]).toEqual({ token: "TOKEN" });
  type(en["password.new"], "short");
  submit();
  await screen.findByText(en["password.short"]);
  expect(to(USE)).toEqual([]);
  type(en["password.new"], "a new horse battery");
  submit();
  await screen.findByText(en["link.done"]);
  expect(to(USE)).toEqual([{ token: "TOKEN", password: "a new horse battery", code: null }]);
});

it("a link for a second factor shows the secret, and wants the present password and a code", async () => {
  history.replaceState(null, "", "/link#TOKEN");
  serve({
    [READ]: link("second_factor", { secret: "GEZDGNBV", uri: "otpauth://totp/x" }),
    [USE]: problem(403, "wrong-credentials"),
  });
  show(<UseLink />);
  await screen.findByText("GEZDGNBV");
  submit();
  await screen.findByText(en["signin.passwordMissing"]);
  type(en["signin.password"], "old");
  type(en["signin.code"], "123 456");
  submit();
  await screen.findByText(en["problem.credentials"]);
  expect(to(USE)).toEqual([{ token: "TOKEN", password: "old", code: "123456" }]);
  expect(screen.queryByText(en["link.done"])).toBeNull();
});

it("a link that is over says so, and shows no form", async () => {
  history.replaceState(null, "", "/link#TOKEN");
  serve({ [READ]: problem(404, "link-over") });
  show(<UseLink />);
  await screen.findByText(en["problem.linkOver"]);
  expect(document.querySelector("form")).toBeNull();
});

it("a person who has lost the password asks for a letter, where the exchange sends mail", async () => {
  serve({
    "/api/v1/oidc": () => Response.json({ exchange: "Test IX", name: null, mail: true }),
    "/api/v1/session/forgotten": () => new Response(null, { status: 202 }),
  });
  show(<SignIn />);
  fireEvent.click(await screen.findByRole("button", { name: en["signin.forgotten"] }));
  const dialog = screen.getByRole("dialog");
  const field = dialog.querySelector("input");
  if (!field) throw new Error("the dialog has no field");
  fireEvent.change(field, { target: { value: " zoe " } });
  fireEvent.submit(dialog.querySelector("form") ?? document.body);
  await screen.findByText(en["signin.asked"]);
  expect(to("/api/v1/session/forgotten")).toEqual([{ name: "zoe" }]);
});

it("an exchange without mail offers no letter at the sign-in", async () => {
  serve({ "/api/v1/oidc": () => Response.json({ exchange: "Test IX", name: null, mail: false }) });
  show(<SignIn />);
  await screen.findByText(/Test IX · /);
  expect(screen.queryByRole("button", { name: en["signin.forgotten"] })).toBeNull();
});

it("a data centre verifies the code of a letter, and learns that it is over", async () => {
  history.replaceState(null, "", "/letter#ABCD-EFGH");
  const valid = {
    exchange: "Test IX",
    number: "7",
    member: "Aoba Networks",
    site: "Otemachi",
    demarcation: "rack 3",
    valid_until: "2036-12-01T00:00:00Z",
  };
  let answer = () => Response.json(valid);
  serve({ "/api/v1/letters": () => answer() });
  show(<VerifyLetter />);
  submit();
  await screen.findByText("Aoba Networks");
  expect(to("/api/v1/letters")).toEqual([{ code: "ABCD-EFGH" }]);
  answer = problem(404, "no-letter");
  submit();
  await screen.findByText(en["problem.noLetter"]);
  expect(screen.queryByText("Aoba Networks")).toBeNull();
});

it("the looking glass is filtered by what one types: number, member, address, prefix", async () => {
  const session = (asn: number, member: string, address: string, rejected: string[]) => ({
    asn,
    member,
    address,
    established: true,
    accepted: 3,
    rejected: rejected.map((prefix) => ({
      prefix,
      as_path: String(asn),
      causes: [{ community: null, text: "a bogon", coded: [] }],
      rpki: null,
      irr: null,
    })),
    truncated: false,
  });
  const sessions = [
    session(64500, "Aoba Networks", "198.51.100.10", ["192.0.2.0/25"]),
    session(64501, "Baikal Telecom", "198.51.100.11", []),
  ];
  serve({
    "/api/v1/looking-glass": () =>
      Response.json({
        exchange: "Test IX",
        route_servers: [
          {
            name: "rs1.ix.example",
            asn: 64999,
            lan: "Tokyo",
            state: "fresh",
            read_at: "2026-11-24T01:00:00Z",
            sessions,
          },
        ],
      }),
  });
  show(<LookingGlass />);
  await screen.findByText("Aoba Networks");
  for (const [text, members] of [
    ["AS64501", ["Baikal Telecom"]],
    ["aoba", ["Aoba Networks"]],
    ["100.11", ["Baikal Telecom"]],
    ["192.0.2.0", ["Aoba Networks"]],
    ["", ["Aoba Networks", "Baikal Telecom"]],
  ] as [string, string[]][]) {
    fireEvent.change(screen.getByRole("searchbox"), { target: { value: text } });
    expect(
      ["Aoba Networks", "Baikal Telecom"].filter((name) => screen.queryByText(name) !== null),
      text,
    ).toEqual(members);
  }
});

it("the staff ends an incident that is under way, and nothing else changes", async () => {
  const incident: Notice = {
    id: "no-7",
    kind: "incident",
    title: "Power",
    about: "Otemachi",
    begins: "2026-11-24T01:00:00Z",
    ends: null,
    state: "running",
    public: true,
    touches: [],
    objects: [{ id: "st-1", name: "Otemachi" }],
    members: [],
    sequence: 0,
    can: ["write_notice"],
  };
  const change = vi.spyOn(noticeOrder, "change").mockResolvedValue({} as never);
  for (const notice of [
    { ...incident, state: "planned" },
    { ...incident, state: "over" },
    { ...incident, can: [] },
  ]) {
    const shown = show(<NoticePanel notice={notice} />);
    expect(screen.queryByRole("button", { name: en["notice.end"] }), JSON.stringify(notice)).toBeNull();
    shown.unmount();
  }
  show(<NoticePanel notice={incident} />);
  fireEvent.click(screen.getByRole("button", { name: en["notice.end"] }));
  const before = Date.now();
  fireEvent.submit((await screen.findByRole("dialog")).querySelector("form") ?? document.body);
  await waitFor(() => expect(change).toHaveBeenCalled());
  const [id, body] = change.mock.calls[0] ?? [];
  expect([id, body]).toEqual([
    "no-7",
    {
      kind: "incident",
      title: "Power",
      about: "Otemachi",
      begins: incident.begins,
      ends: expect.any(String),
      objects: ["st-1"],
      public: true,
    },
  ]);
  const ends = Date.parse(body?.ends ?? "");
  expect(ends).toBeGreaterThanOrEqual(before);
  expect(ends).toBeLessThanOrEqual(Date.now());
});

it("an administrator sends a link to a person and deactivates another one, and never himself", async () => {
  serve({});
  const me: Whoami = {
    user: "us-1",
    name: "ann",
    account: { id: "ac-1", name: "Aoba", asns: [] },
    roles: ["member_admin"],
    operator: false,
    can: [],
    language: null,
    exchange: "IX",
  };
  const user = (id: string, name: string, more: Partial<User> = {}): User => ({
    id,
    name,
    account: me.account,
    roles: ["member_tech"],
    email: `${name}@aoba.example`,
    deactivated: false,
    revision: 9,
    can: ["update_user", "delete_user"],
    ...more,
  });
  const change = vi.spyOn(peopleOrder, "change").mockResolvedValue({} as never);
  const send = vi.spyOn(peopleOrder, "link").mockResolvedValue(undefined as never);
  const acts = (one: User) =>
    show(
      <SignedInAs value={me}>
        <PersonActs user={one} />
      </SignedInAs>,
    );
  const confirm = async (name: string) => {
    fireEvent.click(await screen.findByRole("button", { name }));
    const dialog = await screen.findByRole("dialog");
    fireEvent.submit(dialog.querySelector("form") ?? document.body);
  };
  const own = acts(user("us-1", "ann"));
  expect(screen.queryByRole("button", { name: en["people.deactivate"] })).toBeNull();
  expect(screen.queryByRole("button", { name: en["people.remove"] })).toBeNull();
  own.unmount();
  const other = acts(user("us-2", "zoe"));
  await confirm(en["people.send"]);
  await waitFor(() => expect(send).toHaveBeenCalledWith("us-2", "invitation"));
  await screen.findByText(en["people.sent"].replace("{name}", "zoe"));
  await confirm(en["people.deactivate"]);
  await waitFor(() => expect(change).toHaveBeenCalledWith("us-2", 9, { deactivated: true }));
  other.unmount();
  acts(user("us-3", "max", { deactivated: true }));
  expect(screen.queryByRole("button", { name: en["people.send"] })).toBeNull();
  await confirm(en["people.activate"]);
  await waitFor(() => expect(change).toHaveBeenCalledWith("us-3", 9, { deactivated: false }));
});
