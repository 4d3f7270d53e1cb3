import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { Preferences } from "../app/preferences";
import { useText } from "../i18n/text";

/** The frame of the pages that need no sign-in. */
export function PublicFrame({ children }: { children: ReactNode }) {
  const t = useText();
  return (
    <main id="main" className="main public" tabIndex={-1}>
      <nav className="row spread" aria-label={t("nav.label")}>
        <span className="row">
          <Link to="/status">{t("nav.status")}</Link>
          <Link to="/looking-glass">{t("nav.lookingGlass")}</Link>
          <Link to="/">{t("signin.title")}</Link>
        </span>
        <Preferences />
      </nav>
      {children}
    </main>
  );
}
