import { useCallback, useEffect, useState } from "react";

/** Keeps a draft in the browser, so that a reload, a crash or an expired session loses nothing that was typed. */
export function useDraft<T extends object>(key: string, empty: T): [T, (next: T) => void, () => void] {
  const [draft, setDraft] = useState<T>(() => read(key, empty));
  useEffect(() => {
    try {
      localStorage.setItem(key, JSON.stringify(draft));
    } catch {
      // Without storage the draft lives as long as the screen.
    }
  }, [key, draft]);
  const clear = useCallback(() => setDraft(empty), [empty]);
  return [draft, setDraft, clear];
}

function read<T extends object>(key: string, empty: T): T {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
    // Fields that an older page did not have take their empty value.
    return typeof stored === "object" && stored !== null ? { ...empty, ...stored } : empty;
  } catch {
    return empty;
  }
}
