import { fireEvent, render, screen, act } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";

import type { Whoami } from "../../src/api/types";
import { navigation } from "../../src/app/shell";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { parseAttackSearch } from "../../src/screens/attack.search";
import { isMac } from "../../src/screens/lan.macs";
import { QuarantineChecklist } from "../../src/screens/lan.quarantine";
import { MinuteChart } from "../../src/ui/chart";
import { EMPTY_FILTER, filterOf, parsePorts } from "../../src/ui/filterform";
import { UndoBar } from "../../src/ui/undo";

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    {children}
  </Localized>
);

describe("the form of a filter", () => {
  it("reads ports and ranges, and refuses what is none", () => {
    expect(parsePorts("")).toEqual([]);
    expect(parsePorts("53, 1024-2048")).toEqual([
      { first: 53, last: 53 },
      { first: 1024, last: 2048 },
    ]);
    for (const wrong of ["x", "5-4", "70000", "1,,2", "-5"]) expect(parsePorts(wrong), wrong).toBeUndefined();
  });

  it("orders what was typed: numbers of protocols, rates in kbit/s, no empty texts", () => {
    const order = filterOf({
      ...EMPTY_FILTER,
      destination: " 203.0.113.7 ",
      protocol: "udp",
      sourcePorts: "123",
      action: "shape",
      rate: "5",
    });
    expect(order).toMatchObject({
      destination: "203.0.113.7",
      protocol: 17,
      source: null,
      comment: null,
      fragment: null,
      rate_kbps: 5000,
      minutes: 60,
    });
    expect(filterOf({ ...EMPTY_FILTER, destination: "x", rate: "5" }).rate_kbps, "only a limit has a rate").toBeNull();
  });
});

it("MAC addresses are six pairs of hexadecimal digits", () => {
  expect([isMac("02:00:5e:00:53:01"), isMac(" 02-00-5E-00-53-01 ")]).toEqual([true, true]);
  expect(["0200.5e00.5301", "0200-5e00-5301", "02005E005301"].map(isMac)).toEqual([true, true, true]);
  expect([isMac("02:00:5e:00:53"), isMac("02:00:5e:00:53:0g"), isMac("")]).toEqual([false, false, false]);
});

it("the target of an address is text and nothing else", () => {
  expect(parseAttackSearch({ target: "203.0.113.7/32", other: 1 })).toEqual({ target: "203.0.113.7/32" });
  expect(parseAttackSearch({ target: ["x"] })).toEqual({});
});

it("the navigation shows what the roles permit", () => {
  const me = (can: string[], operator = false): Whoami => ({
    user: "us-1",
    name: "x",
    account: { id: "ac-1", name: "A", asns: [] },
    roles: [],
    operator,
    can,
    language: null,
    exchange: "X",
  });
  const addresses = (who: Whoami) => navigation(who).flatMap((group) => group.entries.map((entry) => entry.to));
  expect(addresses(me(["read_samples", "read_filter", "create_service"]))).toEqual(
    expect.arrayContaining(["/attack", "/filters", "/order", "/lan", "/keys"]),
  );
  expect(addresses(me([])), "billing has neither").not.toEqual(expect.arrayContaining(["/attack"]));
  expect(addresses(me(["approve"], true))).toContain("/approvals");
  const regulator = { ...me(["read_audit"]), roles: ["regulator"] };
  expect(addresses(regulator), "the fabric is not read by a regulator").toEqual([
    "/audit",
    "/status",
    "/notices",
    "/policies",
  ]);
  const letters = navigation(
    me(["read_samples", "read_filter", "create_service", "approve", "read_audit"], true),
  ).flatMap((group) => group.entries.map((entry) => entry.letter));
  expect(new Set(letters).size, "each letter leads to one screen").toBe(letters.length);
});

it("the line of minutes says its peak in a sentence, and the table has every minute", () => {
  const minutes = [0, 1, 2].map((number) => ({
    at: `2026-11-24T01:0${number}:00.000Z`,
    passed_bps: number * 1e9,
    dropped_bps: number === 2 ? 3e9 : 0,
  }));
  render(<MinuteChart minutes={minutes} usual={5e8} />, { wrapper });
  expect(screen.getByRole("img").getAttribute("aria-label")).toContain("5\u00a0Gbit/s");
  expect(screen.getAllByRole("row").length).toBe(4);
});

it("a failing check stands first and says how to mend it", () => {
  const list = {
    clean_since: new Date().toISOString(),
    ends: new Date(Date.now() + 900_000).toISOString(),
    seconds: 900,
    seen: true,
    checks: [
      { check: "mac", state: "clean" },
      { check: "lldp", state: "failing" },
    ],
    findings: [
      { at: new Date().toISOString(), check: "lldp", text: "LLDP", coded: [], frame: "0180c200000e0200", count: 3 },
    ],
  };
  render(<QuarantineChecklist list={list} />, { wrapper });
  const checks = screen.getByRole("list", { name: en["quarantine.checks"] });
  expect(checks.firstElementChild?.textContent).toContain(en["check.lldpFix"]);
  expect(document.querySelector("pre")?.textContent).toBe("0000  01 80 c2 00 00 0e 02 00");
});

it("a check of which no frame was seen is neither passed nor failed, and nothing says that frames flow", () => {
  const list = {
    clean_since: new Date().toISOString(),
    ends: new Date(Date.now() + 900_000).toISOString(),
    seconds: 900,
    seen: false,
    checks: ["mac", "tag", "lldp"].map((check) => ({ check, state: "unchecked" })),
    findings: [],
  };
  const { container } = render(<QuarantineChecklist list={list} />, { wrapper });
  const checks = screen.getByRole("list", { name: en["quarantine.checks"] });
  const tones = [...checks.querySelectorAll("[data-tone]")].map((state) => [
    state.getAttribute("data-tone"),
    state.textContent,
  ]);
  expect(tones).toEqual(list.checks.map(() => ["off", en["check.unchecked"]]));
  const notice = container.querySelector(".notice");
  expect(notice?.getAttribute("data-tone"), "neither green nor red").toBe("wait");
  expect(notice?.textContent).toContain("No frame of this end was seen yet");
  expect(container.textContent).not.toMatch(/fails|frames? flows?/i);
});

it("an act is taken back within 30 seconds, and the offer ends by itself", async () => {
  vi.useFakeTimers();
  const undo = vi.fn().mockResolvedValue(undefined);
  const gone = vi.fn();
  render(<UndoBar done={{ sentence: "Done.", undo, at: Date.now() }} onGone={gone} />, { wrapper });
  fireEvent.click(screen.getByRole("button"));
  expect(undo).toHaveBeenCalledOnce();
  await act(() => vi.advanceTimersByTimeAsync(31_000));
  expect(gone).toHaveBeenCalled();
  vi.useRealTimers();
});

it("an act that is being taken back does not end meanwhile, and one that failed can be tried again", async () => {
  vi.useFakeTimers();
  const answers: { resolve: () => void; reject: (error: Error) => void }[] = [];
  const undo = vi.fn(() => new Promise<void>((resolve, reject) => answers.push({ resolve, reject })));
  const gone = vi.fn();
  const done = { sentence: "Done.", undo, at: Date.now() };
  render(<UndoBar done={done} onGone={gone} />, { wrapper });
  fireEvent.click(screen.getByRole("button"));
  await act(() => vi.advanceTimersByTimeAsync(60_000));
  expect(gone).not.toHaveBeenCalled();
  await act(async () => answers[0]?.reject(new Error("x")));
  expect(screen.getByRole("status").textContent).toBe(en["problem.network"]);
  await act(() => vi.advanceTimersByTimeAsync(20_000));
  fireEvent.click(screen.getByRole("button"));
  expect(screen.getByRole("status").textContent, "the old error is gone").toBe("Done.");
  await act(async () => answers[1]?.resolve());
  expect(gone.mock.calls).toEqual([[done]]);
  vi.useRealTimers();
});
