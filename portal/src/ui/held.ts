import { useMemo, useRef, useState, type RefObject } from "react";

/**
 * Keeps the order and the members of a list while the pointer or the focus is in it, so that a live update never moves
 * a row that the reader is about to press. Contents of rows change in place; new and gone rows wait. A change that the
 * reader asks for, such as another filter (`asked`), is shown at once.
 */
export function useHeld<T>(items: T[], key: (item: T) => string, within: RefObject<HTMLElement | null>, asked: string) {
  const [busy, setBusy] = useState(false);
  const order = useRef<string[]>([]);
  const known = useRef(new Map<string, T>());
  const [released, setReleased] = useState(0);
  const askedBefore = useRef(asked);

  return useMemo(() => {
    const fresh = new Map(items.map((item) => [key(item), item]));
    const same = order.current.length === items.length && order.current.every((id) => fresh.has(id));
    // A row that is gone keeps its last contents until the list is released.
    if (!busy || order.current.length === 0 || same || askedBefore.current !== asked) {
      askedBefore.current = asked;
      order.current = items.map(key);
    }
    const shown: T[] = [];
    for (const id of order.current) {
      const item = fresh.get(id) ?? known.current.get(id);
      if (item !== undefined) shown.push(item);
    }
    known.current = new Map(shown.map((item) => [key(item), item]));
    const shownIds = new Set(order.current);
    const waiting =
      items.filter((item) => !shownIds.has(key(item))).length + order.current.filter((id) => !fresh.has(id)).length;
    return {
      items: shown,
      waiting,
      release: () => {
        order.current = [];
        setReleased(released + 1);
      },
      handlers: {
        onPointerEnter: () => setBusy(true),
        onPointerLeave: () => setBusy(within.current?.contains(document.activeElement) ?? false),
        onFocus: () => setBusy(true),
        onBlur: (event: React.FocusEvent) => {
          if (!within.current?.contains(event.relatedTarget)) setBusy(within.current?.matches(":hover") ?? false);
        },
      },
    };
  }, [items, key, busy, released, within, asked]);
}
