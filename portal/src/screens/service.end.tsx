import { useState } from "react";

import { order, useOrder } from "../api/orders";
import type { End, Service as ServiceView } from "../api/types";
import { useMe } from "../app/shell";
import { Rate, Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { checkEnd, EMPTY_END, EndFields, parseRate, vlanOf, type EndDraft, type EndErrors } from "../ui/endfields";
import { TextField } from "../ui/fields";
import { Graphs } from "../ui/graph";
import { InvalidField } from "../ui/invalid";
import { Join } from "../ui/join";
import { Leave } from "../ui/leave";
import { Button, Facts, Panel, State } from "../ui/parts";
import { DryRun, type Tried } from "../ui/planned";
import { RouterConfig } from "../ui/routerconfig";
import { withLengths } from "../ui/routers";
import { Macs } from "./lan.macs";
import { QuarantineChecklist } from "./lan.quarantine";

/** One end: what is configured there, and what can be changed. */
export function EndPanel({ end, service }: { end: End; service: ServiceView }) {
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
  const parsed = parseRate(rate);
  const acts = [
    end.can.includes("set_rate") ? (
      <ConfirmedAct
        key="rate"
        label={t("service.changeRate")}
        title={t("service.changeRate")}
        sentence={t("service.changeRateAbout")}
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

/** The second end of a path that nobody has configured. An account that has left it can return. */
export function FarEndMissing({ service }: { service: ServiceView }) {
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
