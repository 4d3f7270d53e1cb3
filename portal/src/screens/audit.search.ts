export type AuditSearch = { actor?: string; object?: string; after?: string };

export function parseAuditSearch(search: Record<string, unknown>): AuditSearch {
  const text = (value: unknown) =>
    typeof value === "string" && value !== "" ? value : typeof value === "number" ? String(value) : undefined;
  const [actor, object, after] = [text(search["actor"]), text(search["object"]), text(search["after"])];
  return { ...(actor ? { actor } : {}), ...(object ? { object } : {}), ...(after ? { after } : {}) };
}
