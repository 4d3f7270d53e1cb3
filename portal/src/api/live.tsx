import { useQueryClient, type QueryClient } from "@tanstack/react-query";
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
  us: ["users"],
  cn: ["connections"],
  sv: ["services"],
  nc: ["configs", "services", "connections"],
  fi: ["filters", "attack"],
  ip: ["services"],
  ap: ["approvals"],
  sw: ["switches", "trunks", "connections", "bgp-sessions"],
  st: ["sites", "switches"],
  tr: ["trunks"],
  ch: ["changes"],
  sk: ["service-keys"],
  mc: ["services"],
};

/** Marks the collections that an event concerns as out of date, so that the screens read them again. */
export function applyEvent(queries: QueryClient, event: StreamEvent) {
  const collections = new Set<string>(["overview"]);
  // An order, and each step of its change, is in the journal of changes.
  if (event.change !== undefined) collections.add("changes");
  for (const object of event.objects) {
    for (const collection of COLLECTIONS[object.split("-")[0] ?? ""] ?? []) collections.add(collection);
  }
  for (const collection of collections) void queries.invalidateQueries({ queryKey: [collection] });
}

/** Connects the page to the stream and keeps what it shows up to date. */
export function LiveUpdates({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [live, setLive] = useState<Live>({ connected: true, since: Date.now() });
  useEffect(() => {
    const receive = (message: StreamMessage) => {
      switch (message.type) {
        case "state":
          // A lost stream keeps the time at which it was lost, however often the browser tries again.
          setLive((before) => (before.connected === message.connected ? before : { connected: message.connected, since: message.since }));
          break;
        case "event":
          applyEvent(queries, message.event);
          break;
        case "refused":
          void checkSession();
          break;
        case "reset":
          void queries.invalidateQueries();
          break;
      }
    };
    if (typeof SharedWorker === "undefined") return openStream("/api/v1/events", receive);
    const worker = new SharedWorker(new URL("./stream.worker.ts", import.meta.url), { type: "module", name: "stream" });
    worker.port.onmessage = (message: MessageEvent<StreamMessage>) => receive(message.data);
    worker.port.start();
    const leave = () => worker.port.postMessage("bye");
    window.addEventListener("pagehide", leave);
    return () => {
      window.removeEventListener("pagehide", leave);
      leave();
    };
  }, [queries]);
  return <LiveState value={live}>{children}</LiveState>;
}
