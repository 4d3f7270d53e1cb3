import { render } from "@testing-library/react";
import { describe, expect, it } from "vitest";

import all from "../../reasons.json";
import { RequestError } from "../../src/api/problem";
import type { Coded } from "../../src/api/types";
import en from "../../src/i18n/en.json";
import ja from "../../src/i18n/ja.json";
import ko from "../../src/i18n/ko.json";
import { withReasons, type Language } from "../../src/i18n/messages";
import jaReasons from "../../src/i18n/reasons.ja.json";
import koReasons from "../../src/i18n/reasons.ko.json";
import { Localized, useText, type Translate } from "../../src/i18n/text";
import { explain } from "../../src/ui/loaded";

const MESSAGES = { en, ja: withReasons(ja, jaReasons), ko: withReasons(ko, koReasons) };

function parameters(text: string): string[] {
  return [...new Set(text.match(/\{\w+\}/g) ?? [])].sort();
}

/** Returns the function that components use in a language. */
function translator(language: Language): Translate {
  let found: Translate | undefined;
  const Asks = () => {
    found = useText();
    return null;
  };
  render(
    <Localized language={language} messages={MESSAGES[language]}>
      <Asks />
    </Localized>,
  );
  if (!found) throw new Error("nothing was rendered");
  return found;
}

describe("reasons of the engine", () => {
  for (const [language, reasons] of Object.entries({ ja: jaReasons, ko: koReasons } as Record<
    "ja" | "ko",
    Record<string, string>
  >)) {
    it(`every code has words in ${language} with the same parameters, and no other code has`, () => {
      expect(Object.keys(reasons).sort()).toEqual(Object.keys(all).sort());
      for (const [code, text] of Object.entries(all)) {
        expect(parameters(reasons[code] ?? ""), code).toEqual(parameters(text));
      }
    });

    it(`every code is rendered in ${language} with its parameters`, () => {
      const t = translator(language as Language);
      for (const [code, text] of Object.entries(all)) {
        const names = parameters(text).map((name) => name.slice(1, -1));
        const found = t.reason(
          [{ code, values: Object.fromEntries(names.map((name) => [name, `<${name}> of 'it'`])) }],
          text,
        );
        expect(found, code).not.toContain("{");
        for (const name of names) expect(found, code).toContain(`<${name}> of 'it'`);
      }
    });
  }

  it("sentences follow each other, and English is the text of the engine", () => {
    const coded: Coded[] = [
      { code: "no-live-route", values: { destination: "192.0.2.1/32" } },
      { code: "missing-route", values: { destination: "192.0.2.1/32", origins: "AS64500" } },
    ];
    const text = "no live route of the account covers 192.0.2.1/32; missing: …";
    expect(translator("en").reason(coded, text)).toBe(text);
    expect(translator("ja").reason(coded, text)).toMatch(/^192\.0\.2\.1\/32 を含む.*ません。不足：AS64500 .*経路$/);
  });

  it("a code without words, and a reason without a code, are shown as the engine wrote them", () => {
    const known = { code: "macs-max-min", values: {} };
    expect(translator("ko").reason([known, { code: "of-a-newer-engine", values: {} }], "expected more")).toBe(
      "expected more",
    );
    expect(translator("ko").reason([], "OFPMMFC_OUT_OF_METERS")).toBe("OFPMMFC_OUT_OF_METERS");
  });

  it("a refused order is explained with its parameters", () => {
    const problem = {
      type: "/api/v1/problems/conflict",
      title: "The state does not allow the change",
      status: 409,
      detail: "sv-7 has 2 ends already: delete one first",
      code: "conflict",
      coded: [{ code: "ends-full", values: { service: "sv-7", max: "2" } }],
    };
    const words = (language: Language) => explain(translator(language), new RequestError(problem));
    expect(words("en")).toBe(problem.detail);
    expect(words("ja")).toBe("sv-7 にはすでに端点が 2 個あります。先に削除してください");
    expect(words("ko")).toBe("sv-7에는 이미 종단이 2개 있습니다. 먼저 하나를 삭제하세요");
  });
});
