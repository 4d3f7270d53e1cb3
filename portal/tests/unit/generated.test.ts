// @vitest-environment node
// A client that is generated from the OpenAPI document has every operation and names every variant.
import { readFileSync } from "node:fs";

import openapiTS, { astToString } from "openapi-typescript";
import { expect, it } from "vitest";

type Document = {
  paths: Record<string, Record<string, { operationId?: string }>>;
  components: { schemas: Record<string, { discriminator?: { mapping: Record<string, string> } }> };
};

it("a generated client has every operation and every variant", { timeout: 60_000 }, async () => {
  const text = readFileSync(new URL("../../openapi.json", import.meta.url), "utf8");
  const document = JSON.parse(text) as Document;
  const expected = Object.values(document.paths)
    .flatMap((item) => Object.values(item))
    .flatMap((operation) => operation.operationId ?? []);
  expect(new Set(expected).size, "each operation has an id of its own").toBe(expected.length);
  const client = astToString(await openapiTS(text));
  const operations = client.slice(client.indexOf("export interface operations"));
  const generated = [...operations.matchAll(/^ {4}"?(\w+)"?: \{$/gm)].map((found) => found[1]);
  expect(generated.sort()).toEqual(expected.sort());
  const variants = Object.values(document.components.schemas).flatMap((schema) =>
    Object.values(schema.discriminator?.mapping ?? {}),
  );
  expect(variants.length).toBeGreaterThan(2);
  for (const variant of variants) expect(client).toContain(`${variant.split("/").at(-1)}: {`);
});
