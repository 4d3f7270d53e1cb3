export type ServicesSearch = { q: string; state: string };

/** Returns the search of the address; what is no text is ignored. */
export function parseServicesSearch(search: Record<string, unknown>): ServicesSearch {
  const text = (value: unknown) => (typeof value === "string" || typeof value === "number" ? String(value) : "");
  return { q: text(search["q"]), state: text(search["state"]) };
}
