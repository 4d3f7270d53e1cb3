import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { staffOrder, useOrder } from "../api/orders";
import { lanMembers, services as servicesQuery } from "../api/queries";
import type { End, RegisteredIp, Service } from "../api/types";
import { useMe } from "../app/shell";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { TextField } from "../ui/fields";
import { Join } from "../ui/join";
import { Leave } from "../ui/leave";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Panel, ScreenHead, State } from "../ui/parts";
import { RouterConfig } from "../ui/routerconfig";
import { withLengths } from "../ui/routers";
import { Table } from "../ui/table";
import { StateOf } from "../ui/words";
import { Macs } from "./lan.macs";
import { QuarantineChecklist, Waive } from "./lan.quarantine";
import { RouteServers } from "./routeservers";

/** The peering LANs: the checklist of the quarantine, MAC addresses, who is there. */
export function PeeringLan() {
  const t = useText();
  const query = useQuery(servicesQuery);
  const lans = (query.data ?? []).filter((service) => service.kind === "exchange_lan");
  return (
    <>
      <ScreenHead title={t("nav.lan")} below={t("lan.about")} />
      <Loaded
        query={query}
        lines={8}
        empty={{
          when: () => lans.length === 0,
          show: (
            <Panel>
              <Empty title={t("lan.none")}>{t("lan.noneAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {() => (
          <div className="stack">
            {lans.map((service) => (
              <Lan key={service.id} service={service} />
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}

/** The act by which the staff assigns an address of the LAN to an end. */
function AssignAddress({ end, service }: { end: End; service: Service }) {
  const t = useText();
  const me = useMe();
  const [address, setAddress] = useState("");
  const assign = useOrder(staffOrder.address);
  if (!me.can.includes("add_ip")) return null;
  return (
    <ConfirmedAct
      label={t("lan.assign")}
      title={t("lan.assign")}
      sentence={t("lan.assignAbout", { networks: service.networks.join(", ") })}
      onOpen={() => setAddress("")}
      act={(keyOf) => assign.mutateAsync([end.id, address.trim(), keyOf(address)])}
    >
      <TextField
        label={t("lan.address")}
        value={address}
        onChange={setAddress}
        inputProps={{ autoComplete: "off", spellCheck: false }}
      />
    </ConfirmedAct>
  );
}

/** The act by which the staff takes an address from an end. */
function WithdrawAddress({ ip }: { ip: RegisteredIp }) {
  const t = useText();
  const me = useMe();
  const remove = useOrder(staffOrder.removeAddress);
  if (!me.can.includes("remove_ip")) return null;
  return (
    <ConfirmedAct
      label={t("people.remove")}
      title={t("people.removeTitle", { name: ip.address })}
      sentence={t("lan.withdrawAbout")}
      kind="danger"
      act={() => remove.mutateAsync([ip.id])}
    />
  );
}

function LanEnd({ end, service }: { end: End; service: Service }) {
  const t = useText();
  const me = useMe();
  const state =
    end.quarantine === "running"
      ? { tone: "wait" as const, word: "state.testing" as const }
      : { tone: "ok" as const, word: "state.production" as const };
  return (
    <Panel
      title={end.connection ? `${end.account.name} · ${end.connection.name}` : end.account.name}
      actions={
        <State tone={end.shut_down ? "wait" : state.tone}>{t(end.shut_down ? "service.isShutDown" : state.word)}</State>
      }
    >
      <div className="stack">
        {end.checklist ? <QuarantineChecklist list={end.checklist} /> : null}
        <div className="two">
          <Facts
            items={[
              [t("service.site"), end.site],
              ...(end.connection
                ? ([[t("connection.port", { number: "" }), end.connection.ports.join(", ")]] as [string, string][])
                : []),
              ...(end.vlan_text ? ([[t("service.tags"), end.vlan_text]] as [string, string][]) : []),
              [
                t("lan.addresses"),
                end.ips.length === 0 ? (
                  t("lan.noAddresses")
                ) : (
                  <span key="ips" className="stack tight">
                    {end.ips.map((ip) => (
                      <span key={ip.id} className="row">
                        <code>{ip.address}</code> <WithdrawAddress ip={ip} />
                      </span>
                    ))}
                  </span>
                ),
              ],
            ]}
          />
          <Macs end={end} max={service.rules?.macs_max} />
        </div>
        {me.can.includes("read_filter") ? <RouteServers end={end.id} isOwn={end.account.id === me.account.id} /> : null}
        {end.own && end.vlan ? (
          <details>
            <summary>{t("router.title")}</summary>
            <RouterConfig
              end={{
                vlan: end.vlan,
                about: service.name,
                rateMbps: end.capacity_mbps,
                addresses: withLengths(end.ips),
                lan: true,
              }}
            />
          </details>
        ) : null}
        <div className="buttons">
          <AssignAddress end={end} service={service} />
          <Waive end={end} />
          <Leave end={end} service={service} />
        </div>
      </div>
    </Panel>
  );
}

function Members({ service }: { service: Service }) {
  const t = useText();
  const query = useQuery(lanMembers(service.id));
  return (
    <Panel title={t("lan.members")} flush>
      <Loaded
        fills="table"
        query={query}
        empty={{
          when: (list) => list.length === 0,
          show: <Empty title={t("lan.noMembers")}>{t("lan.noMembersAbout")}</Empty>,
        }}
      >
        {(list) => (
          <Table
            rows={list}
            keyOf={(presence) => presence.account.id}
            columns={[
              {
                title: t("members.name"),
                cell: (presence) => (
                  <>
                    {presence.account.name} {presence.own ? <span className="quiet">{t("lan.you")}</span> : null}
                  </>
                ),
              },
              {
                title: t("members.asns"),
                cell: (presence) => presence.account.asns.map((asn) => `AS${asn}`).join(", "),
              },
              {
                title: t("lan.addresses"),
                cell: (presence) => (
                  <span className="stack tight">
                    {presence.addresses.map((address) => (
                      <code key={address}>{address}</code>
                    ))}
                  </span>
                ),
              },
              { title: t("service.site"), cell: (presence) => presence.sites.join(", ") },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

function Lan({ service }: { service: Service }) {
  const t = useText();
  const me = useMe();
  const ends = [...service.ends].sort(
    (a, b) => Number(b.quarantine === "running") - Number(a.quarantine === "running"),
  );
  const { rules } = service;
  const join = { label: t("lan.join"), title: t("lan.joinTitle", { lan: service.name }), sentence: t("lan.joinAbout") };
  return (
    <div className="stack">
      <Panel
        title={
          <>
            <Link to="/services/$id" params={{ id: service.id }}>
              {service.name}
            </Link>{" "}
            <StateOf state={service.state} />
          </>
        }
        actions={
          me.can.includes("configure_end") ? (
            <Join service={service} kind={service.ends.length === 0 ? "primary" : "plain"} words={join} />
          ) : null
        }
      >
        <Facts
          items={[
            [
              t("lan.networks"),
              <span key="n" className="row">
                {service.networks.map((network) => (
                  <code key={network}>{network}</code>
                ))}
              </span>,
            ],
            ...(rules
              ? ([
                  [t("lan.passes"), rules.ethertypes.join(", ")],
                  [t("lan.macs"), t("mac.limit", { count: rules.macs_max })],
                  [
                    t("lan.broadcast"),
                    t("lan.rates", { broadcast: rules.broadcast_pps, multicast: rules.multicast_pps }),
                  ],
                  [t("lan.arp"), t("lan.arpAbout")],
                ] as [string, string][])
              : []),
          ]}
        />
      </Panel>
      {ends.length === 0 ? (
        <Panel>
          <Empty title={t("lan.notJoined")}>{t("lan.notJoinedAbout")}</Empty>
        </Panel>
      ) : null}
      {ends.map((end) => (
        <LanEnd key={end.id} end={end} service={service} />
      ))}
      <Members service={service} />
    </div>
  );
}
