import { RequestError } from "../api/problem";

/** A value that a form itself refuses, before the engine is asked. */
export class InvalidField extends RequestError {
  constructor(detail: string) {
    super({ type: "form", title: "", status: 422, detail });
  }
}
