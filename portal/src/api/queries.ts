// What the screens read: one description for each resource, by which every screen shares the answer.
import { QueryClient, queryOptions } from "@tanstack/react-query";

import { client, result, type Outcome } from "./client";
import { RequestError } from "./problem";
import type { Graph, Period } from "./types";

/** Returns the cache of what was read. The stream of events says what is out of date, so nothing expires by time. */
export function newQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: Infinity,
        gcTime: 5 * 60_000,
        refetchOnWindowFocus: false,
        refetchOnReconnect: true,
        networkMode: "always",
        retry: (count, error) => error instanceof RequestError && error.isTransient && count < 2,
        retryDelay: (count) => 500 * 2 ** count,
        // A screen whose first load failed heals by itself when the engine is back.
        refetchInterval: (query) =>
          query.state.error instanceof RequestError && query.state.error.isTransient ? 5_000 : false,
      },
      mutations: { networkMode: "always", retry: false },
    },
  });
}

/** The largest page of a collection; longer ones are read page by page. */
const PAGE = 500;

type Page<T> = { items: T[]; next: string | null };

async function everything<T>(read: (after: string | undefined) => Promise<Page<T>>): Promise<T[]> {
  const items: T[] = [];
  for (let after: string | undefined; ;) {
    const page = await read(after);
    items.push(...page.items);
    if (page.next === null) return items;
    after = page.next;
  }
}

/** The parameters of a request for one page of a collection. */
type PageQuery = { limit: number; after: string | undefined };

/** Describes the reading of a whole collection. */
function collection<T>(
  key: string,
  read: (query: PageQuery) => Promise<Outcome<Page<T>>>,
  more: { refetchInterval?: number } = {},
) {
  return queryOptions({
    queryKey: [key],
    queryFn: () => everything((after) => result(read({ limit: PAGE, after }))),
    ...more,
  });
}

/**
 * Returns the first page that has items: a request looks at a part of the records only. Its requests have the query's
 * `signal`, so that the reading of a long journal ends when no screen waits for it.
 */
async function firstItems<P extends Page<unknown>>(
  read: (after: string | undefined) => Promise<P>,
  start?: string,
): Promise<P> {
  let page = await read(start);
  while (page.items.length === 0 && page.next !== null) page = await read(page.next);
  return page;
}

export const session = queryOptions({
  queryKey: ["session"],
  queryFn: () => result(client.GET("/api/v1/session")),
});

export const provider = queryOptions({
  queryKey: ["provider"],
  queryFn: () => result(client.GET("/api/v1/oidc")),
});

export const overview = queryOptions({
  queryKey: ["overview"],
  queryFn: () => result(client.GET("/api/v1/overview")),
});

export const accounts = collection("accounts", (query) => client.GET("/api/v1/accounts", { params: { query } }));

export const users = collection("users", (query) => client.GET("/api/v1/users", { params: { query } }));

export const connections = collection("connections", (query) =>
  client.GET("/api/v1/connections", { params: { query } }),
);

export const vlans = (connection: string, wanted = true) =>
  queryOptions({
    queryKey: ["services", "vlans", connection],
    queryFn: () => result(client.GET("/api/v1/connections/{id}/vlans", { params: { path: { id: connection } } })),
    enabled: connection !== "" && wanted,
  });

export const services = queryOptions({
  queryKey: ["services", "all"],
  queryFn: () =>
    everything((after) => result(client.GET("/api/v1/services", { params: { query: { limit: PAGE, after } } }))),
});

export const service = (id: string) =>
  queryOptions({
    queryKey: ["services", id],
    queryFn: () => result(client.GET("/api/v1/services/{id}", { params: { path: { id } } })),
  });

export const filters = collection("filters", (query) => client.GET("/api/v1/filters", { params: { query } }));

export const switches = collection("switches", (query) => client.GET("/api/v1/switches", { params: { query } }));

/** The entries of a switch that differ from the plan, now and at earlier comparisons. */
export const drift = (entry: string) =>
  queryOptions({
    queryKey: ["switches", entry, "drift"],
    queryFn: () => result(client.GET("/api/v1/switches/{id}/drift", { params: { path: { id: entry } } })),
  });

export const trunks = collection("trunks", (query) => client.GET("/api/v1/trunks", { params: { query } }));

export const sites = collection("sites", (query) => client.GET("/api/v1/sites", { params: { query } }));

/** The changes after a cursor, newest first. */
export const changesAfter = (start: string | undefined) =>
  queryOptions({
    queryKey: ["changes", "newest", start ?? ""],
    queryFn: ({ signal }) =>
      firstItems(
        (after) => result(client.GET("/api/v1/changes", { signal, params: { query: { limit: 100, after } } })),
        start,
      ),
  });

/**
 * The changes under way, and those that are undone unless somebody confirms them, however many newer changes there are.
 */
export const openChanges = queryOptions({
  queryKey: ["changes", "open"],
  queryFn: () =>
    everything((after) =>
      result(client.GET("/api/v1/changes", { params: { query: { limit: PAGE, open: true, after } } })),
    ),
});

/** The changes of an object after a cursor, newest first. */
export const changesOf = (object: string, start: string | undefined, wanted: boolean) =>
  queryOptions({
    queryKey: ["changes", "of", object, start ?? ""],
    queryFn: ({ signal }) =>
      firstItems(
        (after) => result(client.GET("/api/v1/changes", { signal, params: { query: { limit: 50, object, after } } })),
        start,
      ),
    enabled: wanted,
  });

export const change = (id: string) =>
  queryOptions({
    queryKey: ["changes", id],
    queryFn: () => result(client.GET("/api/v1/changes/{id}", { params: { path: { id } } })),
  });

export const audit = (filter: { actor?: string; object?: string; after?: string }) =>
  queryOptions({
    queryKey: ["audit", filter],
    queryFn: ({ signal }) =>
      firstItems(
        (after) => result(client.GET("/api/v1/audit", { signal, params: { query: { limit: 100, ...filter, after } } })),
        filter.after,
      ),
    staleTime: 0,
  });

/** The interval in ms at which counters and rates are read again, because no event reports their changes. */
const OBSERVED = 10_000;

export const attack = (target: string) =>
  queryOptions({
    queryKey: ["attack", target],
    queryFn: () => result(client.GET("/api/v1/attack", { params: { query: target === "" ? {} : { target } } })),
    refetchInterval: OBSERVED,
  });

export const traffic = queryOptions({
  queryKey: ["traffic"],
  queryFn: () => result(client.GET("/api/v1/traffic")),
  refetchInterval: OBSERVED,
});

export const observedFilters = queryOptions({ ...filters, refetchInterval: OBSERVED });

/** What needs attention, with the attacks that are measured. */
export const observedOverview = queryOptions({ ...overview, refetchInterval: OBSERVED });

/** The connections with their present rates. */
export const observedConnections = queryOptions({ ...connections, refetchInterval: OBSERVED });

export const observedTrunks = queryOptions({ ...trunks, refetchInterval: OBSERVED });

export type Packet = {
  destination: string;
  source?: string;
  protocol?: number;
  source_port?: number;
  destination_port?: number;
  fragment?: string;
};

export const explanation = (packet: Packet | undefined) =>
  queryOptions({
    queryKey: ["filters", "explain", packet],
    queryFn: () => result(client.GET("/api/v1/filters/explain", { params: { query: packet ?? { destination: "" } } })),
    enabled: packet !== undefined,
  });

export const bgpSessions = collection(
  "bgp-sessions",
  (query) => client.GET("/api/v1/bgp-sessions", { params: { query } }),
  { refetchInterval: OBSERVED },
);

export const approvals = collection("approvals", (query) => client.GET("/api/v1/approvals", { params: { query } }));

export const serviceKeys = collection("service-keys", (query) =>
  client.GET("/api/v1/service-keys", { params: { query } }),
);

export const apiKeys = collection("api-keys", (query) => client.GET("/api/v1/api-keys", { params: { query } }));

export const webhooks = collection("webhooks", (query) => client.GET("/api/v1/webhooks", { params: { query } }), {
  refetchInterval: OBSERVED,
});

export const deliveries = (webhook: string, wanted: boolean) =>
  queryOptions({
    queryKey: ["webhooks", webhook],
    queryFn: () => result(client.GET("/api/v1/webhooks/{id}/deliveries", { params: { path: { id: webhook } } })),
    enabled: wanted,
    refetchInterval: OBSERVED,
  });

export const lanMembers = (service: string) =>
  queryOptions({
    queryKey: ["services", service, "members"],
    queryFn: () =>
      everything((after) =>
        result(
          client.GET("/api/v1/services/{id}/members", {
            params: { path: { id: service }, query: { limit: PAGE, after } },
          }),
        ),
      ),
  });

export const routeServerSessions = (end: string) =>
  queryOptions({
    queryKey: ["route-servers", end, "sessions"],
    queryFn: () =>
      everything((after) =>
        result(
          client.GET("/api/v1/configs/{id}/route-server-sessions", {
            params: { path: { id: end }, query: { limit: PAGE, after } },
          }),
        ),
      ),
    refetchInterval: OBSERVED,
  });

export const rejectedRoutes = (end: string) =>
  queryOptions({
    queryKey: ["route-servers", end, "rejected"],
    queryFn: () =>
      everything((after) =>
        result(
          client.GET("/api/v1/configs/{id}/rejected-routes", {
            params: { path: { id: end }, query: { limit: PAGE, after } },
          }),
        ),
      ),
    refetchInterval: OBSERVED,
  });

export const memberRoutes = (end: string) =>
  queryOptions({
    queryKey: ["route-servers", end, "routes"],
    queryFn: () =>
      everything((after) =>
        result(
          client.GET("/api/v1/configs/{id}/route-server-routes", {
            params: { path: { id: end }, query: { limit: PAGE, after } },
          }),
        ),
      ),
    refetchInterval: OBSERVED,
  });

export const impact = (trunk: string, wanted: boolean) =>
  queryOptions({
    queryKey: ["trunks", trunk, "impact"],
    queryFn: () => result(client.GET("/api/v1/trunks/{id}/impact", { params: { path: { id: trunk } } })),
    enabled: wanted,
  });

export const contacts = collection("contacts", (query) => client.GET("/api/v1/contacts", { params: { query } }));

export const notices = collection("notices", (query) => client.GET("/api/v1/notices", { params: { query } }), {
  refetchInterval: 60_000,
});

export const policies = collection("policies", (query) => client.GET("/api/v1/policies", { params: { query } }));

export const crossConnects = collection("cross-connects", (query) =>
  client.GET("/api/v1/cross-connects", { params: { query } }),
);

export const groups = collection("groups", (query) => client.GET("/api/v1/groups", { params: { query } }));

export const matrix = queryOptions({
  queryKey: ["matrix"],
  queryFn: () => result(client.GET("/api/v1/matrix")),
  refetchInterval: OBSERVED,
});

/** What a graph shows. */
export type GraphOf =
  | { kind: "connections" | "trunks"; id: string }
  | { kind: "services"; id: string; end: string }
  | { kind: "peers" | "sites" | "exchange" };

/** The time after which a graph is read again, in milliseconds. */
const GRAPH = 60_000;

function readGraph(of: GraphOf, period: Period): Promise<Graph> {
  const query = { period };
  switch (of.kind) {
    case "connections":
      return result(client.GET("/api/v1/series/connections/{id}", { params: { path: { id: of.id }, query } }));
    case "trunks":
      return result(client.GET("/api/v1/series/trunks/{id}", { params: { path: { id: of.id }, query } }));
    case "services":
      return result(
        client.GET("/api/v1/series/services/{id}", { params: { path: { id: of.id }, query: { period, end: of.end } } }),
      );
    case "peers":
      return result(client.GET("/api/v1/series/peers", { params: { query } }));
    case "sites":
      return result(client.GET("/api/v1/series/sites", { params: { query } }));
    case "exchange":
      return result(client.GET("/api/v1/series/exchange", { params: { query } }));
  }
}

export const graph = (of: GraphOf, period: Period, wanted: boolean) =>
  queryOptions({
    queryKey: ["series", of, period],
    queryFn: () => readGraph(of, period),
    refetchInterval: GRAPH,
    enabled: wanted,
  });

/** The 95th percentiles of a month; of the present one without `month`. */
export const billing = (month: string | undefined) =>
  queryOptions({
    queryKey: ["billing", month ?? ""],
    queryFn: () => result(client.GET("/api/v1/billing", { params: { query: month === undefined ? {} : { month } } })),
    // An open page shows the figures of an hour ago at most.
    refetchInterval: 3_600_000,
  });

/** The traffic of the whole exchange over a day, for everybody. */
export const publicTraffic = queryOptions({
  queryKey: ["public", "traffic"],
  queryFn: () => result(client.GET("/api/v1/status/traffic")),
  refetchInterval: GRAPH,
});

export const inventory = (entry: string, wanted: boolean) =>
  queryOptions({
    queryKey: ["switches", entry, "ports"],
    queryFn: () =>
      everything((after) =>
        result(
          client.GET("/api/v1/switches/{id}/ports", { params: { path: { id: entry }, query: { limit: PAGE, after } } }),
        ),
      ),
    enabled: wanted && entry !== "",
  });

/** What is read without a sign-in; no stream tells of its changes. */
export const publicStatus = queryOptions({
  queryKey: ["public", "status"],
  queryFn: () => result(client.GET("/api/v1/status")),
  refetchInterval: 60_000,
});

export const lookingGlass = queryOptions({
  queryKey: ["public", "looking-glass"],
  queryFn: () => result(client.GET("/api/v1/looking-glass")),
  refetchInterval: 60_000,
});
