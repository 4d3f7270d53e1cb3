import { cleanup } from "@testing-library/react";
import { afterEach } from "vitest";

// jsdom has no CSS.escape (CSSOM); React Aria looks for meta elements with it.
globalThis.CSS ??= { escape: (text: string) => text.replace(/[^\w-]/g, "\\$&") } as typeof CSS;

afterEach(cleanup);
