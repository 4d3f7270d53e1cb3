import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { filterOrder, useOrder } from "../api/orders";
import { bgpSessions, observedFilters } from "../api/queries";
import type { BgpSession, Filter } from "../api/types";
import { useMe } from "../app/shell";
import { Age, Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate, formatNumber } from "../i18n/units";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { ActionOf, Lifetime } from "../ui/filterform";
import { Ident } from "../ui/ident";
import { explain, Loaded } from "../ui/loaded";
import { ManualFilter } from "../ui/manualfilter";
import { Button, Empty, Notice, Panel, ScreenHead, State } from "../ui/parts";
import { Table } from "../ui/table";
import { StateOf, wordOf } from "../ui/words";
import { ExplainPacket } from "./explain";

const ORIGINS: Record<string, MessageId> = {
  page: "filter.page",
  api: "filter.api",
  rtbh: "filter.rtbh",
  flowspec: "filter.flowspec",
};

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
          <Loaded
            fills="table"
            query={query}
            lines={6}
            empty={{
              when: (list: Filter[]) => list.length === 0,
              show: <Empty title={t("filters.none")}>{t("filters.noneAbout")}</Empty>,
            }}
          >
            {(list) => <FilterTable filters={list} showsAccount={me.operator} />}
          </Loaded>
        </Panel>
        <ExplainPacket />
        <Panel title={t("bgp.title")} flush>
          <Loaded
            fills="table"
            query={sessions}
            lines={3}
            empty={{
              when: (list) => list.length === 0,
              show: <Empty title={t("bgp.none")}>{t("bgp.noneAbout")}</Empty>,
            }}
          >
            {(list) => <Sessions sessions={list} />}
          </Loaded>
        </Panel>
      </div>
    </>
  );
}

function Acts({ filter: live }: { filter: Filter }) {
  const t = useText();
  const [filter, hold] = useAsOpened(live);
  const [minutes, setMinutes] = useState("60");
  const extend = useOrder(filterOrder.extend);
  const remove = useOrder(filterOrder.remove);
  // A filter of a route ends with its route.
  if (!filter.can.includes("write_filter") || filter.order === null) return null;
  return (
    <div className="buttons">
      {filter.state === "active" ? (
        <ConfirmedAct
          label={t("filters.extend")}
          title={t("filters.extend")}
          sentence={t("filters.extendAbout", { packets: filter.matching })}
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
        hold={hold}
        act={() => remove.mutateAsync([filter.id, filter.revision])}
      />
    </div>
  );
}

/** What a filter takes from the traffic at present; the exact number of packets appears over the rate. */
function PresentRate({ counter }: { counter: Filter["counter"] }) {
  const t = useText();
  const { language } = useLanguage();
  if (!counter) return null;
  const rate = formatBitRate(counter.bits_per_s, language);
  const packets = formatNumber(counter.packets, language);
  return <span title={t("attack.dropping", { rate, packets })}>{rate}</span>;
}

function FilterTable({ filters, showsAccount }: { filters: Filter[]; showsAccount: boolean }) {
  const t = useText();
  return (
    <Table
      rows={filters}
      keyOf={(filter) => filter.id}
      columns={[
        {
          title: t("filters.matching"),
          cell: (filter) => (
            <span className="stack tight">
              <span>
                <code>{filter.matching}</code> <Ident id={filter.id} />
              </span>
              {showsAccount ? <span className="quiet">{filter.account.name}</span> : null}
              {filter.comment ? <small className="quiet">{filter.comment}</small> : null}
            </span>
          ),
        },
        {
          title: t("services.state"),
          cell: (filter) => (
            <span className="stack tight">
              <StateOf state={filter.state} />
              {filter.reason ? <small className="reason">{t.reason(filter.coded, filter.reason)}</small> : null}
            </span>
          ),
        },
        { title: t("filters.action"), cell: (filter) => <ActionOf filter={filter} /> },
        { title: t("filters.now"), isNumber: true, cell: (filter) => <PresentRate counter={filter.counter} /> },
        { title: t("filters.origin"), cell: (filter) => wordOf(t, ORIGINS, filter.origin) },
        {
          title: t("filters.until"),
          cell: (filter) => (filter.expires ? <Time at={filter.expires} /> : t("filters.withRoute")),
        },
        { title: t("fabric.acts"), isActs: true, cell: (filter) => <Acts filter={filter} /> },
      ]}
    />
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
