import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { traffic as trafficQuery } from "../api/queries";
import type { AccountTraffic, Flow, PeerTraffic } from "../api/types";
import { Rate } from "../i18n/format";
import { protocolName } from "../i18n/protocols";
import { useLanguage, useText } from "../i18n/text";
import { formatNumber } from "../i18n/units";
import { saveCsv } from "../ui/csv";
import { Graphs } from "../ui/graph";
import { Loaded } from "../ui/loaded";
import { Button, Empty, Notice, Panel, ScreenHead } from "../ui/parts";
import { Table, type Column } from "../ui/table";

/** Saves what was measured as a table. */
function save(traffic: AccountTraffic): void {
  const head = [
    "direction",
    "peer",
    "service",
    "service_name",
    "bits_per_s",
    "ipv4_bits_per_s",
    "ipv6_bits_per_s",
    "packets_per_s",
    "dropped_bits_per_s",
    "error_percent",
  ];
  const rows = (direction: string, rates: PeerTraffic[]) =>
    rates.map((rate) => [
      direction,
      rate.peer?.name ?? null,
      rate.service,
      rate.service_name,
      rate.bits_per_s,
      rate.ipv4_bits_per_s,
      rate.ipv6_bits_per_s,
      rate.packets_per_s,
      rate.dropped_bits_per_s,
      Math.round(rate.error_percent * 10) / 10,
    ]);
  saveCsv("traffic.csv", [head, ...rows("in", traffic.incoming), ...rows("out", traffic.outgoing)]);
}

/** The traffic of the own account by peer and service, as the switches sample it. */
export function Traffic() {
  const t = useText();
  const query = useQuery(trafficQuery);
  const measured = query.data?.measured ? query.data : undefined;
  return (
    <>
      <ScreenHead
        title={t("nav.traffic")}
        below={t("traffic.about")}
        actions={measured ? <Button onPress={() => save(measured)}>{t("act.csv")}</Button> : null}
      />
      <Loaded
        query={query}
        lines={8}
        empty={{
          when: (traffic) => !traffic.measured,
          show: <Empty title={t("traffic.notMeasured")}>{t("traffic.notMeasuredAbout")}</Empty>,
        }}
      >
        {(traffic) => (
          <div className="stack">
            <Panel title={t("graph.title")}>
              <Graphs
                of={{ kind: "peers" }}
                title={t("graph.peers")}
                choose={t("graph.peer")}
                about={t("graph.peersAbout")}
                directions={{ in: t("traffic.incoming"), out: t("traffic.outgoing") }}
                isOpen
              />
            </Panel>
            <Measured traffic={traffic} />
          </div>
        )}
      </Loaded>
    </>
  );
}

/** The rates with each peer in each service, with their error. */
function Peers({ rates, label, showsDrops }: { rates: PeerTraffic[]; label: string; showsDrops: boolean }) {
  const t = useText();
  const { language } = useLanguage();
  if (rates.length === 0)
    return (
      <div className="panel-body">
        <Empty title={t("traffic.quiet")}>{t("traffic.quietAbout")}</Empty>
      </div>
    );
  const columns: Column<PeerTraffic>[] = [
    { title: t("traffic.peer"), cell: (rate) => rate.peer?.name ?? t("traffic.unknownPeer") },
    {
      title: t("traffic.service"),
      cell: (rate) => (
        <Link to="/services/$id" params={{ id: rate.service }}>
          {rate.service_name}
        </Link>
      ),
    },
    {
      title: t("traffic.rate"),
      isNumber: true,
      cell: (rate) => (
        <span>
          <Rate bits={rate.bits_per_s} />{" "}
          <span className="quiet">± {formatNumber(Math.round(rate.error_percent), language)} %</span>
        </span>
      ),
    },
    { title: "IPv4", isNumber: true, cell: (rate) => <Rate bits={rate.ipv4_bits_per_s} /> },
    { title: "IPv6", isNumber: true, cell: (rate) => <Rate bits={rate.ipv6_bits_per_s} /> },
    { title: t("traffic.packets"), isNumber: true, cell: (rate) => formatNumber(rate.packets_per_s, language) },
  ];
  if (showsDrops)
    columns.push({
      title: t("traffic.dropped"),
      isNumber: true,
      cell: (rate) => <Rate bits={rate.dropped_bits_per_s} />,
    });
  return (
    <div className="table-wrap">
      <Table
        label={label}
        rows={rates}
        keyOf={(rate) => `${rate.service} ${rate.peer?.name ?? ""}`}
        columns={columns}
      />
    </div>
  );
}

/** The heaviest flows to the account. */
function Flows({ flows }: { flows: Flow[] }) {
  const t = useText();
  const end = (address: string, port: number) =>
    port === 0 ? address : address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
  return (
    <div className="table-wrap">
      <Table
        label={t("traffic.flows")}
        rows={flows}
        keyOf={(flow) =>
          `${flow.source} ${flow.source_port} ${flow.destination} ${flow.destination_port} ${flow.protocol}`
        }
        columns={[
          { title: t("traffic.source"), cell: (flow) => <code>{end(flow.source, flow.source_port)}</code> },
          {
            title: t("traffic.destination"),
            cell: (flow) => <code>{end(flow.destination, flow.destination_port)}</code>,
          },
          { title: t("traffic.protocol"), cell: (flow) => protocolName(t, flow.protocol) },
          { title: t("traffic.rate"), isNumber: true, cell: (flow) => <Rate bits={flow.bits_per_s} /> },
        ]}
      />
    </div>
  );
}

function Measured({ traffic }: { traffic: AccountTraffic }) {
  const t = useText();
  const { language } = useLanguage();
  return (
    <div className="stack">
      <p className="quiet">
        {t("traffic.basis", { seconds: traffic.seconds, samples: formatNumber(traffic.samples, language) })}
      </p>
      {traffic.lost > 0 ? (
        <Notice tone="wait" title={t("traffic.lost", { samples: formatNumber(traffic.lost, language) })} />
      ) : null}
      <Panel title={t("traffic.incoming")} flush>
        <Peers rates={traffic.incoming} label={t("traffic.incoming")} showsDrops />
      </Panel>
      <Panel title={t("traffic.outgoing")} flush>
        <Peers rates={traffic.outgoing} label={t("traffic.outgoing")} showsDrops={false} />
      </Panel>
      {traffic.top.length > 0 ? (
        <Panel title={t("traffic.flows")} flush>
          <Flows flows={traffic.top} />
        </Panel>
      ) : null}
    </div>
  );
}
