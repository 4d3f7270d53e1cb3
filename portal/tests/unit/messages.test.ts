import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { IntlMessageFormat } from "intl-messageformat";
import ts from "typescript";
import { describe, expect, it } from "vitest";

import en from "../../src/i18n/en.json";
import ja from "../../src/i18n/ja.json";
import ko from "../../src/i18n/ko.json";

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory()
      ? sources(path)
      : /\.tsx?$/.test(entry.name) && !entry.name.endsWith(".d.ts")
        ? [path]
        : [];
  });
}

const SRC = join(import.meta.dirname, "../../src");

/** Returns the names of the arguments of a message. */
function args(message: string, language: string): string[] {
  const names = new Set<string>();
  const walk = (elements: unknown[]) => {
    for (const element of elements as {
      type: number;
      value: string;
      options?: Record<string, { value: unknown[] }>;
      children?: unknown[];
    }[]) {
      // 0 is literal text, 7 the number sign of a plural; all others name an argument.
      if (element.type !== 0 && element.type !== 7) names.add(element.value);
      for (const option of Object.values(element.options ?? {})) walk(option.value);
      if (element.children) walk(element.children);
    }
  };
  walk(new IntlMessageFormat(message, language).getAst());
  return [...names].sort();
}

describe("messages", () => {
  for (const [language, messages] of Object.entries({ ja, ko })) {
    it(`${language} has the ids of en, and the same arguments`, () => {
      expect(Object.keys(messages)).toEqual(Object.keys(en));
      for (const [id, text] of Object.entries(en)) {
        expect(args((messages as Record<string, string>)[id] ?? "", language), `${language} ${id}`).toEqual(
          args(text, "en"),
        );
      }
    });
  }

  it("the button that cancels a dialog has words of its own in each language", () => {
    for (const [language, messages] of Object.entries({ en, ja, ko } as Record<string, Record<string, string>>)) {
      const same = Object.keys(messages).filter((id) => messages[id] === messages["act.cancel"]);
      expect(same, language).toEqual(["act.cancel"]);
    }
  });

  it("every message is used", () => {
    const code = sources(SRC)
      .map((path) => readFileSync(path, "utf8"))
      .join("\n");
    // Ids that are composed: prefs.theme.${id}
    const unused = Object.keys(en).filter((id) => !code.includes(`"${id}"`) && !id.startsWith("prefs.theme."));
    expect(unused).toEqual([]);
  });

  it("components have no literal text", () => {
    const found: string[] = [];
    for (const path of sources(SRC).filter((path) => path.endsWith(".tsx"))) {
      const file = ts.createSourceFile(
        path,
        readFileSync(path, "utf8"),
        ts.ScriptTarget.ES2022,
        true,
        ts.ScriptKind.TSX,
      );
      const visit = (node: ts.Node) => {
        if (ts.isJsxText(node) && /\p{L}{2,}/u.test(node.text)) found.push(`${path}: ${node.text.trim()}`);
        if (
          ts.isJsxAttribute(node) &&
          ["aria-label", "title", "placeholder", "label", "alt", "hint"].includes(node.name.getText()) &&
          node.initializer &&
          ts.isStringLiteral(node.initializer) &&
          node.initializer.text !== ""
        ) {
          found.push(`${path}: ${node.name.getText()}=${node.initializer.text}`);
        }
        ts.forEachChild(node, visit);
      };
      visit(file);
    }
    expect(found).toEqual([]);
  });
});
