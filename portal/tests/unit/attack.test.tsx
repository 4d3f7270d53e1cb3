// The screen of an attack.
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import type { Traffic } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { Numbers } from "../../src/screens/attack";

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    <QueryClientProvider client={newQueryClient()}>{children}</QueryClientProvider>
  </Localized>
);

describe("the rates to a destination", () => {
  const traffic = (bits: number, dropped: number, usual: number | null): Traffic => ({
    target: { prefix: "203.0.113.7/32", bits_per_s: bits, usual_bits_per_s: usual },
    dropped_bits_per_s: dropped,
    packets_per_s: 1e6,
    error_percent: 2,
    minutes: [0, 1].map((number) => ({ at: `2026-11-24T01:0${number}:00.000Z`, passed_bps: 1e6, dropped_bps: 0 })),
    breakdown: [],
    suggestions: [],
  });
  const shown = (of: Traffic) => {
    const { container, unmount } = render(<Numbers traffic={of} />, { wrapper });
    const [passed, dropped] = container.querySelectorAll(".big-value");
    const found = { passed: passed?.textContent, tone: passed?.getAttribute("data-tone"), dropped: dropped?.textContent, words: passed?.nextSibling?.textContent, chart: screen.getByRole("img").getAttribute("aria-label"), lines: container.querySelectorAll(".chart-usual").length };
    unmount();
    return found;
  };

  it("are those of the last half minute, and not of the last minute of the chart", () => {
    expect(shown(traffic(9e9, 6e9, 2.5e8))).toMatchObject({ passed: "3\u00a0Gbit/s", dropped: "6\u00a0Gbit/s", tone: "bad", words: "arrives, 12 times the usual rate", lines: 1 });
    expect(shown(traffic(9e9, 8.8e9, 2.5e8)).tone, "filters drop the attack").toBe("ok");
  });

  it("are no quiet ones if the usual rate is unknown", () => {
    expect(shown(traffic(9e9, 0, null))).toMatchObject({ tone: "bad", words: en["attack.arrivesUnknown"], lines: 0 });
    expect(shown(traffic(9e9, 0, null)).chart).toContain(en["chart.unknown"]);
    expect(shown(traffic(9e9, 0, 0))).toMatchObject({ tone: "bad", words: en["attack.arrivesNew"] });
    expect(shown(traffic(5e7, 0, null)).tone).toBe("ok");
  });
});
