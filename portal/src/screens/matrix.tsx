import { useQuery } from "@tanstack/react-query";

import { matrix as matrixQuery } from "../api/queries";
import type { MatrixPair } from "../api/types";
import { Age, Rate } from "../i18n/format";
import { useText } from "../i18n/text";
import { saveCsv } from "../ui/csv";
import { Loaded } from "../ui/loaded";
import { Button, Empty, Panel, ScreenHead, State } from "../ui/parts";
import { Table } from "../ui/table";

function save(pairs: MatrixPair[]): void {
  const head = ["from", "to", "service", "ipv4_bits_per_s", "ipv6_bits_per_s", "bgp_seen"];
  saveCsv("matrix.csv", [
    head,
    ...pairs.map((pair) => [
      pair.from.name,
      pair.to.name,
      pair.service_name,
      pair.ipv4_bits_per_s,
      pair.ipv6_bits_per_s,
      pair.bgp_seen,
    ]),
  ]);
}

/** Who peers with whom: the traffic of each pair, IPv4 and IPv6 apart, and whether a BGP session was seen. */
export function PeeringMatrix() {
  const t = useText();
  const query = useQuery(matrixQuery);
  const pairs = query.data?.pairs ?? [];
  return (
    <>
      <ScreenHead
        title={t("nav.matrix")}
        below={t("matrix.about")}
        actions={pairs.length > 0 ? <Button onPress={() => save(pairs)}>{t("act.csv")}</Button> : null}
      />
      <Loaded
        query={query}
        lines={8}
        empty={{
          when: (matrix) => !matrix.measured,
          show: (
            <Panel>
              <Empty title={t("traffic.notMeasured")}>{t("traffic.notMeasuredAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(matrix) => (
          <Panel flush>
            {matrix.pairs.length === 0 ? (
              <div className="panel-body">
                <Empty title={t("traffic.quiet")}>{t("traffic.quietAbout")}</Empty>
              </div>
            ) : (
              <div className="table-wrap">
                <Table
                  label={t("nav.matrix")}
                  rows={matrix.pairs}
                  keyOf={(pair) => `${pair.from.name} ${pair.to.name} ${pair.service_name}`}
                  columns={[
                    { title: t("matrix.from"), cell: (pair) => pair.from.name },
                    { title: t("matrix.to"), cell: (pair) => pair.to.name },
                    { title: t("traffic.service"), cell: (pair) => pair.service_name },
                    { title: "IPv4", isNumber: true, cell: (pair) => <Rate bits={pair.ipv4_bits_per_s} /> },
                    { title: "IPv6", isNumber: true, cell: (pair) => <Rate bits={pair.ipv6_bits_per_s} /> },
                    {
                      title: t("matrix.bgp"),
                      cell: (pair) =>
                        pair.bgp_seen ? (
                          <State tone="ok">
                            <Age at={pair.bgp_seen} />
                          </State>
                        ) : (
                          <State tone="off">{t("matrix.noBgp")}</State>
                        ),
                    },
                  ]}
                />
              </div>
            )}
          </Panel>
        )}
      </Loaded>
    </>
  );
}
