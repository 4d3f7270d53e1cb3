// The explanation of a packet: the packet that is asked is the one that is typed.
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import en from "../../src/i18n/en.json";
import { Localized } from "../../src/i18n/text";
import { ExplainPacket, parsePort } from "../../src/screens/explain";

vi.mock("../../src/app/shell", () => ({ useMe: () => ({}) }));
afterEach(() => vi.unstubAllGlobals());

it("a text that is no port is an error at its field, and no packet without a port is asked", async () => {
  expect([parsePort(""), parsePort(" 53 "), parsePort("dns"), parsePort("53,80"), parsePort("65536")]).toEqual([
    null,
    53,
    undefined,
    undefined,
    undefined,
  ]);
  const asked: string[] = [];
  vi.stubGlobal("fetch", (request: Request) => {
    asked.push(new URL(request.url).search);
    return Promise.resolve(Response.json({ outcome: "pass", steps: [] }));
  });
  render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={newQueryClient()}>
        <ExplainPacket />
      </QueryClientProvider>
    </Localized>,
  );
  const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
  const submit = () => fireEvent.submit(document.querySelector("form") ?? document.body);
  type(en["explain.to"], "203.0.113.7");
  type(en["explain.portTo"], "dns");
  submit();
  expect(screen.getByLabelText(en["explain.portTo"]).getAttribute("aria-invalid")).toBe("true");
  expect([screen.queryByText(en["explain.portWrong"]) !== null, asked]).toEqual([true, []]);
  type(en["explain.portTo"], "53");
  submit();
  await screen.findByText(en["explain.pass"]);
  expect(asked).toEqual(["?destination=203.0.113.7&protocol=17&destination_port=53"]);
  screen.getByText("UDP * → 203.0.113.7:53");
});
