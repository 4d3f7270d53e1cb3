import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { RequestError } from "../api/problem";
import { lanMembers, lanOrder, services as servicesQuery, staffOrder, useOrder } from "../api/queries";
import type { Checklist, End, RegisteredIp, Service } from "../api/types";
import { useMe } from "../app/shell";
import { Age, Time, useClock } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Select, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Join } from "../ui/join";
import { Leave } from "../ui/leave";
import { explain, Loaded } from "../ui/loaded";
import { Empty, Facts, Notice, Panel, ScreenHead, State, type Tone } from "../ui/parts";
import { RouterConfig } from "../ui/routerconfig";
import { withLengths } from "../ui/routers";
import { StateOf } from "../ui/words";
import { Table } from "../ui/table";
import { RouteServers } from "./routeservers";

const CHECKS: Record<string, { name: MessageId; fix: MessageId }> = {
  mac: { name: "check.mac", fix: "check.macFix" },
  tag: { name: "check.tag", fix: "check.tagFix" },
  ethertype: { name: "check.ethertype", fix: "check.ethertypeFix" },
  stp: { name: "check.stp", fix: "check.stpFix" },
  lacp: { name: "check.lacp", fix: "check.lacpFix" },
  lldp: { name: "check.lldp", fix: "check.lldpFix" },
  cdp: { name: "check.cdp", fix: "check.cdpFix" },
  dhcp: { name: "check.dhcp", fix: "check.dhcpFix" },
  ra: { name: "check.ra", fix: "check.raFix" },
  redirect: { name: "check.redirect", fix: "check.redirectFix" },
  arp: { name: "check.arp", fix: "check.arpFix" },
  nd: { name: "check.nd", fix: "check.ndFix" },
  proxy_arp: { name: "check.proxyArp", fix: "check.proxyArpFix" },
  multicast: { name: "check.multicast", fix: "check.multicastFix" },
};

const CHECK_STATES: Record<string, { tone: Tone; word: MessageId }> = {
  clean: { tone: "ok", word: "check.clean" },
  failing: { tone: "bad", word: "check.failing" },
  fixed: { tone: "wait", word: "check.fixed" },
  unchecked: { tone: "off", word: "check.unchecked" },
};

/** Returns a frame as rows of sixteen bytes. */
function hexRows(frame: string): string {
  const bytes = frame.match(/../g) ?? [];
  const rows: string[] = [];
  for (let at = 0; at < bytes.length; at += 16)
    rows.push(`${at.toString(16).padStart(4, "0")}  ${bytes.slice(at, at + 16).join(" ")}`);
  return rows.join("\n");
}

/** The checks of the quarantine, the time that is left, and the offending frames. */
export function QuarantineChecklist({ list }: { list: Checklist }) {
  const t = useText();
  const now = useClock(1_000);
  const left = Math.max(0, Math.round((new Date(list.ends).getTime() - now.getTime()) / 1000));
  const failing = list.checks.filter((check) => check.state === "failing");
  return (
    <div className="stack">
      <Notice
        tone={failing.length > 0 ? "bad" : "wait"}
        title={
          failing.length > 0
            ? t("quarantine.failing", { count: failing.length })
            : t("quarantine.running", { left: `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` })
        }
      >
        <p>{t(list.seen ? "quarantine.about" : "quarantine.unseen", { minutes: Math.round(list.seconds / 60) })}</p>
        <meter
          min={0}
          max={list.seconds}
          value={list.seconds - Math.min(left, list.seconds)}
          aria-label={t("quarantine.progress")}
        />
      </Notice>
      <ul className="checks" aria-label={t("quarantine.checks")}>
        {[...list.checks]
          .sort((a, b) => order(a.state) - order(b.state))
          .map((check) => {
            const known = CHECKS[check.check];
            const state = CHECK_STATES[check.state];
            return (
              <li key={check.check}>
                <State tone={state?.tone ?? "off"}>{t(state?.word ?? "state.unknown")}</State>
                <span>{known ? t(known.name) : check.check}</span>
                {check.state === "failing" && known ? <span className="check-fix">{t(known.fix)}</span> : null}
              </li>
            );
          })}
      </ul>
      {list.findings.length > 0 ? (
        <section className="stack tight">
          <h3>{t("quarantine.frames")}</h3>
          <ul className="stack tight">
            {list.findings.map((finding, index) => (
              <li key={`${finding.at} ${index}`}>
                <details open={index === 0}>
                  <summary>
                    {t.reason(finding.coded, finding.text)} <span className="quiet">×{finding.count}</span>{" "}
                    <Age at={finding.at} />
                  </summary>
                  <pre className="frame" tabIndex={0} aria-label={t("quarantine.bytes")}>
                    {hexRows(finding.frame)}
                  </pre>
                </details>
              </li>
            ))}
          </ul>
        </section>
      ) : null}
    </div>
  );
}

function order(state: string): number {
  return state === "failing" ? 0 : state === "fixed" ? 1 : 2;
}

const HOURS = ["1", "6", "24"];

/** The wizard for a new router: the new address is added, the old one ends by itself. */
function SwapRouter({ end: live }: { end: End }) {
  const t = useText();
  const [end, hold] = useAsOpened(live);
  const [address, setAddress] = useState("");
  const [hours, setHours] = useState("24");
  const swap = useOrder(
    async (old: { id: string; valid_until: string | null }, address: string, until: string, key: string) => {
      // The policy permits one address more than its limit while the validity of one of them ends within a day.
      await lanOrder.endMac(old.id, until);
      try {
        return await lanOrder.addMac(end.id, address, key);
      } catch (error) {
        // Without an answer the new address may be registered: the same order again finds out.
        const isRefused = error instanceof RequestError && !error.isTransient;
        if (isRefused) await lanOrder.endMac(old.id, old.valid_until).catch(() => {});
        throw error;
      }
    },
  );
  const old = end.macs[end.macs.length - 1];
  if (!old || !end.can.includes("add_mac")) return null;
  return (
    <ConfirmedAct
      label={t("mac.swap")}
      title={t("mac.swap")}
      sentence={t("mac.swapAbout", { address: old.address })}
      kind="primary"
      explain={(error) => explain(t, error)}
      hold={hold}
      onOpen={() => setAddress("")}
      act={(keyOf) =>
        isMac(address)
          ? swap.mutateAsync([old, address.trim(), inHours(Number(hours)), keyOf(address.trim())])
          : Promise.reject(new InvalidField(t("mac.wrong")))
      }
    >
      <TextField
        id="mac-new"
        label={t("mac.new")}
        hint={t("mac.hint")}
        value={address}
        onChange={setAddress}
        inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "02:00:5e:00:53:01" }}
      />
      <Select
        label={t("mac.oldEnds")}
        options={HOURS.map((id) => ({ id, name: t("filterForm.hours", { count: Number(id) }) }))}
        value={hours}
        onChange={(key) => setHours(String(key))}
      />
      <p className="hint">{t("mac.told")}</p>
    </ConfirmedAct>
  );
}

export function isMac(text: string): boolean {
  return /^(([0-9a-f]{2}[:-]){5}[0-9a-f]{2}|([0-9a-f]{4}[.-]){2}[0-9a-f]{4}|[0-9a-f]{12})$/i.test(text.trim());
}

/**
 * The longest time in ms for which both addresses are ordered: the limit of a day, less the error of the reader's
 * clock.
 */
const SWAP_MAX = 86_400_000 - 300_000;

function inHours(hours: number): string {
  return new Date(Date.now() + Math.min(hours * 3_600_000, SWAP_MAX)).toISOString();
}

/** The registered MAC addresses of an end. */
export function Macs({ end, max }: { end: End; max?: number | undefined }) {
  const t = useText();
  const [address, setAddress] = useState("");
  const add = useOrder(lanOrder.addMac);
  const remove = useOrder(lanOrder.removeMac);
  const explained = (error: unknown) => explain(t, error);
  return (
    <section className="stack tight">
      <h3>{t("mac.title")}</h3>
      {end.macs.length === 0 ? <p className="quiet">{t("mac.none")}</p> : null}
      <ul className="lines">
        {end.macs.map((mac) => (
          <li key={mac.id} className="row spread mac">
            <span>
              <code>{mac.address}</code>{" "}
              {mac.valid_until ? (
                <span className="quiet">
                  {t("task.until")} <Time at={mac.valid_until} />
                </span>
              ) : null}
            </span>
            {end.can.includes("remove_mac") ? (
              <ConfirmedAct
                label={t("mac.remove")}
                title={t("mac.removeTitle", { address: mac.address })}
                sentence={t("mac.removeAbout")}
                kind="danger"
                explain={explained}
                act={() => remove.mutateAsync([mac.id])}
              />
            ) : null}
          </li>
        ))}
      </ul>
      {max === undefined ? null : <p className="hint">{t("mac.limit", { count: max })}</p>}
      <div className="buttons">
        <SwapRouter end={end} />
        {end.can.includes("add_mac") && (max === undefined || end.macs.length < max) ? (
          <ConfirmedAct
            label={t("mac.add")}
            title={t("mac.add")}
            sentence={t("mac.addAbout")}
            explain={explained}
            onOpen={() => setAddress("")}
            act={(keyOf) =>
              isMac(address)
                ? add.mutateAsync([end.id, address.trim(), keyOf(address.trim())])
                : Promise.reject(new InvalidField(t("mac.wrong")))
            }
          >
            <TextField
              label={t("mac.new")}
              hint={t("mac.hint")}
              value={address}
              onChange={setAddress}
              inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "02:00:5e:00:53:01" }}
            />
          </ConfirmedAct>
        ) : null}
      </div>
    </section>
  );
}

function Waive({ end: live }: { end: End }) {
  const t = useText();
  const [end, hold] = useAsOpened(live);
  const [reason, setReason] = useState("");
  const waive = useOrder(lanOrder.waive);
  if (!end.can.includes("waive_quarantine") || end.quarantine !== "running") return null;
  return (
    <ConfirmedAct
      label={t("quarantine.waive")}
      title={t("quarantine.waive")}
      sentence={t("quarantine.waiveAbout", { account: end.account.name })}
      kind="danger"
      explain={(error) => explain(t, error)}
      hold={hold}
      act={() =>
        reason.trim() === ""
          ? Promise.reject(new InvalidField(t("quarantine.reasonMissing")))
          : waive.mutateAsync([end.id, end.revision, reason.trim()])
      }
    >
      <TextField label={t("service.reason")} value={reason} onChange={setReason} />
    </ConfirmedAct>
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
      explain={(error) => explain(t, error)}
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
      explain={(error) => explain(t, error)}
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
      <div className={query.data && query.data.length > 0 ? "table-wrap" : "panel-body"}>
        <Loaded
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
      </div>
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
