export type BillingSearch = { month?: string };

/** Returns the search of the address; an address without a month shows the present one. */
export function parseBillingSearch(search: Record<string, unknown>): BillingSearch {
  const month = search["month"];
  return typeof month === "string" && /^\d{4}-(0[1-9]|1[0-2])$/.test(month) ? { month } : {};
}
