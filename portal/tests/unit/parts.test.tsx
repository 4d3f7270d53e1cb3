import { fireEvent, render, renderHook, screen, act } from "@testing-library/react";
import { useState } from "react";
import { describe, expect, it, vi } from "vitest";

import { RequestError } from "../../src/api/problem";
import en from "../../src/i18n/en.json";
import type { MessageId } from "../../src/i18n/messages";
import { Localized } from "../../src/i18n/text";
import { problemsOf } from "../../src/screens/order";
import { useAnchor } from "../../src/ui/anchor";
import { ConfirmedAct } from "../../src/ui/dialog";
import { AddressField, Form, TextField } from "../../src/ui/fields";
import { useHeld } from "../../src/ui/held";
import { forgetDrafts, useDraft } from "../../src/ui/draft";

const wrapper = ({ children }: { children: React.ReactNode }) => (
  <Localized language="en" messages={en}>
    {children}
  </Localized>
);

describe("forms", () => {
  function Sample({ onSubmit }: { onSubmit: () => void }) {
    const [text, setText] = useState("");
    return (
      <Form onSubmit={onSubmit}>
        <TextField label="Field" value={text} onChange={setText} error={text === "wrong" ? "is wrong" : undefined} />
        <button type="submit">Go</button>
      </Form>
    );
  }

  it("are not submitted by the Enter that ends a composition", () => {
    const submit = vi.fn();
    render(<Sample onSubmit={submit} />, { wrapper });
    const composing = fireEvent.keyDown(screen.getByLabelText("Field"), { key: "Enter", isComposing: true });
    expect(composing, "the default action is prevented").toBe(false);
    const safari = fireEvent.keyDown(screen.getByLabelText("Field"), { key: "Enter", keyCode: 229 });
    expect(safari).toBe(false);
    fireEvent.click(screen.getByText("Go"));
    expect(submit).toHaveBeenCalledOnce();
  });

  it("tie an error to its field", () => {
    render(<Sample onSubmit={() => {}} />, { wrapper });
    const field = screen.getByLabelText("Field");
    fireEvent.change(field, { target: { value: "wrong" } });
    expect(field.getAttribute("aria-invalid")).toBe("true");
    const described = field
      .getAttribute("aria-describedby")
      ?.split(" ")
      .map((id) => document.getElementById(id)?.textContent);
    expect(described).toContain("is wrong");
  });
});

it("the element that the address names comes into view when its list is read", () => {
  const into = vi.fn();
  const row = Object.assign(document.body.appendChild(document.createElement("p")), {
    id: "cn-1",
    scrollIntoView: into,
  });
  location.hash = "#cn-1";
  const { rerender } = renderHook(({ isRead }) => useAnchor(isRead), { initialProps: { isRead: false } });
  expect(into).not.toHaveBeenCalled();
  rerender({ isRead: true });
  expect(into).toHaveBeenCalledOnce();
  location.hash = "";
  row.remove();
});

describe("a field of the address", () => {
  const page = (value: string, onChange: (text: string) => void) => (
    <AddressField label="Filter" value={value} onChange={onChange} wait={300} />
  );
  const field = () => document.querySelector("input") as HTMLInputElement;
  const type = (text: string) => fireEvent.change(field(), { target: { value: text } });
  const wait = () => act(() => vi.advanceTimersByTimeAsync(300));

  it("has its own text at each key, and is written once after the last one", async () => {
    vi.useFakeTimers();
    const change = vi.fn();
    const { rerender } = render(page("", change), { wrapper });
    for (const text of ["ㅎ", "하", "한"]) {
      type(text);
      await act(() => vi.advanceTimersByTimeAsync(100));
      expect(field().value, "the address did not write into the field").toBe(text);
    }
    expect(change).not.toHaveBeenCalled();
    await wait();
    expect(change.mock.calls).toEqual([["한"]]);
    type("한국");
    // The address follows later than the field.
    rerender(page("한", change));
    expect(field().value).toBe("한국");
    await wait();
    rerender(page("한국", change));
    await wait();
    expect([change.mock.calls, field().value]).toEqual([[["한"], ["한국"]], "한국"]);
    vi.useRealTimers();
  });

  it("takes an address that changes from outside", async () => {
    vi.useFakeTimers();
    const change = vi.fn();
    const { rerender } = render(page("a", change), { wrapper });
    rerender(page("", change));
    await wait();
    expect([field().value, change.mock.calls.length]).toEqual(["", 0]);
    vi.useRealTimers();
  });
});

describe("a held list", () => {
  const key = (item: { id: string; text?: string }) => item.id;

  it("keeps its rows while it is in use, changes their contents, and shows the others when asked", () => {
    const within = { current: document.createElement("div") };
    const { result, rerender } = renderHook(({ items, asked }) => useHeld(items, key, within, asked), {
      initialProps: {
        items: [
          { id: "a", text: "1" },
          { id: "b", text: "1" },
        ],
        asked: "",
      },
    });
    act(() => result.current.handlers.onPointerEnter());
    rerender({
      items: [
        { id: "new", text: "1" },
        { id: "a", text: "2" },
      ],
      asked: "",
    });
    expect(result.current.items).toEqual([
      { id: "a", text: "2" },
      { id: "b", text: "1" },
    ]);
    expect(result.current.waiting).toBe(2);
    act(() => result.current.release());
    expect(result.current.items.map(key)).toEqual(["new", "a"]);
    act(() => result.current.handlers.onPointerEnter());
    rerender({ items: [{ id: "z", text: "1" }], asked: "z" });
    expect(result.current.items.map(key), "another filter is shown at once").toEqual(["z"]);
  });
});

it("a draft is kept, and fields that an older page did not have are empty", () => {
  localStorage.setItem("order x", JSON.stringify({ name: "kept" }));
  const { result } = renderHook(() => useDraft("order x", { name: "", rate: "" }));
  expect(result.current[0]).toEqual({ name: "kept", rate: "" });
  act(() => result.current[1]({ name: "new", rate: "5" }));
  expect(JSON.parse(localStorage.getItem("order x") ?? "")).toEqual({ name: "new", rate: "5" });
  localStorage.setItem("order y", "{broken");
  expect(renderHook(() => useDraft("order y", { name: "" })).result.current[0]).toEqual({ name: "" });
});

it("the secret of a draft is neither kept nor loaded, and a cleared draft is gone", () => {
  const empty = { name: "", secret: "" };
  const stored = ({ name }: typeof empty) => ({ name });
  localStorage.setItem("order z", JSON.stringify({ name: "kept", secret: "of an older page" }));
  const { result } = renderHook(() => useDraft("order z", empty, stored));
  expect(result.current[0]).toEqual({ name: "kept", secret: "" });
  expect(localStorage.getItem("order z")).toBe('{"name":"kept"}');
  act(() => result.current[1]({ name: "new", secret: "typed" }));
  expect(result.current[0].secret).toBe("typed");
  expect(localStorage.getItem("order z")).toBe('{"name":"new"}');
  act(() => result.current[2]());
  expect([result.current[0], localStorage.getItem("order z")]).toEqual([empty, null]);
});

it("drafts of orders are forgotten, and nothing else", () => {
  for (const key of ["order us-1", "order us-2", "millrace.dialect"]) localStorage.setItem(key, "{}");
  forgetDrafts("order ");
  expect(["order us-1", "order us-2", "millrace.dialect"].map((key) => localStorage.getItem(key))).toEqual([
    null,
    null,
    "{}",
  ]);
});

it("a refusal stands at the field that the engine names", () => {
  const error = new RequestError({
    type: "/api/v1/problems/conflict",
    title: "",
    status: 409,
    detail: "taken",
    errors: [
      { pointer: "/end/vlan", code: "vlan-taken", detail: "taken" },
      { pointer: "/far_end/capacity_mbps", code: "x", detail: "too much" },
      { pointer: "/name", code: "x", detail: "in use" },
    ],
  });
  const translate = Object.assign((id: MessageId) => id, { reason: (_: unknown, text: string) => text });
  expect(problemsOf(translate, error).map((problem) => problem.field)).toEqual(["end-vlan", "far-rate", "order-name"]);
});

it("an act is confirmed, and its failure is shown in words before it is tried again", async () => {
  const failure = vi.fn().mockRejectedValueOnce(new Error("x")).mockResolvedValueOnce(undefined);
  render(<ConfirmedAct label="Delete" title="Delete it?" sentence="It is gone." act={failure} />, { wrapper });
  fireEvent.click(screen.getByText("Delete"));
  expect(screen.getByRole("dialog").textContent).toContain("It is gone.");
  const confirm = () => fireEvent.submit(screen.getByRole("dialog").querySelector("form") ?? document.body);
  confirm();
  expect((await screen.findByRole("alert")).textContent).toContain(en["problem.network"]);
  confirm();
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(failure).toHaveBeenCalledTimes(2);
});

it("an order that is sent again from the same dialog has the same key, and another order has another one", async () => {
  const keys: string[] = [];
  let order = "a";
  const make = (keyOf: (order: unknown) => string) => {
    keys.push(keyOf({ order }));
    return keys.length < 4 ? Promise.reject(new Error("x")) : Promise.resolve();
  };
  const submit = () =>
    act(async () => void fireEvent.submit(screen.getByRole("dialog").querySelector("form") ?? document.body));
  render(<ConfirmedAct label="Make" title="Make it?" sentence="It is made." act={make} />, {
    wrapper,
  });
  fireEvent.click(screen.getByText("Make"));
  for (order of ["a", "a", "b", "a"]) await submit();
  expect([keys[1], keys[3]], "the same order").toEqual([keys[0], keys[0]]);
  expect(keys[2]).not.toBe(keys[0]);
  fireEvent.click(screen.getByText("Make"));
  await submit();
  expect(keys[4], "a new dialog is a new order").not.toBe(keys[0]);
});
