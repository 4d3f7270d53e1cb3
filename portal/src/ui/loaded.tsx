import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { RequestError } from "../api/problem";
import { Age } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText, type Translate } from "../i18n/text";
import { Button, Notice, Skeleton } from "./parts";

/** The problems that the page explains in the reader's language, by their `code`, or else by their kind. */
const EXPLAINED: Record<string, MessageId> = {
  "too-many-attempts": "problem.attempts",
  "wrong-credentials": "problem.credentials",
  "wrong-code": "problem.code",
  "wrong-answer": "problem.wrongAnswer",
  "provider-away": "problem.providerAway",
  "provider-refused": "problem.providerRefused",
  "unknown-network": "problem.unknownNetwork",
  "vlan-taken": "problem.vlanTaken",
  "name-taken": "problem.nameTaken",
  "over-capacity": "problem.overCapacity",
  locked: "problem.locked",
  "not-owner": "problem.notOwner",
  "session-required": "problem.sessionRequired",
  "key-reused": "problem.keyReused",
  "no-second-factor": "problem.noSecondFactor",
  "mail-off": "problem.mailOff",
  "mail-missing": "problem.mailMissing",
  "link-over": "problem.linkOver",
  "contact-incomplete": "problem.contactIncomplete",
  "no-letter": "problem.noLetter",
  "prefix-malformed": "problem.prefix",
  "not-found": "problem.notFound",
  forbidden: "problem.forbidden",
  stale: "problem.stale",
  unavailable: "problem.unavailable",
  internal: "problem.internal",
  busy: "problem.busy",
};

/** Returns the words for what went wrong. A reason without a translation is shown as the engine wrote it. */
export function explain(t: Translate, error: unknown): string {
  if (!(error instanceof RequestError) || !error.problem) return t("problem.network");
  const { problem } = error;
  const kind = problem.type.split("/").pop() ?? "";
  const known = (problem.code && EXPLAINED[problem.code]) || EXPLAINED[kind];
  const detail = t.reason(problem.coded, problem.detail);
  return known ? t(known, { seconds: error.retryAfter ?? 0, detail }) : detail;
}

/** Says what happened, whether the page tries again, and gives the next step. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const t = useText();
  const transient = error instanceof RequestError && error.isTransient;
  const problem = error instanceof RequestError ? error.problem : undefined;
  const { language } = useLanguage();
  // The engine writes next steps in English only; in other languages the reason says them.
  const next = language === "en" || !problem?.coded?.length ? problem?.next_step : null;
  return (
    <Notice tone="bad" title={explain(t, error)} live>
      <div className="stack tight">
        {next ? <p>{next}</p> : null}
        {transient ? <p>{t("load.retrying")}</p> : null}
        <div className="row">
          {retry ? <Button onPress={retry}>{t("act.retry")}</Button> : null}
          {problem ? (
            <span className="quiet small">
              {t("load.support")} <code>{`${problem.type.split("/").pop()} ${problem.status}`}</code>
            </span>
          ) : null}
        </div>
      </div>
    </Notice>
  );
}

/**
 * Shows what a query read, with its loading, error, empty and stale states. In a panel without padding the data fills
 * the width, as a table or a list, and every other state is padded.
 */
export function Loaded<T>({
  query,
  children,
  lines = 4,
  empty,
  fills,
}: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
  lines?: number;
  empty?: { when: (data: T) => boolean; show: ReactNode };
  fills?: "table" | "list";
}) {
  const t = useText();
  const retry = () => void query.refetch();
  const padded = (content: ReactNode) => (fills ? <div className="panel-body">{content}</div> : content);
  if (query.data === undefined) {
    return padded(query.isError ? <Failure error={query.error} retry={retry} /> : <Skeleton lines={lines} />);
  }
  const shown = (data: T) => (fills === "table" ? <div className="table-wrap">{children(data)}</div> : children(data));
  return (
    <>
      {query.isError
        ? padded(
            <Notice tone="wait" title={<span role="status">{t("load.stale")}</span>}>
              <div className="row">
                <span>
                  {explain(t, query.error)} {t("load.readAt")} <Age at={query.dataUpdatedAt} />
                </span>
                <Button onPress={retry}>{t("act.retry")}</Button>
              </div>
            </Notice>,
          )
        : null}
      {empty?.when(query.data) ? padded(empty.show) : shown(query.data)}
    </>
  );
}
