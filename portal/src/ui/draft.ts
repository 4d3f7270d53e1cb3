import { useCallback, useEffect, useState } from "react";

/**
 * Keeps a draft in the browser, so that a reload, a crash or an expired session loses nothing that was typed. `stored`
 * returns the part that may be kept: it leaves out secrets.
 */
export function useDraft<T extends object>(
  key: string,
  empty: T,
  stored: (draft: T) => object = (draft) => draft,
): [T, (next: T) => void, () => void] {
  const [draft, setDraft] = useState<T>(() => read(key, empty, stored));
  useEffect(() => {
    try {
      if (draft === empty) localStorage.removeItem(key);
      else localStorage.setItem(key, JSON.stringify(stored(draft)));
    } catch {
      // Without storage the draft lives as long as the screen.
    }
  }, [key, draft, empty, stored]);
  const clear = useCallback(() => setDraft(empty), [empty]);
  return [draft, setDraft, clear];
}

/** Removes the drafts whose keys begin with a text. */
export function forgetDrafts(prefix: string) {
  try {
    for (const key of Object.keys(localStorage)) if (key.startsWith(prefix)) localStorage.removeItem(key);
  } catch {
    // Without storage there are no drafts.
  }
}

function read<T extends object>(key: string, empty: T, stored: (draft: T) => object): T {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? "null");
    // Fields that an older page did not have take their empty value, and those that it should not have kept are left
    // out.
    return typeof found === "object" && found !== null ? { ...empty, ...stored({ ...empty, ...found }) } : empty;
  } catch {
    return empty;
  }
}
