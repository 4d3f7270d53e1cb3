import type { Ordered } from "../api/types";
import { useText } from "../i18n/text";
import { Notice } from "./parts";

/** What an order would do, in words and numbers. */
export function Planned({ outcome }: { outcome: Ordered }) {
  const t = useText();
  return (
    <Notice tone="ok" title={t("plan.valid")} live>
      <div className="stack tight">
        {outcome.vlan ? <p>{t("plan.vlan", { vlan: outcome.vlan })}</p> : null}
        {outcome.plan.length === 0 ? (
          <p>{t("plan.nothing")}</p>
        ) : (
          <ul>
            {outcome.plan.map((entry) => (
              <li key={entry.switch}>{t("plan.switch", { switch: entry.switch, added: entry.added, changed: entry.changed, removed: entry.removed })}</li>
            ))}
          </ul>
        )}
      </div>
    </Notice>
  );
}
