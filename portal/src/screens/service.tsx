import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";

import { RequestError } from "../api/problem";
import { changesOf, order, service as serviceQuery, useOrder } from "../api/queries";
import type { End, Service as ServiceView, Stage } from "../api/types";
import { useMe } from "../app/shell";
import { Rate, Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ChangeLink } from "../ui/changelink";
import { Graphs } from "../ui/graph";
import { Ident } from "../ui/ident";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import {
  checkEnd,
  EMPTY_END,
  EndFields,
  endOrder,
  parseRate,
  vlanOf,
  type EndDraft,
  type EndErrors,
} from "../ui/endfields";
import { TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Join } from "../ui/join";
import { Leave } from "../ui/leave";
import { explain, Loaded } from "../ui/loaded";
import { OlderPages } from "../ui/older";
import { Button, Crumb, Empty, Facts, Notice, Panel, ScreenHead, State } from "../ui/parts";
import { PathDrawing } from "../ui/path";
import { DryRun, type Tried } from "../ui/planned";
import { RouterConfig } from "../ui/routerconfig";
import { withLengths } from "../ui/routers";
import { kindWord, StateOf, statusText } from "../ui/words";
import { Table } from "../ui/table";
import { Macs, QuarantineChecklist } from "./lan";

const STAGES: Record<string, MessageId> = {
  ordered: "stage.ordered",
  consented: "stage.consented",
  configured: "stage.configured",
  installed: "stage.installed",
  quarantine: "stage.quarantine",
  production: "stage.production",
  removed: "stage.removed",
};

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

/** One end: what is configured there, and what can be changed. */
function EndPanel({ end, service }: { end: End; service: ServiceView }) {
  const t = useText();
  const me = useMe();
  const title = end.own
    ? t("service.ownEnd", { account: end.account.name })
    : t("service.farEnd", { account: end.account.name });
  return (
    <Panel
      title={title}
      level={3}
      actions={end.shut_down ? <State tone="wait">{t("service.isShutDown")}</State> : null}
    >
      <div className="stack">
        <Facts
          items={[
            [t("service.site"), end.site],
            ...(end.connection
              ? ([[t("service.connection"), `${end.connection.name} (${end.connection.ports.join(", ")})`]] as [
                  string,
                  string,
                ][])
              : []),
            ...(end.vlan_text ? ([[t("service.tags"), end.vlan_text]] as [string, string][]) : []),
            ...(end.own || service.consent === "pending"
              ? ([
                  [
                    t("service.rate"),
                    <Rate key="rate" bits={end.capacity_mbps === null ? null : end.capacity_mbps * 1e6} />,
                  ],
                ] as [string, React.ReactNode][])
              : []),
            ...(service.kind === "p2p_vc" ? end.macs : []).map((mac): [React.ReactNode, React.ReactNode] => [
              t("service.mac"),
              <span key={mac.id}>
                <code>{mac.address}</code>
                {mac.valid_until ? (
                  <>
                    {" "}
                    {t("task.until")} <Time at={mac.valid_until} />
                  </>
                ) : null}
              </span>,
            ]),
          ]}
        />
        {end.own && service.kind !== "p2p_vc" ? <Macs end={end} max={service.rules?.macs_max} /> : null}
        {end.checklist ? <QuarantineChecklist list={end.checklist} /> : null}
        {end.own && end.vlan ? (
          <details>
            <summary>{t("router.title")}</summary>
            <RouterConfig
              end={{
                vlan: end.vlan,
                about: service.name,
                rateMbps: end.capacity_mbps,
                addresses: withLengths(end.ips),
                lan: service.kind === "exchange_lan",
              }}
            />
          </details>
        ) : null}
        {end.own && me.can.includes("read_traffic") ? (
          <Graphs
            of={{ kind: "services", id: service.id, end: end.id }}
            directions={{ in: t("connection.in"), out: t("connection.out") }}
          />
        ) : null}
        <EndActs end={end} service={service} />
      </div>
    </Panel>
  );
}

function EndActs({ end: live, service }: { end: End; service: ServiceView }) {
  const t = useText();
  const [end, hold] = useAsOpened(live);
  const [rate, setRate] = useState("");
  const [to, setTo] = useState<EndDraft>(EMPTY_END);
  const [errors, setErrors] = useState<EndErrors>({});
  const [preview, setPreview] = useState<{ tried: Tried; of: string }>();
  const changeRate = useOrder(order.rate);
  const moveEnd = useOrder(order.move);
  const shutDown = useOrder(order.shutDown);
  const words = (error: unknown) => explain(t, error);
  const parsed = parseRate(rate);
  const acts = [
    end.can.includes("set_rate") ? (
      <ConfirmedAct
        key="rate"
        label={t("service.changeRate")}
        title={t("service.changeRate")}
        sentence={t("service.changeRateAbout")}
        explain={words}
        hold={hold}
        onOpen={() => setRate(end.capacity_mbps === null ? "" : String(end.capacity_mbps))}
        act={() =>
          parsed === undefined
            ? Promise.reject(new InvalidField(t("end.rateWrong")))
            : changeRate.mutateAsync([end.id, end.revision, parsed])
        }
      >
        <TextField
          label={t("end.rate")}
          hint={t("end.rateHintPlain")}
          unit="Mbit/s"
          value={rate}
          onChange={setRate}
          error={parsed === undefined ? t("end.rateWrong") : undefined}
          inputProps={{ inputMode: "decimal" }}
        />
      </ConfirmedAct>
    ) : null,
    end.can.includes("move_end") ? (
      <ConfirmedAct
        key="move"
        label={t("service.move")}
        title={t("service.move")}
        sentence={t("service.moveAbout")}
        explain={words}
        hold={hold}
        onOpen={() => {
          setTo(EMPTY_END);
          setErrors({});
          setPreview(undefined);
        }}
        act={() => {
          const found = checkEnd(t, to);
          setErrors(found);
          if (Object.keys(found).length > 0) return Promise.reject(new InvalidField(t("form.incomplete")));
          return moveEnd.mutateAsync([end.id, end.revision, { connection: to.connection, vlan: vlanOf(to) }]);
        }}
      >
        <EndFields
          prefix="move"
          value={to}
          onChange={setTo}
          errors={errors}
          withRate={false}
          account={end.account.id}
        />
        <div>
          <Button
            isDisabled={to.connection === ""}
            onPress={() => {
              const found = checkEnd(t, to);
              setErrors(found);
              if (Object.keys(found).length > 0) return;
              const of = JSON.stringify(to);
              order.move(end.id, end.revision, { connection: to.connection, vlan: vlanOf(to) }, true).then(
                (outcome) => setPreview({ tried: { outcome }, of }),
                (error: unknown) => setPreview({ tried: { error }, of }),
              );
            }}
          >
            {t("order.dryRun")}
          </Button>
        </div>
        {preview && preview.of === JSON.stringify(to) ? <DryRun tried={preview.tried} /> : null}
      </ConfirmedAct>
    ) : null,
    end.can.includes("shut_down") ? (
      <ConfirmedAct
        key="shut"
        label={t(end.shut_down ? "service.bringUp" : "service.shutDown")}
        title={t(end.shut_down ? "service.bringUp" : "service.shutDown")}
        kind={end.shut_down ? "plain" : "danger"}
        sentence={t(end.shut_down ? "service.bringUpAbout" : "service.shutDownAbout", { service: service.name })}
        explain={words}
        hold={hold}
        act={() => shutDown.mutateAsync([end.id, end.revision, !end.shut_down])}
      />
    ) : null,
  ].filter((act) => act !== null);
  return (
    <div className="buttons">
      {acts}
      <Leave end={live} service={service} />
    </div>
  );
}

/** The invitation to this account, with its two answers. */
function Invitation({ service: live }: { service: ServiceView }) {
  const t = useText();
  const [service, hold] = useAsOpened(live);
  const me = useMe();
  const [end, setEnd] = useState<EndDraft>(EMPTY_END);
  const [errors, setErrors] = useState<EndErrors>({});
  const [reason, setReason] = useState("");
  const ordered = service.ends[0]?.capacity_mbps ?? null;
  const accept = useOrder(order.accept);
  const refuse = useOrder(order.refuse);
  const words = (error: unknown) => explain(t, error);
  return (
    <Notice tone="wait" title={t("service.invited", { account: service.account.name })}>
      <div className="stack tight">
        <p>{t("service.invitedAbout")}</p>
        {service.ends.length > 0 ? (
          <Facts
            items={[[t("service.orderedRate"), <Rate key="rate" bits={ordered === null ? null : ordered * 1e6} />]]}
          />
        ) : null}
        <div className="buttons">
          <ConfirmedAct
            label={t("service.accept")}
            title={t("service.acceptTitle", { service: service.name })}
            sentence={t("service.acceptAbout")}
            kind="primary"
            explain={words}
            hold={hold}
            onOpen={() => {
              setEnd({ ...EMPTY_END, rate: ordered === null ? "" : String(ordered) });
              setErrors({});
            }}
            act={() => {
              const found = checkEnd(t, end);
              setErrors(found);
              if (Object.keys(found).length > 0) return Promise.reject(new InvalidField(t("form.incomplete")));
              return accept.mutateAsync([service.id, service.revision, endOrder(end)]);
            }}
          >
            <EndFields
              prefix="accept"
              value={end}
              onChange={setEnd}
              errors={errors}
              account={me.operator ? service.peer?.id : me.account.id}
            />
          </ConfirmedAct>
          <ConfirmedAct
            label={t("service.refuse")}
            title={t("service.refuseTitle", { service: service.name })}
            sentence={t("service.refuseAbout", { account: service.account.name })}
            kind="danger"
            explain={words}
            hold={hold}
            act={() =>
              reason.trim() === ""
                ? Promise.reject(new InvalidField(t("service.reasonMissing")))
                : refuse.mutateAsync([service.id, service.revision, reason.trim()])
            }
          >
            <TextField label={t("service.reason")} value={reason} onChange={setReason} />
          </ConfirmedAct>
        </div>
      </div>
    </Notice>
  );
}

/** The second end of a path that nobody has configured. An account that has left it can return. */
function FarEndMissing({ service }: { service: ServiceView }) {
  const t = useText();
  const me = useMe();
  const { peer } = service;
  const canReturn = peer?.id === me.account.id && service.consent === "accepted" && me.can.includes("configure_end");
  const words = {
    label: t("leave.return"),
    title: t("leave.returnTitle", { service: service.name }),
    sentence: t("leave.returnAbout", { account: service.account.name }),
  };
  return (
    <Panel title={t("service.noFarEnd")} level={3}>
      <div className="stack">
        <p className="quiet">{peer ? t("service.waitsFor", { account: peer.name }) : t("service.waitsForKey")}</p>
        {canReturn ? (
          <div className="buttons">
            <Join service={service} kind="primary" words={words} />
          </div>
        ) : null}
      </div>
    </Panel>
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
  const words = (error: unknown) => explain(t, error);
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
              explain={words}
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
              explain={words}
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
              explain={words}
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
      <div className={query.data && query.data.items.length > 0 ? "table-wrap" : "panel-body"}>
        <Loaded
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
      </div>
      <OlderPages after={after} next={query.data?.next} onChange={setAfter} />
    </Panel>
  );
}

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
