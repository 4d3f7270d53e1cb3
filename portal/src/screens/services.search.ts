/** The columns that can be hidden. */
export const COLUMNS = ["with", "ends", "rate"] as const;
export type Column = (typeof COLUMNS)[number];

export type ServicesSearch = { q: string; state: string; hide?: Column[] };

/** Returns the search of the address; values that are not text are ignored. */
export function parseServicesSearch(search: Record<string, unknown>): ServicesSearch {
  const text = (value: unknown) => (typeof value === "string" || typeof value === "number" ? String(value) : "");
  const hidden = text(search["hide"]) === "" && Array.isArray(search["hide"]) ? search["hide"] : [];
  const hide = COLUMNS.filter((column) => hidden.includes(column));
  return { q: text(search["q"]), state: text(search["state"]), ...(hide.length > 0 ? { hide } : {}) };
}
