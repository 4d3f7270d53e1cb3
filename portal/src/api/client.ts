import createClient from "openapi-fetch";

import { isProblem, RequestError } from "./problem";
import type { paths } from "./schema";

/** Called when a request finds that the session has ended. */
let onSessionEnd: () => void = () => {};

export function watchSession(listener: () => void) {
  onSessionEnd = listener;
}

/** Asks if the session has ended, and tells the listener if it has. */
export async function checkSession(): Promise<void> {
  try {
    const { response } = await client.GET("/api/v1/session");
    if (response.status === 401) onSessionEnd();
  } catch {
    // Without an answer nothing is known about the session.
  }
}

/** The client for the engine's API. Its paths, parameters and answers are typed by the engine's own description. */
export const client = createClient<paths>({
  baseUrl: typeof location === "undefined" ? "http://localhost" : location.origin,
  credentials: "same-origin",
  // The reference is looked up at each call, so that tests can replace it.
  fetch: (request) => globalThis.fetch(request),
});

/** An answer as the client returns it. */
export type Outcome<T> = { data?: T; error?: unknown; response: Response };

/** Returns the data of an answer, or throws what went wrong as a `RequestError`. */
export async function result<T>(request: Promise<Outcome<T>>): Promise<T> {
  let outcome: Outcome<T>;
  try {
    outcome = await request;
  } catch {
    // fetch fails only if no answer arrived: the network, or the engine is not running.
    throw new RequestError(undefined);
  }
  const { data, error, response } = outcome;
  if (response.ok) return data as T;
  const retryAfter = Number(response.headers.get("retry-after") ?? Number.NaN);
  const problem = isProblem(error) ? error : undefined;
  if (response.status === 401 && !response.url.endsWith("/session")) onSessionEnd();
  throw new RequestError(
    problem ?? {
      type: "about:blank",
      title: response.statusText,
      status: response.status,
      detail: `HTTP ${response.status}`,
    },
    Number.isNaN(retryAfter) ? undefined : retryAfter,
  );
}

/** Returns a new key by which the engine recognises a repeated request. */
export function idempotencyKey(): string {
  // randomUUID needs a secure context; getRandomValues does not.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns the value of If-Match for a revision. */
export function ifMatch(revision: number): string {
  return `"${revision}"`;
}
