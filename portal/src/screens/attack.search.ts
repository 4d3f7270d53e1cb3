export type AttackSearch = { target?: string };

/** Returns the search of the address; an address without a target shows the one with the greatest excess. */
export function parseAttackSearch(search: Record<string, unknown>): AttackSearch {
  const target = search["target"];
  return typeof target === "string" && target !== "" ? { target } : {};
}
