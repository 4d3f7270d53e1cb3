import type { Ordered } from "../api/types";
import { useText } from "../i18n/text";
import { explain } from "./loaded";
import { Notice } from "./parts";

/** The answer to a dry run. */
export type Tried = { outcome: Ordered } | { error: unknown };

/** What an order would do, or why it would be refused. */
export function DryRun({ tried }: { tried: Tried }) {
  const t = useText();
  return "outcome" in tried ? <Planned outcome={tried.outcome} /> : <Notice tone="bad" title={explain(t, tried.error)} live />;
}

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
