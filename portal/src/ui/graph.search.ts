import type { Period } from "../api/types";

/** The periods of a graph, the shortest first. */
export const PERIODS = ["day", "week", "month", "year"] as const satisfies readonly Period[];

/** Returns the period in the search of an address; an address without one shows a day. */
export function parsePeriod(search: Record<string, unknown>): { period?: Period } {
  const period = PERIODS.find((period) => period === search["period"]);
  return period ? { period } : {};
}
