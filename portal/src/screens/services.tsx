import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, type CSSProperties } from "react";

import { services } from "../api/queries";
import type { Service } from "../api/types";
import { matches } from "../app/finder";
import { useMe } from "../app/shell";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { AddressField, Select } from "../ui/fields";
import { useHeld } from "../ui/held";
import { Lock } from "../ui/icons";
import { Ident } from "../ui/ident";
import { Loaded } from "../ui/loaded";
import { Button, Empty, Notice, Panel, ScreenHead } from "../ui/parts";
import { kindWord, StateOf, stateWord, statusText } from "../ui/words";
import { COLUMNS, parseServicesSearch, type Column, type ServicesSearch } from "./services.search";

const NAMES: Record<Column, MessageId> = { with: "services.with", ends: "services.ends", rate: "services.rate" };

const WIDTHS: Record<Column, string> = { with: "minmax(7rem, 1.4fr)", ends: "minmax(9rem, 1.6fr)", rate: "6.5rem" };

const ROW = 56;

const HEAD = 36;

const idOf = (service: Service) => service.id;

/** Returns the text in which a search looks for a service. */
function words(service: Service): string {
  const ends = service.ends.flatMap((end) => [
    end.id,
    end.vlan_text ?? "",
    end.account.name,
    end.site,
    end.connection?.name ?? "",
    ...end.macs.map((mac) => mac.address),
  ]);
  return [service.id, service.name, service.kind, service.account.name, service.peer?.name ?? "", ...ends].join(" ");
}

function withWhom(service: Service, own: string): string {
  const others = new Set(
    [service.account, ...(service.peer ? [service.peer] : []), ...service.ends.map((end) => end.account)]
      .filter((account) => account.id !== own)
      .map((account) => account.name),
  );
  return [...others].join(", ");
}

/** Returns the largest contracted rate of a service's ends in Mbit/s, or null. */
function rateOf(service: Service): number | null {
  const rate = Math.max(0, ...service.ends.map((end) => end.capacity_mbps ?? 0));
  return rate > 0 ? rate : null;
}

/** Saves services with both ends as a table. */
function save(services: Service[], own: string): void {
  const head = [
    "id",
    "name",
    "kind",
    "state",
    "account",
    "with",
    "connection",
    "site",
    "tags",
    "far_site",
    "rate_mbps",
    "locked_by",
  ];
  const rows = services.map((service) => {
    const near = service.ends.find((end) => end.account.id === own) ?? service.ends[0];
    const far = service.ends.find((end) => end !== near);
    const place = [near?.connection?.name ?? null, near?.site ?? null, near?.vlan_text ?? null, far?.site ?? null];
    return [
      service.id,
      service.name,
      service.kind,
      service.state,
      service.account.name,
      withWhom(service, own),
      ...place,
      rateOf(service),
      service.locked_by?.name ?? null,
    ];
  });
  void import("../ui/csv").then(({ saveCsv }) => saveCsv("services.csv", [head, ...rows]));
}

/** The list of all services. Only the rows in view are rendered, so that the list may be long. */
export function Services() {
  const t = useText();
  const me = useMe();
  const search = useSearch({ strict: false }) as ServicesSearch;
  const navigate = useNavigate();
  const query = useQuery(services);
  // A peering LAN that the account has not joined stands on its own screen.
  const own = useMemo(
    () =>
      (query.data ?? []).filter((service) => service.kind !== "exchange_lan" || me.operator || service.ends.length > 0),
    [query.data, me.operator],
  );
  const found = useMemo(
    () =>
      own.filter(
        (service) =>
          (search.state === "" || service.state === search.state) &&
          (search.q === "" || matches(words(service), search.q)),
      ),
    [own, search.q, search.state],
  );
  const states = useMemo(() => [...new Set(own.map((service) => service.state))].sort(), [own]);
  const hide = search.hide ?? [];
  const change = (next: Partial<ServicesSearch>) =>
    void navigate({ to: "/services", search: parseServicesSearch({ ...search, ...next }), replace: true });
  const orderLink =
    me.can.includes("create_service") && !me.operator ? (
      <Link to="/order" className="button" data-kind="primary">
        {t("nav.order")}
      </Link>
    ) : null;
  return (
    <>
      <ScreenHead title={t("nav.services")} actions={orderLink} />
      <div className="stack">
        <div className="toolbar" role="search" aria-label={t("services.filter")}>
          <AddressField label={t("services.filter")} value={search.q} onChange={(q) => change({ q })} wait={50} />
          <Select
            label={t("services.state")}
            options={[
              { id: "all", name: t("services.allStates") },
              ...states.map((state) => ({ id: state, name: stateWord(t, state) })),
            ]}
            value={search.state === "" ? "all" : search.state}
            onChange={(key) => change({ state: key === "all" ? "" : String(key) })}
          />
          <fieldset className="columns">
            <legend className="label">{t("services.columns")}</legend>
            {COLUMNS.map((column) => (
              <label key={column}>
                <input
                  type="checkbox"
                  checked={!hide.includes(column)}
                  onChange={(event) =>
                    change({
                      hide: COLUMNS.filter((other) =>
                        other === column ? !event.target.checked : hide.includes(other),
                      ),
                    })
                  }
                />{" "}
                {t(NAMES[column])}
              </label>
            ))}
          </fieldset>
        </div>
        <Panel
          flush
          title={t("services.count", { count: found.length })}
          actions={found.length > 0 ? <Button onPress={() => save(found, me.account.id)}>{t("act.csv")}</Button> : null}
        >
          <Loaded
            fills="list"
            query={query}
            lines={8}
            empty={{
              when: () => own.length === 0,
              show: (
                <Empty title={t("services.empty")} action={orderLink}>
                  {t("services.emptyAbout")}
                </Empty>
              ),
            }}
          >
            {() =>
              found.length === 0 ? (
                <Empty
                  title={t("services.noMatch")}
                  action={<Button onPress={() => change({ q: "", state: "" })}>{t("services.clear")}</Button>}
                >
                  {t("services.noMatchAbout")}
                </Empty>
              ) : (
                <Rows services={found} own={me.account.id} hide={hide} asked={`${search.state} ${search.q}`} />
              )
            }
          </Loaded>
        </Panel>
      </div>
    </>
  );
}

function Rows({ services, own, hide, asked }: { services: Service[]; own: string; hide: Column[]; asked: string }) {
  const t = useText();
  const { language } = useLanguage();
  const scroll = useRef<HTMLDivElement>(null);
  const held = useHeld(services, idOf, scroll, asked);
  const rows = useVirtualizer({
    count: held.items.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => ROW,
    overscan: 12,
    getItemKey: (index) => held.items[index]?.id ?? index,
  });
  const shown = COLUMNS.filter((column) => !hide.includes(column));
  const columns = {
    "--columns": ["minmax(11rem, 2.2fr)", "minmax(9rem, 1.6fr)", ...shown.map((column) => WIDTHS[column])].join(" "),
  } as CSSProperties;
  return (
    <>
      {held.waiting > 0 ? (
        <Notice tone="off" title={t("held.waiting", { count: held.waiting })}>
          <Button onPress={held.release}>{t("held.show")}</Button>
        </Notice>
      ) : null}
      <div
        className="virtual"
        style={{ ...columns, blockSize: rows.getTotalSize() + HEAD }}
        ref={scroll}
        {...held.handlers}
        role="table"
        aria-rowcount={held.items.length + 1}
        aria-label={t("nav.services")}
        tabIndex={0}
      >
        <div className="virtual-head service-row" role="row" aria-rowindex={1}>
          <span role="columnheader">{t("services.name")}</span>
          <span role="columnheader">{t("services.state")}</span>
          {shown.map((column) => (
            <span key={column} role="columnheader" className={`cell-${column}`}>
              {t(NAMES[column])}
            </span>
          ))}
        </div>
        <div role="rowgroup" style={{ blockSize: rows.getTotalSize(), position: "relative" }}>
          {rows.getVirtualItems().map((row) => {
            const service = held.items[row.index];
            if (!service) return null;
            const rate = rateOf(service);
            const first = service.status[0];
            return (
              <div
                key={row.key}
                role="row"
                aria-rowindex={row.index + 2}
                className="virtual-row service-row"
                style={{ transform: `translateY(${row.start}px)`, blockSize: ROW }}
              >
                <span role="cell" className="cell-name">
                  <Link to="/services/$id" params={{ id: service.id }}>
                    {service.name}
                  </Link>
                  {service.locked_by ? (
                    <span title={t("service.lockedBy", { account: service.locked_by.name })}>
                      <Lock />
                      <span className="visually-hidden">
                        {t("service.lockedBy", { account: service.locked_by.name })}
                      </span>
                    </span>
                  ) : null}
                  <small className="quiet">
                    <Ident id={service.id} /> {kindWord(t, service.kind)}
                  </small>
                </span>
                <span role="cell">
                  <StateOf state={service.state} />
                  {first ? <small className="quiet clip">{statusText(t, first, service.can)}</small> : null}
                </span>
                {hide.includes("with") ? null : (
                  <span role="cell" className="clip cell-with">
                    {withWhom(service, own)}
                  </span>
                )}
                {hide.includes("ends") ? null : (
                  <span role="cell" className="cell-ends">
                    {service.ends.map((end) => (
                      <small key={end.id} className="clip">
                        {end.site}
                        {end.vlan_text ? ` · ${end.vlan_text}` : ""}
                      </small>
                    ))}
                  </span>
                )}
                {hide.includes("rate") ? null : (
                  <span role="cell" className="cell-rate">
                    {rate === null ? "" : formatBitRate(rate * 1e6, language)}
                  </span>
                )}
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}
