// The orders that the screens give. Each returns a promise of the engine's answer.
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { client, idempotencyKey, ifMatch, result } from "./client";
import type { NewFilter, Ordered, Vlan } from "./types";

export type EndOrder = { connection: string; vlan: Vlan; capacity_mbps: number | null };
export type PathOrder = { name: string; peer: string | null; end: EndOrder; far_end: EndOrder | null };

/** The orders that a screen can give. Each returns a promise of the engine's answer. */
export const order = {
  path: (body: PathOrder, dryRun: boolean, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/services", {
        body,
        params: { query: { dry_run: dryRun }, header: { "idempotency-key": key } },
      }),
    ),
  redeem: (body: { secret: string; end: EndOrder }, dryRun: boolean, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/service-keys/redeem", {
        body,
        params: { query: { dry_run: dryRun }, header: { "idempotency-key": key } },
      }),
    ),
  accept: (service: string, revision: number, end: EndOrder, dryRun = false) =>
    result<Ordered>(
      client.POST("/api/v1/services/{id}/accept", {
        body: { end },
        params: { path: { id: service }, query: { dry_run: dryRun }, header: headers(revision) },
      }),
    ),
  refuse: (service: string, revision: number, reason: string) =>
    result<Ordered>(
      client.POST("/api/v1/services/{id}/refuse", {
        body: { reason },
        params: { path: { id: service }, header: headers(revision) },
      }),
    ),
  lock: (service: string, revision: number, locked: boolean) =>
    result<Ordered>(
      client.PUT("/api/v1/services/{id}/lock", {
        body: { locked },
        params: { path: { id: service }, header: headers(revision) },
      }),
    ),
  remove: (service: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/services/{id}", { params: { path: { id: service }, header: headers(revision) } }),
    ),
  key: (service: string, hours: number, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/services/{id}/keys", {
        body: { hours },
        params: { path: { id: service }, header: { "idempotency-key": key } },
      }),
    ),
  rate: (end: string, revision: number, capacity_mbps: number | null) =>
    result<Ordered>(
      client.PUT("/api/v1/configs/{id}/rate", {
        body: { capacity_mbps },
        params: { path: { id: end }, header: headers(revision) },
      }),
    ),
  move: (end: string, revision: number, to: { connection: string; vlan: Vlan }, dryRun = false) =>
    result<Ordered>(
      client.PUT("/api/v1/configs/{id}/place", {
        body: to,
        params: { path: { id: end }, query: { dry_run: dryRun }, header: headers(revision) },
      }),
    ),
  leave: (end: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/configs/{id}", { params: { path: { id: end }, header: headers(revision) } }),
    ),
  shutDown: (end: string, revision: number, shut_down: boolean) =>
    result<Ordered>(
      client.PUT("/api/v1/configs/{id}/shut-down", {
        body: { shut_down },
        params: { path: { id: end }, header: headers(revision) },
      }),
    ),
  drain: (trunk: string, revision: number, drained: boolean, confirmWithin = 0, dryRun = false) =>
    result<Ordered>(
      client.PUT("/api/v1/trunks/{id}/drain", {
        body: { drained },
        params: {
          path: { id: trunk },
          query: { dry_run: dryRun, ...(confirmWithin > 0 ? { confirm_within: confirmWithin } : {}) },
          header: headers(revision),
        },
      }),
    ),
};

/** Decisions about changes that are undone unless somebody confirms them. */
export const changeOrder = {
  confirm: (change: string) =>
    result(client.POST("/api/v1/changes/{id}/confirm", { params: { path: { id: change } } })),
  revert: (change: string) => result(client.POST("/api/v1/changes/{id}/revert", { params: { path: { id: change } } })),
};

/** Orders of filters, peering LANs, keys and second persons. */
export const filterOrder = {
  tried: (body: NewFilter) =>
    result<Ordered>(client.POST("/api/v1/filters", { body, params: { query: { dry_run: true } } })),
  create: (body: NewFilter, key: string) =>
    result<Ordered>(client.POST("/api/v1/filters", { body, params: { header: { "idempotency-key": key } } })),
  extend: (filter: string, revision: number, minutes: number) =>
    result<Ordered>(
      client.PUT("/api/v1/filters/{id}", {
        body: { minutes },
        params: { path: { id: filter }, header: headers(revision) },
      }),
    ),
  remove: (filter: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/filters/{id}", { params: { path: { id: filter }, header: headers(revision) } }),
    ),
  recheck: (account: string) =>
    result(client.POST("/api/v1/accounts/{id}/recheck", { params: { path: { id: account } } })),
};

export const lanOrder = {
  join: (service: string, end: EndOrder, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/services/{id}/ends", {
        body: { end },
        params: { path: { id: service }, header: { "idempotency-key": key } },
      }),
    ),
  addMac: (end: string, address: string, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/configs/{id}/macs", {
        body: { address, valid_until: null },
        params: { path: { id: end }, header: { "idempotency-key": key } },
      }),
    ),
  endMac: (mac: string, valid_until: string | null) =>
    result<Ordered>(
      client.PUT("/api/v1/macs/{id}", {
        body: { valid_until },
        params: { path: { id: mac }, header: { "idempotency-key": idempotencyKey() } },
      }),
    ),
  removeMac: (mac: string) =>
    result<Ordered>(
      client.DELETE("/api/v1/macs/{id}", {
        params: { path: { id: mac }, header: { "idempotency-key": idempotencyKey() } },
      }),
    ),
  waive: (end: string, revision: number, reason: string) =>
    result<Ordered>(
      client.POST("/api/v1/configs/{id}/waive", {
        body: { reason },
        params: { path: { id: end }, header: headers(revision) },
      }),
    ),
};

export const secondPerson = {
  approve: (approval: string, revision: number) =>
    result<Ordered>(
      client.POST("/api/v1/approvals/{id}/approve", { params: { path: { id: approval }, header: headers(revision) } }),
    ),
  withdraw: (approval: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/approvals/{id}", { params: { path: { id: approval }, header: headers(revision) } }),
    ),
  deleteTrunk: (trunk: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/trunks/{id}", { params: { path: { id: trunk }, header: headers(revision) } }),
    ),
};

export type LinkKind = "invitation" | "password" | "second_factor";
export type NewPerson = { name: string; email: string | null; roles: string[]; account?: string | null };

export const peopleOrder = {
  add: (body: NewPerson, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/users", {
        body: { account: null, ...body },
        params: { header: { "idempotency-key": key } },
      }),
    ),
  change: (user: string, revision: number, body: { deactivated?: boolean; email?: string; roles?: string[] }) =>
    result<Ordered>(
      client.PUT("/api/v1/users/{id}", { body, params: { path: { id: user }, header: headers(revision) } }),
    ),
  link: (user: string, kind: LinkKind) =>
    result(client.POST("/api/v1/users/{id}/link", { body: { kind }, params: { path: { id: user } } })),
  remove: (user: string, revision: number) =>
    result<Ordered>(client.DELETE("/api/v1/users/{id}", { params: { path: { id: user }, header: headers(revision) } })),
};

/** What the staff enters: members, connections, ports, addresses. */
export const staffOrder = {
  account: (body: { name: string; kind: string; asns: number[]; discoverable: boolean }, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/accounts", {
        body: { ...body, parent: null },
        params: { header: { "idempotency-key": key } },
      }),
    ),
  removeAccount: (account: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/accounts/{id}", { params: { path: { id: account }, header: headers(revision) } }),
    ),
  connection: (body: { account: string; name: string; kind: string; ports: string[] }, key: string) =>
    result<Ordered>(client.POST("/api/v1/connections", { body, params: { header: { "idempotency-key": key } } })),
  removeConnection: (connection: string, revision: number) =>
    result<Ordered>(
      client.DELETE("/api/v1/connections/{id}", { params: { path: { id: connection }, header: headers(revision) } }),
    ),
  ports: (entry: string, revision: number, ports: { number: number; speed_mbps: number }[]) =>
    result<Ordered>(
      client.PUT("/api/v1/switches/{id}/ports", {
        body: { ports },
        params: { path: { id: entry }, header: headers(revision) },
      }),
    ),
  address: (end: string, address: string, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/configs/{id}/ips", {
        body: { address },
        params: { path: { id: end }, header: { "idempotency-key": key } },
      }),
    ),
  removeAddress: (ip: string) =>
    result<Ordered>(
      client.DELETE("/api/v1/ips/{id}", {
        params: { path: { id: ip }, header: { "idempotency-key": idempotencyKey() } },
      }),
    ),
};

export type ContactBody = {
  account?: string | null;
  name: string;
  email: string | null;
  telephone: string | null;
  roles: string[];
};

export const contactOrder = {
  add: (body: ContactBody, key: string) =>
    result(client.POST("/api/v1/contacts", { body, params: { header: { "idempotency-key": key } } })),
  change: (contact: string, body: ContactBody) =>
    result(client.PUT("/api/v1/contacts/{id}", { body, params: { path: { id: contact } } })),
  remove: (contact: string) => result(client.DELETE("/api/v1/contacts/{id}", { params: { path: { id: contact } } })),
};

export type NoticeBody = {
  kind: "maintenance" | "incident";
  title: string;
  about: string;
  begins: string;
  ends: string | null;
  objects: string[];
  public: boolean;
};

export const noticeOrder = {
  preview: (body: NoticeBody) => result(client.POST("/api/v1/notices/preview", { body })),
  add: (body: NoticeBody, key: string) =>
    result(client.POST("/api/v1/notices", { body, params: { header: { "idempotency-key": key } } })),
  change: (notice: string, body: NoticeBody) =>
    result(client.PUT("/api/v1/notices/{id}", { body, params: { path: { id: notice } } })),
  cancel: (notice: string) => result(client.DELETE("/api/v1/notices/{id}", { params: { path: { id: notice } } })),
};

export const calendarOrder = {
  make: () => result(client.PUT("/api/v1/calendar")),
  end: () => result(client.DELETE("/api/v1/calendar")),
};

export type StepBody = {
  step: "authorise" | "place" | "install" | "cancel" | "remove";
  demarcation?: string | null;
  order_number?: string | null;
  note?: string | null;
};

export const crossConnectOrder = {
  add: (
    body: { account?: string | null; site: string; member_side: string; medium: string; note: string | null },
    key: string,
  ) => result(client.POST("/api/v1/cross-connects", { body, params: { header: { "idempotency-key": key } } })),
  step: (order: string, body: StepBody, key: string) =>
    result(
      client.POST("/api/v1/cross-connects/{id}/steps", {
        body,
        params: { path: { id: order }, header: { "idempotency-key": key } },
      }),
    ),
};

export const groupOrder = {
  add: (body: { name: string; end: EndOrder; members: string[] }, key: string) =>
    result<Ordered>(client.POST("/api/v1/groups", { body, params: { header: { "idempotency-key": key } } })),
  members: (group: string, members: string[]) =>
    result(client.PUT("/api/v1/groups/{id}/members", { body: { members }, params: { path: { id: group } } })),
  remove: (group: string, account: string, key: string) =>
    result<Ordered>(
      client.DELETE("/api/v1/groups/{id}/members/{account}", {
        params: { path: { id: group, account }, header: { "idempotency-key": key } },
      }),
    ),
  join: (group: string, end: EndOrder, key: string) =>
    result<Ordered>(
      client.POST("/api/v1/groups/{id}/join", {
        body: { end },
        params: { path: { id: group }, header: { "idempotency-key": key } },
      }),
    ),
};

/** The requests of pages that letters lead to, without a sign-in. */
export const publicOrder = {
  readLink: (token: string) => result(client.POST("/api/v1/session/links/read", { body: { token } })),
  useLink: (token: string, password: string, code: string | null) =>
    result(client.POST("/api/v1/session/links/use", { body: { token, password, code } })),
  forgotten: (name: string) => result(client.POST("/api/v1/session/forgotten", { body: { name } })),
  routes: (prefix: string) => result(client.GET("/api/v1/looking-glass/routes", { params: { query: { prefix } } })),
  letter: (code: string) => result(client.POST("/api/v1/letters", { body: { code } })),
};

export const webhookOrder = {
  create: (url: string) => result(client.POST("/api/v1/webhooks", { body: { url } })),
  remove: (webhook: string) => result(client.DELETE("/api/v1/webhooks/{id}", { params: { path: { id: webhook } } })),
  replay: (webhook: string) =>
    result(client.POST("/api/v1/webhooks/{id}/replay", { body: { after: 0 }, params: { path: { id: webhook } } })),
};

export const keyOrder = {
  create: (name: string, scope: "read" | "write") => result(client.POST("/api/v1/api-keys", { body: { name, scope } })),
  remove: (key: string) => result(client.DELETE("/api/v1/api-keys/{id}", { params: { path: { id: key } } })),
  revoke: (key: string) =>
    result<Ordered>(
      client.DELETE("/api/v1/service-keys/{id}", {
        params: { path: { id: key }, header: { "if-match": "*", "idempotency-key": idempotencyKey() } },
      }),
    ),
  password: (present: string, next: string) =>
    result(client.PUT("/api/v1/session/password", { body: { present, new: next } })),
};

function headers(revision: number) {
  return { "if-match": ifMatch(revision), "idempotency-key": idempotencyKey() };
}

/** The collections that an order may change. */
const CHANGED_BY_ORDERS = [
  "services",
  "overview",
  "connections",
  "changes",
  "trunks",
  "filters",
  "attack",
  "approvals",
  "service-keys",
  "api-keys",
  "users",
  "webhooks",
  "accounts",
  "switches",
  "contacts",
  "notices",
  "cross-connects",
  "groups",
];

/** Returns a function that runs an order and then reads again what it may have changed. */
export function useOrder<Arguments extends unknown[], Answer = Ordered>(act: (...given: Arguments) => Promise<Answer>) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (given: Arguments) => act(...given),
    onSettled: () => {
      // The stream tells every tab; this tab does not wait for it.
      for (const collection of CHANGED_BY_ORDERS) {
        void queries.invalidateQueries({ queryKey: [collection] });
      }
    },
  });
}
