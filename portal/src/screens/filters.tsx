import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import {
  bgpSessions,
  explanation as explanationQuery,
  filterOrder,
  observedFilters,
  useOrder,
  type Packet,
} from "../api/queries";
import type { BgpSession, Explanation, Filter } from "../api/types";
import { useMe } from "../app/shell";
import { Age, Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { protocolName } from "../i18n/protocols";
import { useLanguage, useText, type Translate } from "../i18n/text";
import { formatBitRate, formatNumber } from "../i18n/units";
import { Ident } from "../ui/ident";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Form, Select, TextField } from "../ui/fields";
import { ActionOf, Lifetime } from "../ui/filterform";
import { explain, Loaded } from "../ui/loaded";
import { Button, Empty, Notice, Panel, ScreenHead, State } from "../ui/parts";
import { StateOf } from "../ui/words";
import { Table } from "../ui/table";
import { ManualFilter } from "./attack";

const ORIGINS: Record<string, MessageId> = {
  page: "filter.page",
  api: "filter.api",
  rtbh: "filter.rtbh",
  flowspec: "filter.flowspec",
};
const OUTCOMES: Record<string, MessageId> = {
  pass: "explain.pass",
  drop: "explain.drop",
  shape: "explain.shape",
  count: "explain.count",
};
function word(t: Translate, words: Record<string, MessageId>, key: string): string {
  const known = words[key];
  return known ? t(known) : key;
}

function Acts({ filter: live }: { filter: Filter }) {
  const t = useText();
  const [filter, hold] = useAsOpened(live);
  const [minutes, setMinutes] = useState("60");
  const extend = useOrder(filterOrder.extend);
  const remove = useOrder(filterOrder.remove);
  // A filter of a route ends with its route.
  if (!filter.can.includes("write_filter") || filter.order === null) return null;
  const explained = (error: unknown) => explain(t, error);
  return (
    <div className="buttons">
      {filter.state === "active" ? (
        <ConfirmedAct
          label={t("filters.extend")}
          title={t("filters.extend")}
          sentence={t("filters.extendAbout", { packets: filter.matching })}
          explain={explained}
          hold={hold}
          act={() => extend.mutateAsync([filter.id, filter.revision, Number(minutes)])}
        >
          <Lifetime value={minutes} onChange={setMinutes} />
        </ConfirmedAct>
      ) : null}
      <ConfirmedAct
        label={t("filters.remove")}
        title={t("filters.remove")}
        sentence={t("attack.stopSentence", { packets: filter.matching })}
        kind="danger"
        explain={explained}
        hold={hold}
        act={() => remove.mutateAsync([filter.id, filter.revision])}
      />
    </div>
  );
}

function Row({ filter, operator }: { filter: Filter; operator: boolean }) {
  const t = useText();
  const { language } = useLanguage();
  return (
    <tr>
      <th scope="row">
        <span className="stack tight">
          <span>
            <code>{filter.matching}</code> <Ident id={filter.id} />
          </span>
          {operator ? <span className="quiet">{filter.account.name}</span> : null}
          {filter.comment ? <small className="quiet">{filter.comment}</small> : null}
        </span>
      </th>
      <td data-label={t("services.state")}>
        <span className="stack tight">
          <StateOf state={filter.state} />
          {filter.reason ? <small className="reason">{t.reason(filter.coded, filter.reason)}</small> : null}
        </span>
      </td>
      <td data-label={t("filters.action")}>
        <ActionOf filter={filter} />
      </td>
      <td className="number" data-label={t("filters.now")}>
        {filter.counter ? (
          <span
            title={t("attack.dropping", {
              rate: formatBitRate(filter.counter.bits_per_s, language),
              packets: formatNumber(filter.counter.packets, language),
            })}
          >
            {formatBitRate(filter.counter.bits_per_s, language)}
          </span>
        ) : null}
      </td>
      <td data-label={t("filters.origin")}>{word(t, ORIGINS, filter.origin)}</td>
      <td data-label={t("filters.until")}>{filter.expires ? <Time at={filter.expires} /> : t("filters.withRoute")}</td>
      <td>
        <Acts filter={filter} />
      </td>
    </tr>
  );
}

/** The protocols that can be asked for: UDP, TCP, ICMP and ICMPv6. */
const PROTOCOLS = [17, 6, 1, 58];

/** Returns a packet as a line, such as "UDP *:53 → 203.0.113.7". */
function packetText(t: Translate, { protocol, source, source_port, destination, destination_port }: Packet): string {
  const name = protocol === undefined ? "" : protocolName(t, protocol);
  const end = (address: string, port: number | undefined) =>
    port === undefined ? address : `${address.includes(":") ? `[${address}]` : address}:${port}`;
  return `${name} ${end(source ?? "*", source_port)} → ${end(destination, destination_port)}`;
}

/** Returns the port of a text: null for an empty one, undefined for one that is no port. */
export function parsePort(text: string): number | null | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return null;
  return /^\d{1,5}$/.test(trimmed) && Number(trimmed) <= 65_535 ? Number(trimmed) : undefined;
}

/** Asks what happens to a packet, and shows every filter that was compared. */
export function ExplainPacket() {
  const t = useText();
  const [destination, setDestination] = useState("");
  const [source, setSource] = useState("");
  const [protocol, setProtocol] = useState(17);
  const [sourcePort, setSourcePort] = useState("");
  const [destinationPort, setDestinationPort] = useState("");
  const [asked, setAsked] = useState<Packet>();
  const [errors, setErrors] = useState<{ destination?: string; from?: string; to?: string }>({});
  const query = useQuery(explanationQuery(asked));
  const hasPorts = protocol === 17 || protocol === 6;
  const submit = () => {
    const [from, to] = hasPorts ? [parsePort(sourcePort), parsePort(destinationPort)] : [null, null];
    const wrong = {
      ...(destination.trim() === "" ? { destination: t("filterForm.destinationMissing") } : {}),
      ...(from === undefined ? { from: t("explain.portWrong") } : {}),
      ...(to === undefined ? { to: t("explain.portWrong") } : {}),
    };
    setErrors(wrong);
    if (from === undefined || to === undefined || destination.trim() === "") {
      // An answer about another packet would stand below these values.
      setAsked(undefined);
      return;
    }
    setAsked({
      destination: destination.trim(),
      ...(source.trim() === "" ? {} : { source: source.trim() }),
      protocol,
      ...(from === null ? {} : { source_port: from }),
      ...(to === null ? {} : { destination_port: to }),
    });
  };
  return (
    <Panel title={t("explain.title")}>
      <div className="stack">
        <Form onSubmit={submit} label={t("explain.title")}>
          <div className="fields">
            <TextField
              label={t("explain.to")}
              value={destination}
              onChange={setDestination}
              error={errors.destination}
              inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "203.0.113.7" }}
            />
            <TextField
              label={t("explain.from")}
              value={source}
              onChange={setSource}
              inputProps={{ spellCheck: false, autoCapitalize: "none" }}
            />
            <Select
              label={t("filterForm.protocol")}
              options={PROTOCOLS.map((number) => ({ id: String(number), name: protocolName(t, number) }))}
              value={String(protocol)}
              onChange={(key) => setProtocol(Number(key))}
            />
            {hasPorts ? (
              <>
                <TextField
                  label={t("explain.portFrom")}
                  value={sourcePort}
                  onChange={setSourcePort}
                  error={errors.from}
                  inputProps={{ inputMode: "numeric" }}
                />
                <TextField
                  label={t("explain.portTo")}
                  value={destinationPort}
                  onChange={setDestinationPort}
                  error={errors.to}
                  inputProps={{ inputMode: "numeric" }}
                />
              </>
            ) : null}
            <Button type="submit">{t("explain.ask")}</Button>
          </div>
        </Form>
        {asked ? (
          <>
            <p>
              {t("explain.asked")} <code>{packetText(t, asked)}</code>
            </p>
            <Loaded query={query} lines={3}>
              {(found) => <Explained found={found} />}
            </Loaded>
          </>
        ) : null}
      </div>
    </Panel>
  );
}

function Explained({ found }: { found: Explanation }) {
  const t = useText();
  const applied = found.steps.find((step) => step.applies);
  return (
    <div className="stack tight">
      <Notice
        tone={found.outcome === "drop" ? "bad" : found.outcome === "pass" ? "ok" : "wait"}
        title={word(t, OUTCOMES, found.outcome)}
        live
      >
        {applied ? (
          <p>
            {t("explain.by")} <code>{applied.filter.matching}</code> <Ident id={applied.filter.id} />
          </p>
        ) : (
          <p>{t("explain.byNone")}</p>
        )}
      </Notice>
      <ol className="stack tight">
        {found.steps.map((step) => (
          <li key={step.filter.id} className="row">
            <State tone={step.applies ? "bad" : step.matches ? "wait" : "off"}>
              {t(step.applies ? "explain.applies" : step.matches ? "explain.matches" : "explain.other")}
            </State>
            <code>{step.filter.matching}</code>
            <span className="quiet">{t.reason(step.coded, step.why)}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

function Sessions({ sessions }: { sessions: BgpSession[] }) {
  const t = useText();
  return (
    <Table
      rows={sessions}
      keyOf={(session) => `${session.peer} ${session.kind}`}
      columns={[
        {
          title: t("bgp.peer"),
          cell: (session) => (
            <>
              <code>{session.peer}</code> <span className="quiet">{`AS${session.asn}`}</span> {session.account?.name}
            </>
          ),
        },
        {
          title: t("services.state"),
          cell: (session) => (
            <span>
              <State tone={session.state === "established" ? "ok" : "bad"}>{session.state}</State>
              {session.error ? <small className="quiet"> {session.error}</small> : null}
            </span>
          ),
        },
        {
          title: t("bgp.kind"),
          cell: (session) => t(session.kind === "route_server" ? "bgp.routeServer" : "bgp.member"),
        },
        { title: t("bgp.routes"), isNumber: true, cell: (session) => session.routes },
        { title: t("bgp.flowspec"), isNumber: true, cell: (session) => session.flowspec },
        { title: t("fabric.since"), cell: (session) => <Age at={session.since} /> },
      ]}
    />
  );
}

/** All filters, whatever their origin; refused ones say why, and what is missing. */
export function Filters() {
  const t = useText();
  const me = useMe();
  const query = useQuery(observedFilters);
  const sessions = useQuery(bgpSessions);
  const create = useOrder(filterOrder.create);
  const recheck = useOrder(() => filterOrder.recheck(me.account.id));
  const canWrite = me.can.includes("write_filter") && !me.operator;
  const refused = (query.data ?? []).filter((filter) => filter.state === "refused" || filter.state === "suspended");
  return (
    <>
      <ScreenHead
        title={t("nav.filters")}
        below={t("filters.about")}
        actions={
          canWrite ? (
            <>
              <ManualFilter
                destination=""
                make={(body, key) => create.mutateAsync([body, key])}
                label={t("filterForm.title")}
              />
              <Link to="/attack" className="button" data-kind="danger">
                {t("nav.attack")}
              </Link>
            </>
          ) : null
        }
      />
      <div className="stack">
        {refused.length > 0 ? (
          <Notice tone="wait" title={t("filters.refused", { count: refused.length })}>
            <div className="stack tight">
              <p>{t("filters.refusedAbout")}</p>
              {canWrite ? (
                <div>
                  <Button onPress={() => void recheck.mutateAsync([]).catch(() => {})} isPending={recheck.isPending}>
                    {t("filters.recheck")}
                  </Button>{" "}
                  {recheck.isSuccess ? <span role="status">{t("filters.rechecked")}</span> : null}
                  {recheck.isError ? <span role="alert">{explain(t, recheck.error)}</span> : null}
                </div>
              ) : null}
            </div>
          </Notice>
        ) : null}
        <Panel flush title={query.data ? t("filters.number", { count: query.data.length }) : undefined}>
          <div className={query.data && query.data.length > 0 ? "table-wrap" : "panel-body"}>
            <Loaded
              query={query}
              lines={6}
              empty={{
                when: (list: Filter[]) => list.length === 0,
                show: <Empty title={t("filters.none")}>{t("filters.noneAbout")}</Empty>,
              }}
            >
              {(list) => (
                <table className="table cards">
                  <thead>
                    <tr>
                      <th scope="col">{t("filters.matching")}</th>
                      <th scope="col">{t("services.state")}</th>
                      <th scope="col">{t("filters.action")}</th>
                      <th scope="col" className="number">
                        {t("filters.now")}
                      </th>
                      <th scope="col">{t("filters.origin")}</th>
                      <th scope="col">{t("filters.until")}</th>
                      <th scope="col">
                        <span className="visually-hidden">{t("fabric.acts")}</span>
                      </th>
                    </tr>
                  </thead>
                  <tbody>
                    {list.map((filter) => (
                      <Row key={filter.id} filter={filter} operator={me.operator} />
                    ))}
                  </tbody>
                </table>
              )}
            </Loaded>
          </div>
        </Panel>
        <ExplainPacket />
        <Panel title={t("bgp.title")} flush>
          <div className={sessions.data && sessions.data.length > 0 ? "table-wrap" : "panel-body"}>
            <Loaded
              query={sessions}
              lines={3}
              empty={{
                when: (list) => list.length === 0,
                show: <Empty title={t("bgp.none")}>{t("bgp.noneAbout")}</Empty>,
              }}
            >
              {(list) => <Sessions sessions={list} />}
            </Loaded>
          </div>
        </Panel>
      </div>
    </>
  );
}
