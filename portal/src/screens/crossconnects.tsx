import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { crossConnectOrder, useOrder, type StepBody } from "../api/orders";
import { crossConnects as crossConnectsQuery, publicStatus } from "../api/queries";
import type { CrossConnect } from "../api/types";
import { useMe } from "../app/shell";
import { Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { Select, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Panel, ScreenHead, State, type Tone } from "../ui/parts";

const STATES: Record<CrossConnect["state"], { tone: Tone; word: MessageId }> = {
  requested: { tone: "wait", word: "cross.requested" },
  authorised: { tone: "wait", word: "cross.authorised" },
  ordered: { tone: "wait", word: "cross.ordered" },
  installed: { tone: "ok", word: "cross.installed" },
  cancelled: { tone: "off", word: "state.cancelled" },
  removed: { tone: "off", word: "cross.removed" },
  expired: { tone: "bad", word: "cross.expired" },
};

const STEPS: Record<StepBody["step"], { label: MessageId; about: MessageId; kind: "primary" | "danger" | "plain" }> = {
  authorise: { label: "cross.authorise", about: "cross.authoriseAbout", kind: "primary" },
  place: { label: "cross.place", about: "cross.placeAbout", kind: "primary" },
  install: { label: "cross.install", about: "cross.installAbout", kind: "primary" },
  cancel: { label: "cross.cancel", about: "cross.cancelAbout", kind: "danger" },
  remove: { label: "cross.remove", about: "cross.removeAbout", kind: "danger" },
};

/** The cross-connects of the account, their letters of authorisation, and their next steps. */
export function CrossConnects() {
  const t = useText();
  const me = useMe();
  const query = useQuery(crossConnectsQuery);
  return (
    <>
      <ScreenHead
        title={t("nav.crossConnects")}
        below={t("cross.about")}
        actions={!me.operator && me.can.includes("order_cross_connect") ? <Request /> : null}
      />
      <Loaded
        query={query}
        lines={6}
        empty={{
          when: (list) => list.length === 0,
          show: (
            <Panel>
              <Empty title={t("cross.none")}>{t("cross.noneAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(list) => (
          <div className="stack">
            {list.map((order) => (
              <Order key={order.id} order={order} />
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}

/** The act that makes the next step of an order. */
function Step({ order, step }: { order: CrossConnect; step: StepBody["step"] }) {
  const t = useText();
  const [text, setText] = useState("");
  const make = useOrder(crossConnectOrder.step);
  const words = STEPS[step];
  const needs = step === "authorise" || step === "place";
  return (
    <ConfirmedAct
      label={t(words.label)}
      title={t(words.label)}
      sentence={t(words.about)}
      kind={words.kind}
      onOpen={() => setText("")}
      act={(keyOf) => {
        if (needs && text.trim() === "") return Promise.reject(new InvalidField(t("form.incomplete")));
        const body: StepBody = {
          step,
          ...(step === "authorise"
            ? { demarcation: text.trim() }
            : step === "place"
              ? { order_number: text.trim() }
              : {}),
        };
        return make.mutateAsync([order.id, body, keyOf(body)]);
      }}
    >
      {step === "authorise" ? (
        <TextField label={t("cross.ourSide")} hint={t("cross.sideHint")} value={text} onChange={setText} />
      ) : null}
      {step === "place" ? <TextField label={t("cross.orderNumber")} value={text} onChange={setText} /> : null}
    </ConfirmedAct>
  );
}

/** The act by which a member asks for a cross-connect. */
function Request() {
  const t = useText();
  const [site, setSite] = useState("");
  const [side, setSide] = useState("");
  const [medium, setMedium] = useState("");
  const [note, setNote] = useState("");
  const status = useQuery(publicStatus);
  const add = useOrder(crossConnectOrder.add);
  return (
    <ConfirmedAct
      label={t("cross.request")}
      title={t("cross.request")}
      sentence={t("cross.requestAbout")}
      kind="primary"
      onOpen={() => {
        setSide("");
        setNote("");
      }}
      act={(keyOf) => {
        if (site === "" || side.trim() === "" || medium.trim() === "")
          return Promise.reject(new InvalidField(t("form.incomplete")));
        const body = {
          site,
          member_side: side.trim(),
          medium: medium.trim(),
          note: note.trim() === "" ? null : note.trim(),
        };
        return add.mutateAsync([body, keyOf(body)]);
      }}
    >
      <Select
        label={t("service.site")}
        selectedKey={site === "" ? null : site}
        onSelectionChange={(key) => setSite(String(key))}
        options={(status.data?.sites ?? []).map(({ name }) => ({ id: name, name }))}
      />
      <TextField label={t("cross.memberSide")} hint={t("cross.sideHint")} value={side} onChange={setSide} />
      <TextField label={t("cross.medium")} hint={t("cross.mediumHint")} value={medium} onChange={setMedium} />
      <TextField label={t("cross.note")} value={note} onChange={setNote} />
    </ConfirmedAct>
  );
}

function Order({ order }: { order: CrossConnect }) {
  const t = useText();
  const me = useMe();
  const state = STATES[order.state];
  const hasLetter = order.letter !== null && ["authorised", "ordered", "installed"].includes(order.state);
  return (
    <Panel
      title={
        <>
          {t("cross.number", { number: order.number })} <State tone={state.tone}>{t(state.word)}</State>
        </>
      }
      actions={
        <>
          {hasLetter ? (
            <a
              className="button"
              data-kind="plain"
              href={`/api/v1/cross-connects/${order.id}/letter`}
              target="_blank"
              rel="noreferrer"
            >
              {t("cross.letter")}
            </a>
          ) : null}
          {order.steps.map((step) => (
            <Step key={step} order={order} step={step} />
          ))}
        </>
      }
    >
      <Facts
        items={[
          ...(me.operator ? ([[t("connection.account"), order.account.name]] as [string, string][]) : []),
          [t("service.site"), order.site],
          [t("cross.memberSide"), order.member_side],
          [t("cross.medium"), order.medium],
          ...(order.letter
            ? ([
                [t("cross.ourSide"), order.letter.demarcation],
                [t("cross.code"), <code key="code">{order.letter.code}</code>],
                [t("cross.validUntil"), <Time key="until" at={order.letter.valid_until} dateOnly />],
              ] as [string, React.ReactNode][])
            : []),
          ...(order.order_number ? ([[t("cross.orderNumber"), order.order_number]] as [string, string][]) : []),
        ]}
      />
      <ol className="lines">
        {order.history.map((made) => (
          <li key={`${made.state} ${made.at}`}>
            {t(STATES[made.state].word)}{" "}
            <span className="quiet">
              <Time at={made.at} /> · {made.by}
            </span>
            {made.note ? <p>{made.note}</p> : null}
          </li>
        ))}
      </ol>
    </Panel>
  );
}
