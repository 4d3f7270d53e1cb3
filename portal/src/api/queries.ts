import { QueryClient, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { client, idempotencyKey, ifMatch, result } from "./client";
import { RequestError } from "./problem";
import type { Ordered, Vlan } from "./types";

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
        refetchInterval: (query) => (query.state.error instanceof RequestError && query.state.error.isTransient ? 5_000 : false),
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
  for (let after: string | undefined; ; ) {
    const page = await read(after);
    items.push(...page.items);
    if (page.next === null) return items;
    after = page.next;
  }
}

export const session = queryOptions({
  queryKey: ["session"],
  queryFn: () => result(client.GET("/api/v1/session")),
});

export const overview = queryOptions({
  queryKey: ["overview"],
  queryFn: () => result(client.GET("/api/v1/overview")),
});

export const accounts = queryOptions({
  queryKey: ["accounts"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/accounts", { params: { query: { limit: PAGE, after } } }))),
});

export const users = queryOptions({
  queryKey: ["users"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/users", { params: { query: { limit: PAGE, after } } }))),
});

export const connections = queryOptions({
  queryKey: ["connections"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/connections", { params: { query: { limit: PAGE, after } } }))),
});

export const vlans = (connection: string) =>
  queryOptions({
    queryKey: ["services", "vlans", connection],
    queryFn: () => result(client.GET("/api/v1/connections/{id}/vlans", { params: { path: { id: connection } } })),
    enabled: connection !== "",
  });

export const services = queryOptions({
  queryKey: ["services", "all"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/services", { params: { query: { limit: PAGE, after } } }))),
});

export const service = (id: string) =>
  queryOptions({
    queryKey: ["services", id],
    queryFn: () => result(client.GET("/api/v1/services/{id}", { params: { path: { id } } })),
  });

export const filters = queryOptions({
  queryKey: ["filters"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/filters", { params: { query: { limit: PAGE, after } } }))),
});

export const switches = queryOptions({
  queryKey: ["switches"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/switches", { params: { query: { limit: PAGE, after } } }))),
});

export const trunks = queryOptions({
  queryKey: ["trunks"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/trunks", { params: { query: { limit: PAGE, after } } }))),
});

export const sites = queryOptions({
  queryKey: ["sites"],
  queryFn: () => everything((after) => result(client.GET("/api/v1/sites", { params: { query: { limit: PAGE, after } } }))),
});

export const changes = queryOptions({
  queryKey: ["changes", "newest"],
  queryFn: () => result(client.GET("/api/v1/changes", { params: { query: { limit: 100 } } })),
});

export const change = (id: string) =>
  queryOptions({
    queryKey: ["changes", id],
    queryFn: () => result(client.GET("/api/v1/changes/{id}", { params: { path: { id } } })),
  });

export const audit = (filter: { actor?: string; object?: string; after?: string }) =>
  queryOptions({
    queryKey: ["audit", filter],
    queryFn: () => result(client.GET("/api/v1/audit", { params: { query: { limit: 100, ...filter } } })),
    staleTime: 0,
  });

export type EndOrder = { connection: string; vlan: Vlan; capacity_mbps: number | null };
export type PathOrder = { name: string; peer: string | null; end: EndOrder; far_end: EndOrder | null };

/** The orders that a screen can give. Each returns a promise of the engine's answer. */
export const order = {
  path: (body: PathOrder, dryRun: boolean, key: string) =>
    result<Ordered>(client.POST("/api/v1/services", { body, params: { query: { dry_run: dryRun }, header: { "idempotency-key": key } } })),
  redeem: (body: { secret: string; end: EndOrder }, dryRun: boolean, key: string) =>
    result<Ordered>(client.POST("/api/v1/service-keys/redeem", { body, params: { query: { dry_run: dryRun }, header: { "idempotency-key": key } } })),
  accept: (service: string, revision: number, end: EndOrder, dryRun = false) =>
    result<Ordered>(client.POST("/api/v1/services/{id}/accept", { body: { end }, params: { path: { id: service }, query: { dry_run: dryRun }, header: headers(revision) } })),
  refuse: (service: string, revision: number, reason: string) =>
    result<Ordered>(client.POST("/api/v1/services/{id}/refuse", { body: { reason }, params: { path: { id: service }, header: headers(revision) } })),
  lock: (service: string, revision: number, locked: boolean) =>
    result<Ordered>(client.PUT("/api/v1/services/{id}/lock", { body: { locked }, params: { path: { id: service }, header: headers(revision) } })),
  remove: (service: string, revision: number) =>
    result<Ordered>(client.DELETE("/api/v1/services/{id}", { params: { path: { id: service }, header: headers(revision) } })),
  key: (service: string, hours: number) =>
    result<Ordered>(client.POST("/api/v1/services/{id}/keys", { body: { hours }, params: { path: { id: service }, header: { "idempotency-key": idempotencyKey() } } })),
  rate: (end: string, revision: number, capacity_mbps: number | null) =>
    result<Ordered>(client.PUT("/api/v1/configs/{id}/rate", { body: { capacity_mbps }, params: { path: { id: end }, header: headers(revision) } })),
  move: (end: string, revision: number, to: { connection: string; vlan: Vlan }, dryRun = false) =>
    result<Ordered>(client.PUT("/api/v1/configs/{id}/place", { body: to, params: { path: { id: end }, query: { dry_run: dryRun }, header: headers(revision) } })),
  shutDown: (end: string, revision: number, shut_down: boolean) =>
    result<Ordered>(client.PUT("/api/v1/configs/{id}/shut-down", { body: { shut_down }, params: { path: { id: end }, header: headers(revision) } })),
  drain: (trunk: string, revision: number, drained: boolean, dryRun = false) =>
    result<Ordered>(client.PUT("/api/v1/trunks/{id}/drain", { body: { drained }, params: { path: { id: trunk }, query: { dry_run: dryRun }, header: headers(revision) } })),
};

function headers(revision: number) {
  return { "if-match": ifMatch(revision), "idempotency-key": idempotencyKey() };
}

/** Returns a function that runs an order and then reads again what it may have changed. */
export function useOrder<Arguments extends unknown[]>(act: (...given: Arguments) => Promise<Ordered>) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (given: Arguments) => act(...given),
    onSettled: () => {
      // The stream tells every tab; this tab does not wait for it.
      for (const collection of ["services", "overview", "connections", "changes", "trunks", "filters"]) {
        void queries.invalidateQueries({ queryKey: [collection] });
      }
    },
  });
}
