import { describe, expect, it } from "vitest";

import { formatAge, formatBitRate, formatBytes, formatRuns, formatUtc, formatShare } from "../../src/i18n/units";
import { preferredLanguage } from "../../src/i18n/messages";
import { isVid, parseRate, vlanOf, EMPTY_END } from "../../src/ui/endfields";
import { formatRanges } from "../../src/screens/connections";
import { matches } from "../../src/app/finder";

describe("units", () => {
  it("writes rates in SI with three digits", () => {
    expect(formatBitRate(200_000_000, "en")).toBe("200\u00a0Mbit/s");
    expect(formatBitRate(2_200_000_000, "en")).toBe("2.2\u00a0Gbit/s");
    expect(formatBitRate(999_960_000, "en")).toBe("1\u00a0Gbit/s");
    expect(formatBitRate(0, "en")).toBe("0\u00a0bit/s");
    expect(formatBytes(1_536, "en")).toBe("1.54\u00a0kB");
  });

  it("writes ages in the largest fitting unit, in each language", () => {
    const now = new Date("2026-11-23T12:00:00Z");
    expect(formatAge(new Date("2026-11-23T11:57:00Z"), now, "en")).toBe("3 minutes ago");
    expect(formatAge(new Date("2026-11-22T12:00:00Z"), now, "en")).toBe("yesterday");
    expect(formatAge(new Date("2026-11-23T11:57:00Z"), now, "ja")).toBe("3 分前");
    expect(formatAge(new Date("2026-11-23T13:00:00Z"), now, "en")).toBe("in 1 hour");
    expect(formatUtc(now)).toBe("2026-11-23 12:00:00 UTC");
  });

  it("writes runs and ranges", () => {
    expect(formatRuns([1, 2, 3, 7, 9, 10])).toBe("1–3, 7, 9–10");
    expect(
      formatRanges([
        [2, 99],
        [101, 101],
      ]),
    ).toBe("2–99, 101");
  });
});

describe("the fields of an end", () => {
  it("reads rates as engineers write them", () => {
    expect(parseRate("200")).toBe(200);
    expect(parseRate("1 G")).toBe(1000);
    expect(parseRate("2.5Gbit/s")).toBe(2500);
    // Decimals that are not whole in binary, and digits in groups, as the page itself writes them.
    expect(["2.01 G", "1,5 G", "0.3 g", "500000 k"].map(parseRate)).toEqual([2010, 1500, 300, 500]);
    expect(["1,000", "10,000 Mbit/s", "1,000 k", "1,200,000.0 k"].map(parseRate)).toEqual([1000, 10_000, 1, 1200]);
    expect(parseRate("")).toBeNull();
    for (const wrong of ["x", "0", "-5", "1.5", "1,5", "1,0000", "1.000,5", "10 T", "1e3"])
      expect(parseRate(wrong), wrong).toBeUndefined();
  });

  it("takes VIDs from 1 to 4094, and leaves open what is empty", () => {
    expect([isVid(""), isVid("1"), isVid("4094")]).toEqual([true, true, true]);
    expect([isVid("0"), isVid("4095"), isVid("1.5"), isVid("x")]).toEqual([false, false, false, false]);
    expect(vlanOf({ ...EMPTY_END, vlan: " 7 " })).toEqual({ type: "dot1q", vlan: 7 });
    expect(vlanOf({ ...EMPTY_END, tagging: "qinq", vlan: "7" })).toEqual({ type: "qinq", outer: 7, inner: null });
    expect(vlanOf({ ...EMPTY_END, tagging: "port", vlan: "7" })).toEqual({ type: "port" });
  });
});

it("the language is the chosen one, else the browser's first that the page has", () => {
  expect(preferredLanguage("ko", ["ja"])).toBe("ko");
  expect(preferredLanguage(null, ["fr-FR", "ja-JP", "en"])).toBe("ja");
  expect(preferredLanguage("xx", ["fr"])).toBe("en");
});

it("a search finds what has all words, whatever the case", () => {
  expect(matches("transit VLAN 100 AS64501", "as64501 vlan")).toBe(true);
  expect(matches("transit VLAN 100", "vlan 200")).toBe(false);
});

it("a share has no sign that says nothing", () => {
  expect([0, -0, -0.0001, 0.024, 1].map((share) => formatShare(share, "en"))).toEqual([
    "0%",
    "0%",
    "0%",
    "2.4%",
    "100%",
  ]);
});
