import type { Coded } from "./types";

/** One wrong value of a request, at a JSON pointer into its body. */
export type InvalidValue = { pointer: string; code: string; detail: string; coded?: Coded[] };

/** A problem document (RFC 9457), as the engine sends for every failed request. */
export type ProblemDocument = {
  type: string;
  title: string;
  status: number;
  detail: string;
  next_step?: string | null;
  code?: string | null;
  coded?: Coded[];
  request_id?: string | null;
  errors?: InvalidValue[];
};

/** A request that failed. Without a problem document the engine was not reached. */
export class RequestError extends Error {
  constructor(
    readonly problem: ProblemDocument | undefined,
    readonly retryAfter: number | undefined = undefined,
  ) {
    super(problem?.detail ?? "the engine did not answer");
    this.name = "RequestError";
  }

  get status(): number {
    return this.problem?.status ?? 0;
  }

  /** True if the same request may succeed later without a change of it. */
  get isTransient(): boolean {
    return this.problem === undefined || this.status === 429 || this.status >= 500;
  }

  /** The error of the value at a pointer, if the problem names it. */
  at(pointer: string): InvalidValue | undefined {
    return this.problem?.errors?.find((error) => error.pointer === pointer);
  }
}

export function isProblem(value: unknown): value is ProblemDocument {
  return typeof value === "object" && value !== null && "status" in value && "detail" in value;
}
