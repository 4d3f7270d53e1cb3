import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Checkbox, CheckboxGroup, Label } from "react-aria-components";

import { staffOrder, useOrder } from "../api/orders";
import {
  accounts as accountsQuery,
  inventory as inventoryQuery,
  observedConnections,
  switches as switchesQuery,
  vlans as vlansQuery,
} from "../api/queries";
import type { Connection } from "../api/types";
import { useMe } from "../app/shell";
import { Rate } from "../i18n/format";
import { useText } from "../i18n/text";
import { useAnchor } from "../ui/anchor";
import { ConfirmedAct } from "../ui/dialog";
import { Choices, Select, TextField } from "../ui/fields";
import { Graphs } from "../ui/graph";
import { Ident } from "../ui/ident";
import { InvalidField } from "../ui/invalid";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Panel, ScreenHead, State } from "../ui/parts";
import { StateOf } from "../ui/words";

/** The number of connections up to which their VLANs are read without a request of the reader. */
const OPEN_MAX = 4;

/** Returns ranges as text: [[2, 99], [101, 101]] is "2–99, 101". */
export function formatRanges(ranges: readonly (readonly number[])[]): string {
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

/** The connections: ports, speeds, what is reserved, which VLANs are free. */
export function Connections() {
  const t = useText();
  const me = useMe();
  const query = useQuery(observedConnections);
  useAnchor(query.data !== undefined);
  return (
    <>
      <ScreenHead
        title={t("nav.connections")}
        actions={me.operator && me.can.includes("create_connection") ? <AddConnection /> : null}
      />
      <Loaded
        query={query}
        lines={8}
        empty={{
          when: (list) => list.length === 0,
          show: (
            <Panel>
              <Empty title={t("connections.empty")}>{t("connections.emptyAbout")}</Empty>
            </Panel>
          ),
        }}
      >
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
                  <State tone={port.up === null ? "off" : port.up ? "ok" : "bad"}>
                    {t(port.up === null ? "state.unknown" : port.up ? "state.up" : "state.down")}
                  </State>
                </span>,
              ]),
            ]}
          />
          <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
            <summary>{t("connection.vlans")}</summary>
            {open ? (
              <Loaded query={vlans} lines={2}>
                {(vlans) => (
                  <>
                    <p>
                      {vlans.free.length === 0
                        ? t("connection.noneFree")
                        : t("connection.free", { ranges: formatRanges(vlans.free) })}
                    </p>
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
              </Loaded>
            ) : null}
          </details>
        </div>
        {me.can.includes("read_traffic") ? (
          <Graphs
            of={{ kind: "connections", id: connection.id }}
            directions={{ in: t("connection.in"), out: t("connection.out") }}
            isOpen={isOpen}
          />
        ) : null}
      </Panel>
    </section>
  );
}

/** The act by which the staff adds a connection of a member at a free port. */
function AddConnection() {
  const t = useText();
  const [account, setAccount] = useState("");
  const [name, setName] = useState("");
  const [entry, setEntry] = useState("");
  const [ports, setPorts] = useState<string[]>([]);
  const [kind, setKind] = useState("standalone");
  const accounts = useQuery(accountsQuery);
  const switches = useQuery(switchesQuery);
  const inventory = useQuery(inventoryQuery(entry, true));
  const add = useOrder(staffOrder.connection);
  const free = (inventory.data ?? []).filter((port) => port.used_by === null);
  return (
    <ConfirmedAct
      label={t("connections.add")}
      title={t("connections.add")}
      sentence={t("connections.addAbout")}
      kind="primary"
      onOpen={() => {
        setName("");
        setPorts([]);
      }}
      act={(keyOf) => {
        if (account === "" || name.trim() === "" || ports.length === 0)
          return Promise.reject(new InvalidField(t("form.incomplete")));
        const body = { account, name: name.trim(), kind: ports.length === 1 ? "standalone" : kind, ports };
        return add.mutateAsync([body, keyOf(body)]);
      }}
    >
      <Select
        label={t("connection.account")}
        selectedKey={account === "" ? null : account}
        onSelectionChange={(key) => setAccount(String(key))}
        options={(accounts.data ?? [])
          .filter((one) => one.kind === "member" || one.kind === "reseller")
          .map(({ id, name: text }) => ({ id, name: text }))}
      />
      <TextField label={t("members.name")} value={name} onChange={setName} />
      <Select
        label={t("fabric.switch")}
        selectedKey={entry === "" ? null : entry}
        onSelectionChange={(key) => {
          setEntry(String(key));
          setPorts([]);
        }}
        options={(switches.data ?? []).map((one) => ({ id: one.id, name: one.name, hint: one.site }))}
      />
      {entry === "" ? null : (
        <CheckboxGroup className="field" value={ports} onChange={setPorts}>
          <Label className="label">{t("connections.freePorts")}</Label>
          <div className="choices">
            {free.map((port) => (
              <Checkbox key={port.id} value={port.id} className="choice">
                <span className="mark square" />
                <span>
                  {t("connection.port", { number: port.number })} <Rate bits={port.speed_mbps * 1e6} />
                </span>
              </Checkbox>
            ))}
          </div>
        </CheckboxGroup>
      )}
      {ports.length > 1 ? (
        <Choices
          label={t("connections.lag")}
          value={kind === "lag_static" ? "lag_static" : "lag_lacp"}
          onChange={setKind}
          options={[
            { id: "lag_lacp", name: t("connections.lacp") },
            { id: "lag_static", name: t("connections.static") },
          ]}
        />
      ) : null}
    </ConfirmedAct>
  );
}
