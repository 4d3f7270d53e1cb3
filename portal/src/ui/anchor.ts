import { useEffect } from "react";

/**
 * Brings the element that the address names by `#id` into view when its list is read, because the router looks for it
 * before that.
 */
export function useAnchor(isRead: boolean) {
  useEffect(() => {
    const id = location.hash.slice(1);
    if (isRead && id !== "") document.getElementById(id)?.scrollIntoView();
  }, [isRead]);
}
