// The stream of events: what it marks as out of date, how it resumes, and whose it is.
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { LiveUpdates, Refresh, useLive } from "../../src/api/live";
import { newQueryClient } from "../../src/api/queries";
import { openStream, SILENCE, type StreamMessage } from "../../src/api/stream";

class FakeSource extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  isClosed = false;
  onopen?: () => void;
  onerror?: () => void;
  constructor(readonly url: string) {
    super();
    opened.push(this);
  }
  close() {
    this.isClosed = true;
  }
  bring(name: string, data: object, lastEventId = "") {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data), lastEventId }));
  }
  /** Loses the connection; the browser tries again by itself unless it gives up. */
  lose(givesUp: boolean) {
    this.readyState = givesUp ? 2 : 0;
    this.onerror?.();
  }
}

let opened: FakeSource[] = [];
const source = () => opened.at(-1) as FakeSource;

beforeEach(() => {
  opened = [];
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", FakeSource);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("a stream", () => {
  const follow = () => {
    const seen: StreamMessage[] = [];
    const close = openStream("/events", (message) => seen.push(message));
    return { seen, close, types: () => seen.map((message) => message.type) };
  };

  it("goes on after the last event when the browser gives up", () => {
    const { types, close } = follow();
    source().onopen?.();
    source().bring("change", { serial: 4, kind: "object", objects: ["sv-1"] }, "b-4");
    source().lose(true);
    vi.advanceTimersByTime(3_000);
    expect(opened.map((source) => source.url)).toEqual(["/events", "/events?after=b-4"]);
    expect(types()).toEqual(["state", "event", "state", "refused"]);
    close();
  });

  it("without an event goes on after its begin, and everything before that is read again", () => {
    const { seen, types, close } = follow();
    source().onopen?.();
    source().bring("begin", { user: "us-1" }, "b-7");
    expect(seen.slice(1)).toEqual([{ type: "begin", user: "us-1" }, { type: "reset" }]);
    source().lose(true);
    vi.advanceTimersByTime(3_000);
    expect(source().url).toBe("/events?after=b-7");
    source().onopen?.();
    source().bring("begin", { user: "us-1" }, "b-7");
    expect(types().slice(3), "nothing was missed").toEqual(["state", "refused", "state", "begin"]);
    close();
  });

  it("that broke before its begin reads everything again after the next one", () => {
    const { types, close } = follow();
    source().onopen?.();
    source().lose(false);
    // The browser opens the same source again, without an id.
    source().onopen?.();
    source().bring("begin", { user: "us-1" }, "b-9");
    expect(types()).toEqual(["state", "state", "state", "begin", "reset"]);
    close();
  });

  it("whose place is lost keeps the old one until everything is read again", () => {
    const { close } = follow();
    source().bring("change", { serial: 4, kind: "object", objects: [] }, "b-4");
    source().bring("begin", { user: "us-1" });
    source().lose(true);
    vi.advanceTimersByTime(3_000);
    expect(source().url).toBe("/events?after=b-4");
    close();
  });

  it("that brings no beat counts as lost since it was heard last, and is opened again", () => {
    const { seen, close } = follow();
    source().onopen?.();
    source().bring("begin", { user: "us-1" }, "b-7");
    for (let beats = 0; beats < 10; beats += 1) {
      vi.advanceTimersByTime(4_000);
      source().bring("beat", {});
    }
    expect(opened.length).toBe(1);
    const heard = Date.now();
    vi.advanceTimersByTime(SILENCE);
    expect(seen.at(-1)).toEqual({ type: "state", connected: false, since: heard });
    expect(opened.map((source) => [source.url, source.isClosed])).toEqual([
      ["/events", true],
      ["/events?after=b-7", false],
    ]);
    close();
    vi.advanceTimersByTime(10 * SILENCE);
    expect(opened.length, "a closed stream is not opened again").toBe(2);
  });
});

describe("events", () => {
  it("mark what they concern as out of date, and nothing else", () => {
    const queries = newQueryClient();
    for (const key of ["services", "connections", "audit", "changes", "session"]) queries.setQueryData([key], []);
    const stale = (key: string) => queries.getQueryState([key])?.isInvalidated;
    const refresh = new Refresh(queries);
    const event = (objects: string[], change?: string) => {
      refresh.event({ serial: 1, kind: "object", objects, ...(change ? { change } : {}) });
      vi.advanceTimersByTime(300);
    };
    event(["sv-7"]);
    expect(["services", "connections", "audit", "changes"].map(stale)).toEqual([true, false, false, false]);
    event(["sv-7"], "ch-3");
    expect(stale("changes"), "a step of a change").toBe(true);
    event(["nc-9"]);
    expect(stale("connections"), "an end takes capacity of its connection").toBe(true);
    expect(stale("session")).toBe(false);
    event(["us-1"]);
    expect(stale("session"), "roles of the user").toBe(true);
    refresh.reset();
    vi.advanceTimersByTime(300);
    expect(stale("audit")).toBe(true);
  });

  it("are gathered for at most two seconds", () => {
    const queries = newQueryClient();
    const invalidate = vi.spyOn(queries, "invalidateQueries");
    const refresh = new Refresh(queries);
    for (let at = 0; at < 1_900; at += 100) {
      refresh.event({ serial: at, kind: "object", objects: ["sv-1"] });
      vi.advanceTimersByTime(100);
    }
    expect(invalidate).not.toHaveBeenCalled();
    vi.advanceTimersByTime(100);
    expect(invalidate.mock.calls.map(([filters]) => filters?.queryKey)).toEqual([["overview"], ["services"]]);
    refresh.event({ serial: 2_000, kind: "object", objects: ["sv-1"] });
    refresh.stop();
    vi.advanceTimersByTime(5_000);
    expect(invalidate).toHaveBeenCalledTimes(2);
  });

  it("do not restart a read under way, which is followed by one more", async () => {
    const queries = newQueryClient();
    const reads: ((found: string) => void)[] = [];
    const queryFn = () => new Promise<string>((resolve) => reads.push(resolve));
    const { QueryObserver } = await import("@tanstack/react-query");
    const observer = new QueryObserver(queries, { queryKey: ["services", "all"], queryFn });
    const stop = observer.subscribe(() => {});
    const refresh = new Refresh(queries);
    for (let times = 0; times < 5; times += 1) {
      refresh.event({ serial: times, kind: "object", objects: ["sv-1"] });
      await vi.advanceTimersByTimeAsync(300);
    }
    expect(reads.length, "the first read goes on").toBe(1);
    reads[0]?.("old");
    await vi.advanceTimersByTimeAsync(0);
    expect(reads.length).toBe(2);
    reads[1]?.("new");
    await vi.advanceTimersByTimeAsync(1_000);
    expect([reads.length, observer.getCurrentResult().data]).toEqual([2, "new"]);
    stop();
  });
});

it("the page of one person is not shown to another one, who signed in in the same browser", () => {
  const other = vi.fn();
  const Shown = () => <p>{String(useLive().connected)}</p>;
  const page = (user: string) => (
    <QueryClientProvider client={queries}>
      <LiveUpdates user={user} onOther={other}>
        <Shown />
      </LiveUpdates>
    </QueryClientProvider>
  );
  const queries = newQueryClient();
  const { rerender, unmount } = render(page("us-1"));
  act(() => source().bring("begin", { user: "us-1" }, "b-1"));
  expect(other).not.toHaveBeenCalled();
  act(() => source().bring("begin", { user: "us-2" }, "b-1"));
  expect(other).toHaveBeenCalledOnce();
  rerender(page("us-2"));
  expect(other, "the session was read again").toHaveBeenCalledTimes(2);
  unmount();
});

it('a page that the browser restores by "back" loads again: it has no stream, its person may be signed out', () => {
  const again = vi.fn();
  const { unmount } = render(
    <QueryClientProvider client={newQueryClient()}>
      <LiveUpdates user="us-1" onOther={again}>
        <p />
      </LiveUpdates>
    </QueryClientProvider>,
  );
  const show = (persisted: boolean) => window.dispatchEvent(Object.assign(new Event("pageshow"), { persisted }));
  show(false);
  expect(again).not.toHaveBeenCalled();
  window.dispatchEvent(new Event("pagehide"));
  show(true);
  expect(again).toHaveBeenCalledOnce();
  unmount();
});
