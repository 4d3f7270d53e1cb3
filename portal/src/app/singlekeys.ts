import { useSyncExternalStore } from "react";

const listeners = new Set<() => void>();
let enabled = read();

function read(): boolean {
  try {
    return localStorage.getItem("shortcuts") !== "off";
  } catch {
    return true;
  }
}

/**
 * Turns single-key shortcuts on or off, and remembers the choice: speech input presses keys by accident (WCAG 2.1.4).
 */
export function setSingleKeys(next: boolean) {
  enabled = next;
  try {
    localStorage.setItem("shortcuts", next ? "on" : "off");
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

export function useSingleKeys(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => enabled,
  );
}
