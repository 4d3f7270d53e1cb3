// What the frame says when something cannot be read: the search, the languages, the clipboard.
import { QueryClientProvider } from "@tanstack/react-query";
import { act, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";

import { newQueryClient } from "../../src/api/queries";
import { Found } from "../../src/app/finder";
import en from "../../src/i18n/en.json";
import { Language, Localized, useLanguage, useText } from "../../src/i18n/text";
import { SignIn } from "../../src/screens/signin";
import { RouterConfig } from "../../src/ui/routerconfig";

const { load } = vi.hoisted(() => ({ load: { fails: false } }));
vi.mock("@tanstack/react-router", async (actual) => ({
  ...(await actual<typeof import("@tanstack/react-router")>()),
  useNavigate: () => () => {},
}));
vi.mock("../../src/app/shell", () => ({ useMe: () => ({ operator: false }) }));
vi.mock("../../src/i18n/messages", async (actual) => {
  const real = await actual<typeof import("../../src/i18n/messages")>();
  return {
    ...real,
    loadMessages: (language: "en" | "ja" | "ko") =>
      load.fails ? Promise.reject(new TypeError("404")) : real.loadMessages(language),
  };
});

afterEach(() => {
  vi.unstubAllGlobals();
  localStorage.clear();
});

it("a search says that nothing matches only when everything was read", async () => {
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  const queries = newQueryClient();
  queries.setQueryData(["connections"], []);
  const { container } = render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={queries}>
        <Found close={() => {}} />
      </QueryClientProvider>
    </Localized>,
  );
  fireEvent.change(container.querySelector("input") as HTMLInputElement, { target: { value: "transit" } });
  await waitFor(() => expect(container.textContent).toContain(en["load.loading"]));
  expect(container.textContent).not.toContain(en["search.none"]);
  act(() => void queries.setQueryData(["services", "all"], []));
  await waitFor(() => expect(container.textContent).toContain(en["search.none"]));
});

it("a language whose file is gone leaves the page in the language before", async () => {
  localStorage.setItem("language", "en");
  function Choice() {
    const t = useText();
    const { language, choose } = useLanguage();
    return <button onClick={() => choose("ko")}>{`${language} ${t("act.retry")}`}</button>;
  }
  render(
    <Language>
      <Choice />
    </Language>,
  );
  const before = `en ${en["act.retry"]}`;
  const button = await screen.findByText(before);
  load.fails = true;
  fireEvent.click(button);
  await act(async () => {});
  screen.getByText(before);
  load.fails = false;
  fireEvent.click(button);
  await waitFor(() => expect(button.textContent).toMatch(/^ko /));
});

it("a copy that the browser does not permit says so", async () => {
  render(
    <Localized language="en" messages={en}>
      <RouterConfig end={{ vlan: { type: "port" }, about: "x", rateMbps: null, addresses: [], lan: false }} />
    </Localized>,
  );
  expect(navigator.clipboard).toBeUndefined();
  fireEvent.click(screen.getByText(en["router.copy"]));
  await screen.findByText(en["router.notCopied"]);
});

it("the sign-in names the exchange", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ exchange: "Tokyo IX", name: null })));
  render(
    <Localized language="en" messages={en}>
      <QueryClientProvider client={newQueryClient()}>
        <SignIn />
      </QueryClientProvider>
    </Localized>,
  );
  await screen.findByRole("heading", { name: "Tokyo IX: sign in" });
  expect(document.title).toContain("Tokyo IX");
});
