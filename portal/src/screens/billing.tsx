import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { billing as billingQuery } from "../api/queries";
import type { BillingRow } from "../api/types";
import { useMe } from "../app/shell";
import { Rate } from "../i18n/format";
import { useLanguage, useText } from "../i18n/text";
import { formatShare } from "../i18n/units";
import { Select } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead, State } from "../ui/parts";
import { Table, type Column } from "../ui/table";
import { parseBillingSearch } from "./billing.search";

/** The number of months before the present one that can be chosen. */
const MONTHS = 12;

/**
 * Returns the months that can be chosen, the newest first: the exchange's present one, "2026-11", and those before it.
 */
export function months(present: string): string[] {
  const begin = new Date(`${present}-01T00:00:00Z`);
  return Array.from({ length: MONTHS + 1 }, (_, index) => {
    const month = new Date(Date.UTC(begin.getUTCFullYear(), begin.getUTCMonth() - index, 1));
    return month.toISOString().slice(0, 7);
  });
}

/** Returns a month in words. */
function monthName(month: string, language: string): string {
  return new Intl.DateTimeFormat(language, { year: "numeric", month: "long", timeZone: "UTC" }).format(
    new Date(`${month}-01T00:00:00Z`),
  );
}

/** The 95th percentiles of a month, which are frozen when it has ended. */
export function Billing() {
  const t = useText();
  const me = useMe();
  const { language } = useLanguage();
  const navigate = useNavigate();
  const search = parseBillingSearch(useSearch({ strict: false }));
  const query = useQuery(billingQuery(search.month));
  // The month changes in the time zone of the exchange.
  const present = useQuery(billingQuery(undefined)).data?.month;
  const shown = search.month ?? present;
  const file = search.month ? `/api/v1/billing.csv?month=${search.month}` : "/api/v1/billing.csv";
  const choices = [...new Set([...(present ? months(present) : []), ...(shown ? [shown] : [])])];
  return (
    <>
      <ScreenHead
        title={t("nav.billing")}
        below={t("billing.about")}
        actions={query.data?.measured ? <a href={file}>{t("act.csv")}</a> : null}
      />
      <div className="stack">
        {shown ? (
          <Select
            label={t("billing.month")}
            selectedKey={shown}
            onSelectionChange={(key) =>
              void navigate({
                to: "/billing",
                search: parseBillingSearch(key === present ? {} : { month: String(key) }),
              })
            }
            options={choices.map((month) => ({ id: month, name: monthName(month, language) }))}
          />
        ) : null}
        <Loaded
          query={query}
          lines={6}
          empty={{
            when: (billing) => !billing.measured,
            show: (
              <Panel>
                <Empty title={t("graph.off")}>{t("graph.offAbout")}</Empty>
              </Panel>
            ),
          }}
        >
          {(billing) => (
            <Panel
              title={
                <>
                  {monthName(billing.month, language)}{" "}
                  <State tone={billing.frozen ? "ok" : "off"}>
                    {t(billing.frozen ? "billing.frozen" : "billing.open")}
                  </State>
                </>
              }
              flush
            >
              {billing.rows.length === 0 ? (
                <div className="panel-body">
                  <Empty title={t("connections.empty")}>{t("connections.emptyAbout")}</Empty>
                </div>
              ) : (
                <BillingTable rows={billing.rows} showsAccount={me.operator} />
              )}
            </Panel>
          )}
        </Loaded>
      </div>
    </>
  );
}

/** A rate that may not be known. */
function Known({ bits }: { bits: number | null }) {
  const t = useText();
  return bits === null ? <span className="quiet">{t("chart.unknown")}</span> : <Rate bits={bits} />;
}

/** The 95th percentiles of connections. A figure with too many gaps is marked. */
export function BillingTable({ rows, showsAccount }: { rows: BillingRow[]; showsAccount: boolean }) {
  const t = useText();
  const { language } = useLanguage();
  const columns: Column<BillingRow>[] = [
    { title: t("service.connection"), cell: (row) => row.connection_name },
    ...(showsAccount ? [{ title: t("connection.account"), cell: (row: BillingRow) => row.account_name }] : []),
    { title: t("connection.in"), isNumber: true, cell: (row) => <Known bits={row.in_bps} /> },
    { title: t("connection.out"), isNumber: true, cell: (row) => <Known bits={row.out_bps} /> },
    { title: t("billing.billed"), isNumber: true, cell: (row) => <Known bits={row.billed_bps} /> },
    {
      title: t("billing.coverage"),
      isNumber: true,
      cell: (row) => (
        <span className="row">
          {formatShare(row.coverage, language)}{" "}
          {row.billable ? null : <State tone="wait">{t("billing.incomplete")}</State>}
        </span>
      ),
    },
    {
      title: t("graph.family", { direction: t("connection.in"), family: "IPv4" }),
      isNumber: true,
      cell: (row) => <Known bits={row.in_ipv4_bps} />,
    },
    {
      title: t("graph.family", { direction: t("connection.in"), family: "IPv6" }),
      isNumber: true,
      cell: (row) => <Known bits={row.in_ipv6_bps} />,
    },
    {
      title: t("graph.family", { direction: t("connection.out"), family: "IPv4" }),
      isNumber: true,
      cell: (row) => <Known bits={row.out_ipv4_bps} />,
    },
    {
      title: t("graph.family", { direction: t("connection.out"), family: "IPv6" }),
      isNumber: true,
      cell: (row) => <Known bits={row.out_ipv6_bps} />,
    },
  ];
  return (
    // Ten columns can be wider than the window: the keyboard must reach the region that scrolls.
    <div className="table-wrap" tabIndex={0} role="region" aria-label={t("nav.billing")}>
      <Table label={t("nav.billing")} rows={rows} keyOf={(row) => row.connection} columns={columns} />
    </div>
  );
}
