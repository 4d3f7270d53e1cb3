import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { observedConnections, vlans as vlansQuery } from "../api/queries";
import type { Connection } from "../api/types";
import { useMe } from "../app/shell";
import { Rate } from "../i18n/format";
import { useText } from "../i18n/text";
import { Ident } from "../ui/ident";
import { useAnchor } from "../ui/anchor";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Panel, ScreenHead, State } from "../ui/parts";
import { StateOf } from "../ui/words";

/** Returns ranges as text: [[2, 99], [101, 101]] is "2–99, 101". */
export function formatRanges(ranges: readonly (readonly number[])[]): string {
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

/** The number of connections up to which their VLANs are read without a request of the reader. */
const OPEN_MAX = 4;

function ConnectionPanel({ connection, isOpen }: { connection: Connection; isOpen: boolean }) {
  const t = useText();
  const me = useMe();
  const [open, setOpen] = useState(isOpen);
  const vlans = useQuery(vlansQuery(connection.id, open));
  return (
    <section id={connection.id} tabIndex={-1}>
      <Panel title={connection.name} actions={<StateOf state={connection.state} />}>
        <div className="two">
          <Facts
            items={[
              ...(me.operator
                ? ([
                    [t("connection.id"), <code key="id">{connection.id}</code>],
                    [t("connection.account"), connection.account.name],
                  ] as [string, React.ReactNode][])
                : []),
              [t("service.site"), connection.site],
              [t("connection.speed"), <Rate key="speed" bits={connection.speed_mbps * 1e6} />],
              [t("connection.reserved"), <Rate key="reserved" bits={connection.reserved_mbps * 1e6} />],
              ...(connection.load
                ? ([
                    [t("connection.in"), <Rate key="in" bits={connection.load.in_bps} />],
                    [t("connection.out"), <Rate key="out" bits={connection.load.out_bps} />],
                  ] as [string, React.ReactNode][])
                : []),
              [t("connection.ends"), String(connection.ends)],
              ...connection.ports.map((port): [string, React.ReactNode] => [
                t("connection.port", { number: port.number }),
                <span key={port.id} className="row">
                  <span>
                    {port.switch} <Ident id={port.id} />
                  </span>
                  <State tone={port.up === null ? "off" : port.up ? "ok" : "bad"}>{t(port.up === null ? "state.unknown" : port.up ? "state.up" : "state.down")}</State>
                </span>,
              ]),
            ]}
          />
          <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
            <summary>{t("connection.vlans")}</summary>
            {open ? <Loaded query={vlans} lines={2}>
              {(vlans) => (
                <>
                  <p>{vlans.free.length === 0 ? t("connection.noneFree") : t("connection.free", { ranges: formatRanges(vlans.free) })}</p>
                  {vlans.taken.length === 0 ? null : (
                    <ul>
                      {vlans.taken.map((taken) => (
                        <li key={`${taken.vlan} ${taken.service}`}>
                          {taken.vlan}:{" "}
                          <Link to="/services/$id" params={{ id: taken.service }}>
                            {taken.name}
                          </Link>{" "}
                          <Ident id={taken.service} />
                        </li>
                      ))}
                    </ul>
                  )}
                </>
              )}
            </Loaded> : null}
          </details>
        </div>
      </Panel>
    </section>
  );
}

/** The connections: ports, speeds, what is reserved, which VLANs are free. */
export function Connections() {
  const t = useText();
  const query = useQuery(observedConnections);
  useAnchor(query.data !== undefined);
  return (
    <>
      <ScreenHead title={t("nav.connections")} />
      <Loaded query={query} lines={8} empty={{ when: (list) => list.length === 0, show: <Panel><Empty title={t("connections.empty")}>{t("connections.emptyAbout")}</Empty></Panel> }}>
        {(list) => (
          <div className="stack">
            {list.map((connection) => (
              <ConnectionPanel key={connection.id} connection={connection} isOpen={list.length <= OPEN_MAX} />
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}

