import { useQueryClient, type InvalidateQueryFilters, type QueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useState, type ReactNode } from "react";

import { checkSession } from "./client";
import { openStream, type StreamEvent, type StreamMessage } from "./stream";

/** The state of the stream: since when it is connected or not. */
export type Live = { connected: boolean; since: number };

const LiveState = createContext<Live>({ connected: true, since: 0 });

export function useLive(): Live {
  return useContext(LiveState);
}

/** The collections that the first part of an object's id names. */
const COLLECTIONS: Record<string, string[]> = {
  ac: ["accounts"],
  us: ["users", "session"],
  cn: ["connections"],
  sv: ["services"],
  nc: ["configs", "services", "connections"],
  fi: ["filters", "attack"],
  ip: ["services"],
  ap: ["approvals"],
  sw: ["switches", "trunks", "connections", "services", "bgp-sessions"],
  st: ["sites", "switches"],
  tr: ["trunks", "services"],
  ch: ["changes"],
  sk: ["service-keys"],
  mc: ["services"],
  po: ["services"],
};

/** The time in ms by which the last event of a burst delays the reads, and the longest delay of the first one. */
const QUIET = 300;
const WAIT_MAX = 2_000;

/** Returns the collections that an event concerns. */
function collectionsOf(event: StreamEvent): Set<string> {
  const collections = new Set<string>(["overview"]);
  // An order, and each step of its change, is in the journal of changes.
  if (event.change !== undefined) collections.add("changes");
  for (const object of event.objects) {
    for (const collection of COLLECTIONS[object.split("-")[0] ?? ""] ?? []) collections.add(collection);
  }
  return collections;
}

/**
 * Makes queries read again. A read in progress continues, because a list of many pages would otherwise never end under
 * a stream of events. That read may have begun before the event, so another one follows it.
 */
function readAgain(queries: QueryClient, filters: InvalidateQueryFilters) {
  const busy = queries.getQueryCache().findAll({ ...filters, fetchStatus: "fetching" });
  void queries.invalidateQueries(filters, { cancelRefetch: false });
  for (const query of busy) {
    const follow = () =>
      void queries.invalidateQueries({ queryKey: query.queryKey, exact: true }, { cancelRefetch: false });
    query.promise?.then(follow, follow);
  }
}

/**
 * Gathers events, and then marks the collections that they concern as out of date, so that the screens read them again.
 */
export class Refresh {
  private readonly collections = new Set<string>();
  private everything = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private first = 0;

  constructor(private readonly queries: QueryClient) {}

  event(event: StreamEvent) {
    for (const collection of collectionsOf(event)) this.collections.add(collection);
    this.later();
  }

  /** Marks everything as out of date, because events were missed. */
  reset() {
    this.everything = true;
    this.later();
  }

  stop() {
    clearTimeout(this.timer);
  }

  private later() {
    if (this.timer === undefined) this.first = Date.now();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.flush(), Math.max(0, Math.min(QUIET, this.first + WAIT_MAX - Date.now())));
  }

  private flush() {
    this.timer = undefined;
    const collections = [...this.collections];
    const everything = this.everything;
    this.collections.clear();
    this.everything = false;
    if (everything) readAgain(this.queries, {});
    else for (const collection of collections) readAgain(this.queries, { queryKey: [collection] });
  }
}

/**
 * Connects the page of a person to the stream and keeps what it shows up to date. `onOther` is called when the page
 * must load again: another person has signed in in another tab and owns the session, or the browser restores a page
 * that was left. Such a page has no stream, and its person may have signed out.
 */
export function LiveUpdates({ user, onOther, children }: { user: string; onOther: () => void; children: ReactNode }) {
  const queries = useQueryClient();
  const [own] = useState(user);
  const [live, setLive] = useState<Live>({ connected: true, since: Date.now() });
  useEffect(() => {
    if (user !== own) onOther();
  }, [user, own, onOther]);
  useEffect(() => {
    const restored = (event: PageTransitionEvent) => {
      if (event.persisted) onOther();
    };
    window.addEventListener("pageshow", restored);
    return () => window.removeEventListener("pageshow", restored);
  }, [onOther]);
  useEffect(() => {
    const refresh = new Refresh(queries);
    const receive = (message: StreamMessage) => {
      switch (message.type) {
        case "state":
          // A lost stream keeps the time at which it was lost, however often the browser tries again.
          setLive((before) =>
            before.connected === message.connected ? before : { connected: message.connected, since: message.since },
          );
          break;
        case "begin":
          if (message.user !== own) onOther();
          break;
        case "event":
          refresh.event(message.event);
          break;
        case "refused":
          void checkSession();
          break;
        case "reset":
          refresh.reset();
          break;
      }
    };
    if (typeof SharedWorker === "undefined") {
      const close = openStream("/api/v1/events", receive);
      return () => {
        close();
        refresh.stop();
      };
    }
    // Each person has a worker: the stream of another person, who may still have a tab open, is not used here.
    const worker = new SharedWorker(new URL("./stream.worker.ts", import.meta.url), {
      type: "module",
      name: `stream ${own}`,
    });
    worker.port.onmessage = (message: MessageEvent<StreamMessage>) => receive(message.data);
    worker.port.start();
    const leave = () => worker.port.postMessage("bye");
    window.addEventListener("pagehide", leave);
    return () => {
      window.removeEventListener("pagehide", leave);
      leave();
      refresh.stop();
    };
  }, [queries, own, onOther]);
  return <LiveState value={live}>{children}</LiveState>;
}
