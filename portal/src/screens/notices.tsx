import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { calendarOrder, noticeOrder, useOrder, type NoticeBody } from "../api/orders";
import {
  notices as noticesQuery,
  sites as sitesQuery,
  switches as switchesQuery,
  trunks as trunksQuery,
} from "../api/queries";
import type { Notice as NoticeType } from "../api/types";
import { useMe } from "../app/shell";
import { Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { Choices, Select, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Notice, Panel, ScreenHead, State, type Tone } from "../ui/parts";

/** The words and tones of the states of a notice. */
export const NOTICE_STATES: Record<string, { tone: Tone; word: MessageId }> = {
  planned: { tone: "wait", word: "notice.planned" },
  running: { tone: "bad", word: "notice.running" },
  over: { tone: "off", word: "notice.over" },
  cancelled: { tone: "off", word: "state.cancelled" },
};

/** Returns the time of a field for the engine; the field has the reader's zone. Returns undefined for no time. */
export function isoTime(text: string): string | undefined {
  const time = new Date(text);
  return text === "" || Number.isNaN(time.getTime()) ? undefined : time.toISOString();
}

/** Maintenance and incidents that concern the reader, and what of the reader's they can interrupt. */
export function Notices() {
  const t = useText();
  const me = useMe();
  const query = useQuery(noticesQuery);
  return (
    <>
      <ScreenHead
        title={t("nav.notices")}
        below={t("notice.screenAbout")}
        actions={
          <>
            <a className="button" data-kind="plain" href="/api/v1/notices.ics" download="maintenance.ics">
              {t("notice.calendar")}
            </a>
            {me.can.includes("write_notice") ? <Announce /> : null}
          </>
        }
      />
      <Loaded
        query={query}
        lines={6}
        empty={{
          when: (list) => list.length === 0,
          show: (
            <Panel>
              <Empty title={t("notice.none")}>{t("notice.noneAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(list) => (
          <div className="stack">
            {list.map((notice) => (
              <NoticePanel key={notice.id} notice={notice} />
            ))}
          </div>
        )}
      </Loaded>
      <CalendarAddress />
    </>
  );
}

export function NoticeState({ state }: { state: string }) {
  const t = useText();
  const known = NOTICE_STATES[state];
  return known ? <State tone={known.tone}>{t(known.word)}</State> : null;
}

/** The act by which the staff announces maintenance or an incident, with the letters shown before they are sent. */
function Announce() {
  const t = useText();
  const [kind, setKind] = useState<"maintenance" | "incident">("maintenance");
  const [title, setTitle] = useState("");
  const [about, setAbout] = useState("");
  const [begins, setBegins] = useState("");
  const [ends, setEnds] = useState("");
  const [object, setObject] = useState("");
  const [isPublic, setPublic] = useState<"yes" | "no">("yes");
  const [shown, setShown] = useState<Awaited<ReturnType<typeof noticeOrder.preview>>>();
  const [asked, setAsked] = useState("");
  const sites = useQuery(sitesQuery);
  const switches = useQuery(switchesQuery);
  const trunks = useQuery(trunksQuery);
  const preview = useOrder(noticeOrder.preview);
  const add = useOrder(noticeOrder.add);
  const objects = [...(sites.data ?? []), ...(switches.data ?? []), ...(trunks.data ?? [])].map(({ id, name }) => ({
    id,
    name,
  }));
  const body = (): NoticeBody => {
    const begin = isoTime(begins);
    const end = isoTime(ends);
    if (title.trim() === "") throw new InvalidField(t("notice.titleMissing"));
    if (begin === undefined || (kind === "maintenance" && end === undefined))
      throw new InvalidField(t("notice.timesMissing"));
    return {
      kind,
      title: title.trim(),
      about,
      begins: begin,
      ends: end ?? null,
      objects: object === "" ? [] : [object],
      public: isPublic === "yes",
    };
  };
  return (
    <ConfirmedAct
      label={t("notice.announce")}
      title={t("notice.announce")}
      sentence={t("notice.announceAbout")}
      kind="primary"
      onOpen={() => {
        setTitle("");
        setAbout("");
        setShown(undefined);
        setAsked("");
      }}
      act={async (keyOf) => {
        const order = body();
        const text = JSON.stringify(order);
        if (text !== asked) {
          // The first press shows the letters, and the second one sends them.
          setShown(await preview.mutateAsync([order]));
          setAsked(text);
          throw new InvalidField(t("notice.checked"));
        }
        await add.mutateAsync([order, keyOf(order)]);
      }}
    >
      <Choices
        label={t("members.kind")}
        value={kind}
        onChange={setKind}
        options={[
          { id: "maintenance", name: t("notice.maintenance") },
          { id: "incident", name: t("notice.incident") },
        ]}
      />
      <TextField label={t("notice.title")} value={title} onChange={setTitle} />
      <TextField label={t("notice.text")} value={about} onChange={setAbout} />
      <TextField label={t("notice.begins")} type="datetime-local" value={begins} onChange={setBegins} />
      <TextField label={t("notice.ends")} type="datetime-local" value={ends} onChange={setEnds} />
      <Select
        label={t("notice.object")}
        hint={t("notice.objectHint")}
        selectedKey={object}
        onSelectionChange={(key) => setObject(String(key))}
        options={[{ id: "", name: t("notice.everybody") }, ...objects]}
      />
      <Choices
        label={t("notice.public")}
        value={isPublic}
        onChange={setPublic}
        options={[
          { id: "yes", name: t("notice.publicYes") },
          { id: "no", name: t("notice.publicNo") },
        ]}
      />
      {shown ? (
        <div className="stack tight">
          <p>{t("notice.reaches", { members: shown.members.length, letters: shown.letters })}</p>
          {shown.texts.map((text) => (
            <details key={text.language}>
              <summary>{text.subject}</summary>
              <pre className="frame" tabIndex={0} lang={text.language} aria-label={text.subject}>
                {text.body}
              </pre>
            </details>
          ))}
        </div>
      ) : null}
    </ConfirmedAct>
  );
}

/** A notice with the acts on it. */
export function NoticePanel({ notice }: { notice: NoticeType }) {
  const t = useText();
  const cancel = useOrder(noticeOrder.cancel);
  const change = useOrder(noticeOrder.change);
  const end = () => {
    const { kind, title, about, begins, objects } = notice;
    const ends = new Date().toISOString();
    return change.mutateAsync([
      notice.id,
      { kind, title, about, begins, ends, objects: objects.map((object) => object.id), public: notice.public },
    ]);
  };
  const names = notice.members.map((member) => member.name).join(", ");
  return (
    <Panel
      title={
        <>
          {notice.title} <NoticeState state={notice.state} />
        </>
      }
      actions={
        notice.can.includes("write_notice") && notice.state !== "over" ? (
          <>
            {notice.state === "running" ? (
              <ConfirmedAct
                label={t("notice.end")}
                title={t("notice.endTitle", { title: notice.title })}
                sentence={t("notice.endAbout")}
                act={end}
              />
            ) : null}
            <ConfirmedAct
              label={t("notice.cancel")}
              title={t("notice.cancelTitle", { title: notice.title })}
              sentence={t("notice.cancelAbout")}
              kind="danger"
              act={() => cancel.mutateAsync([notice.id])}
            />
          </>
        ) : null
      }
    >
      <Facts
        items={[
          [t("members.kind"), t(notice.kind === "maintenance" ? "notice.maintenance" : "notice.incident")],
          [t("notice.begins"), <Time key="begins" at={notice.begins} />],
          [t("notice.ends"), notice.ends ? <Time key="ends" at={notice.ends} /> : t("notice.endUnknown")],
          [t("notice.touches"), notice.touches.length === 0 ? t("notice.nothing") : notice.touches.join(", ")],
          ...(notice.objects.length > 0
            ? ([[t("notice.object"), notice.objects.map((object) => object.name).join(", ")]] as [string, string][])
            : []),
          ...(names === "" ? [] : ([[t("nav.members"), names]] as [string, string][])),
        ]}
      />
      {notice.about === "" ? null : <p>{notice.about}</p>}
    </Panel>
  );
}

/** The secret address under which a calendar reads the notices without a sign-in. */
function CalendarAddress() {
  const t = useText();
  const [address, setAddress] = useState<string>();
  const make = useOrder(calendarOrder.make);
  const end = useOrder(calendarOrder.end);
  return (
    <Panel
      title={t("calendar.address")}
      actions={
        <>
          <ConfirmedAct
            label={t("calendar.make")}
            title={t("calendar.make")}
            sentence={t("calendar.makeAbout")}
            act={() => make.mutateAsync([]).then((made) => setAddress(`${location.origin}${made.path}`))}
          />
          <ConfirmedAct
            label={t("calendar.end")}
            title={t("calendar.end")}
            sentence={t("calendar.endAbout")}
            kind="danger"
            act={() => end.mutateAsync([]).then(() => setAddress(undefined))}
          />
        </>
      }
    >
      {address === undefined ? (
        <p className="quiet">{t("calendar.about")}</p>
      ) : (
        <Notice tone="ok" title={t("calendar.made")} live>
          <code className="secret">{address}</code>
        </Notice>
      )}
    </Panel>
  );
}
