import type { Ordered } from "../api/types";
import { useText } from "../i18n/text";
import { explain } from "./loaded";
import { Notice } from "./parts";

/** The answer to a dry run. */
export type Tried = { outcome: Ordered } | { error: unknown };

/** What an order would do, or why it would be refused. */
export function DryRun({ tried }: { tried: Tried }) {
  const t = useText();
  return "outcome" in tried ? (
    <Planned outcome={tried.outcome} />
  ) : (
    <Notice tone="bad" title={explain(t, tried.error)} live />
  );
}

/** The number of sentences that are shown at once; the others open on request. */
const SHOWN = 10;

/** The frames that take other ways, each in a sentence. The engine's sentences are in English. */
function Effects({ effects }: { effects: string[] }) {
  const t = useText();
  const list = (some: string[]) => (
    <ul lang="en">
      {some.map((effect) => (
        <li key={effect}>{effect}</li>
      ))}
    </ul>
  );
  if (effects.length === 0) return null;
  return (
    <>
      <p>{t("plan.effects")}</p>
      {list(effects.slice(0, SHOWN))}
      {effects.length > SHOWN ? (
        <details>
          <summary>{t("plan.more", { count: effects.length - SHOWN })}</summary>
          {list(effects.slice(SHOWN))}
        </details>
      ) : null}
    </>
  );
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
              <li key={entry.switch}>
                {t("plan.switch", {
                  switch: entry.switch,
                  added: entry.added,
                  changed: entry.changed,
                  removed: entry.removed,
                })}
              </li>
            ))}
          </ul>
        )}
        <Effects effects={outcome.effects ?? []} />
      </div>
    </Notice>
  );
}
