import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";

import { order, useOrder } from "../api/orders";
import { RequestError } from "../api/problem";
import { changesOf, service as serviceQuery } from "../api/queries";
import type { Service as ServiceView, Stage } from "../api/types";
import { useMe } from "../app/shell";
import { Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ChangeLink } from "../ui/changelink";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Ident } from "../ui/ident";
import { Loaded } from "../ui/loaded";
import { OlderPages } from "../ui/older";
import { Crumb, Empty, Notice, Panel, ScreenHead } from "../ui/parts";
import { PathDrawing } from "../ui/path";
import { Table } from "../ui/table";
import { kindWord, StateOf, statusText } from "../ui/words";
import { EndPanel, FarEndMissing } from "./service.end";
import { Invitation } from "./service.invitation";

const STAGES: Record<string, MessageId> = {
  ordered: "stage.ordered",
  consented: "stage.consented",
  configured: "stage.configured",
  installed: "stage.installed",
  quarantine: "stage.quarantine",
  production: "stage.production",
  removed: "stage.removed",
};

/** One service: its stages in words, both ends, its path, and what can be done. */
export function Service() {
  const t = useText();
  const { id } = useParams({ strict: false }) as { id: string };
  const query = useQuery(serviceQuery(id));
  const missing = query.error instanceof RequestError && query.error.status === 404;
  const service = query.data;
  return (
    <>
      <ScreenHead
        title={service?.name ?? id}
        above={<Crumb to="/services">{t("nav.services")}</Crumb>}
        below={
          service ? (
            <span className="row">
              <StateOf state={service.state} />
              <span className="quiet">
                <Ident id={service.id} /> {kindWord(t, service.kind)}
              </span>
              {service.locked_by ? (
                <span className="quiet">{t("service.lockedBy", { account: service.locked_by.name })}</span>
              ) : null}
            </span>
          ) : null
        }
      />
      {missing && !service ? (
        <Empty title={t("service.absent")}>{t("service.absentAbout")}</Empty>
      ) : (
        <Loaded query={query} lines={10}>
          {(service) => (
            // Secrets and drafts belong to one service: another one begins without them.
            <div key={service.id} className="stack">
              {service.can.includes("accept") && service.consent === "pending" ? (
                <Invitation service={service} />
              ) : null}
              {service.status
                .filter((status) => !(status.tag === "waiting_for_peer" && service.can.includes("accept")))
                .map((status) => (
                  <Notice
                    key={status.tag}
                    tone={status.severity === "error" ? "bad" : status.severity === "warning" ? "wait" : "off"}
                    title={statusText(t, status)}
                  >
                    {status.tag === "refused" && service.refused_because
                      ? t("service.because", { reason: service.refused_because })
                      : null}
                  </Notice>
                ))}
              <Panel title={t("service.life")}>
                <Timeline stages={service.stages} />
              </Panel>
              <div className="ends">
                {service.ends.map((end) => (
                  <EndPanel key={end.id} end={end} service={service} />
                ))}
                {service.kind === "p2p_vc" && service.ends.length < 2 ? <FarEndMissing service={service} /> : null}
              </div>
              {service.path.length > 0 ? (
                <Panel title={t("service.path")}>
                  <PathDrawing hops={service.path} />
                </Panel>
              ) : null}
              <ServiceActs service={service} />
              <History service={service} />
            </div>
          )}
        </Loaded>
      )}
    </>
  );
}

/** The stages of a service in words; the current stage is marked. */
export function Timeline({ stages }: { stages: Stage[] }) {
  const t = useText();
  return (
    <ol className="timeline">
      {stages.map((stage) => {
        const known = STAGES[stage.stage];
        return (
          <li
            key={stage.stage}
            data-state={stage.state}
            {...(stage.state === "current" ? { "aria-current": "step" as const } : {})}
          >
            <span className="timeline-mark" aria-hidden="true" />
            <span>{known ? t(known) : stage.stage}</span>
            <span className="visually-hidden">
              {t(
                stage.state === "done"
                  ? "steps.done"
                  : stage.state === "current"
                    ? "steps.now"
                    : stage.state === "failed"
                      ? "steps.failed"
                      : "steps.later",
              )}
            </span>
          </li>
        );
      })}
    </ol>
  );
}

function ServiceActs({ service: live }: { service: ServiceView }) {
  const t = useText();
  const [service, hold] = useAsOpened(live);
  const navigate = useNavigate();
  const [secret, setSecret] = useState<string>();
  const lock = useOrder(order.lock);
  const remove = useOrder(order.remove);
  const makeKey = useOrder(order.key);
  const locked = service.locked_by !== null;
  const canLock = service.can.includes(locked ? "unlock" : "lock");
  const canMakeKey =
    service.can.includes("create_service_key") &&
    service.kind === "p2p_vc" &&
    service.peer === null &&
    service.ends.length < 2;
  const canDelete = service.can.includes("delete_service");
  if (secret === undefined && !canLock && !canMakeKey && !canDelete) return null;
  return (
    <Panel title={t("service.acts")}>
      <div className="stack">
        {secret ? (
          <Notice tone="ok" title={t("service.keyMade")} live>
            <p>{t("service.keyOnce")}</p>
            <code className="secret">{secret}</code>
          </Notice>
        ) : null}
        <div className="buttons">
          {canMakeKey ? (
            <ConfirmedAct
              label={t("service.makeKey")}
              title={t("service.makeKey")}
              sentence={t("service.makeKeyAbout")}
              hold={hold}
              act={(keyOf) =>
                makeKey
                  .mutateAsync([service.id, 72, keyOf(service.id)])
                  .then((outcome) => setSecret(outcome.secret ?? undefined))
              }
            />
          ) : null}
          {canLock ? (
            <ConfirmedAct
              label={t(locked ? "service.unlock" : "service.lock")}
              title={t(locked ? "service.unlock" : "service.lock")}
              sentence={t(locked ? "service.unlockAbout" : "service.lockAbout")}
              hold={hold}
              act={() => lock.mutateAsync([service.id, service.revision, !locked])}
            />
          ) : null}
          {canDelete ? (
            <ConfirmedAct
              label={t("service.delete")}
              title={t("service.deleteTitle", { service: service.name })}
              sentence={
                locked ? t("service.lockedBy", { account: service.locked_by?.name ?? "" }) : t("service.deleteAbout")
              }
              kind="danger"
              isDisabled={locked}
              hold={hold}
              act={() =>
                remove
                  .mutateAsync([service.id, service.revision])
                  .then(() => navigate({ to: "/services", search: { q: "", state: "" } }))
              }
            />
          ) : null}
        </div>
      </div>
    </Panel>
  );
}

/** The changes of a service: who ordered each, when, and how far it has come. */
function History({ service }: { service: ServiceView }) {
  const t = useText();
  const me = useMe();
  const permitted = me.can.includes("read_changes");
  const [after, setAfter] = useState<string>();
  const query = useQuery(changesOf(service.id, after, permitted));
  if (!permitted) return null;
  return (
    <Panel title={t("service.history")} flush>
      <Loaded
        fills="table"
        query={query}
        lines={3}
        empty={{ when: (page) => page.items.length === 0, show: <p className="quiet">{t("service.noHistory")}</p> }}
      >
        {(page) => (
          <Table
            rows={page.items}
            keyOf={(change) => change.id}
            columns={[
              {
                title: t("changes.change"),
                cell: (change) => <ChangeLink change={change} />,
              },
              { title: t("changes.when"), cell: (change) => <Time at={change.accepted_at} /> },
              { title: t("changes.who"), cell: (change) => change.actor },
              { title: t("changes.phase"), cell: (change) => <StateOf state={change.state} /> },
            ]}
          />
        )}
      </Loaded>
      <OlderPages after={after} next={query.data?.next} onChange={setAfter} />
    </Panel>
  );
}
