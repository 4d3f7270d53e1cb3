import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import {
  accounts as accountsQuery,
  contacts as contactsQuery,
  lookingGlass as lookingGlassQuery,
  policies as policiesQuery,
  services as servicesQuery,
} from "../api/queries";
import { useText } from "../i18n/text";
import { Loaded } from "../ui/loaded";
import { Panel, ScreenHead, State, type Tone } from "../ui/parts";

/**
 * The actions of MANRS for exchange points, each with the evidence that this exchange shows now. Action 2, to promote
 * MANRS to the members, happens outside of the exchange's programs: the page claims nothing about it.
 */
export function Manrs() {
  const t = useText();
  return (
    <>
      <ScreenHead title={t("nav.manrs")} below={t("manrs.about")} />
      <div className="stack">
        <RouteFiltering />
        <Panel title={t("manrs.promote")}>
          <Evidence tone="off" word={t("manrs.notMeasured")}>
            {t("manrs.promoteAbout")}
          </Evidence>
        </Panel>
        <PlatformProtection />
        <Communication />
        <Tools />
      </div>
    </>
  );
}

/** Action 1: route servers that are read, with what they accept and reject. */
function RouteFiltering() {
  const t = useText();
  const query = useQuery(lookingGlassQuery);
  return (
    <Panel title={t("manrs.filtering")}>
      <Loaded query={query} lines={2}>
        {({ route_servers: servers }) => {
          if (servers.length === 0) return <Missing>{t("glass.none")}</Missing>;
          // Without an answer of a route server nobody knows what it rejects.
          const unread = servers.filter((server) => server.read_at === null).map((server) => server.name);
          if (unread.length > 0) return <Missing>{t("manrs.unread", { names: unread.join(", ") })}</Missing>;
          const sessions = servers.flatMap((server) => server.sessions);
          const accepted = sessions.reduce((sum, session) => sum + (session.accepted ?? 0), 0);
          const rejected = sessions.reduce((sum, session) => sum + session.rejected.length, 0);
          return <Shown>{t("manrs.filtered", { sessions: sessions.length, accepted, rejected })}</Shown>;
        }}
      </Loaded>
    </Panel>
  );
}

/** Action 3: a policy for each peering LAN, which the switches enforce, and the quarantine before it. */
function PlatformProtection() {
  const t = useText();
  const policies = useQuery(policiesQuery);
  const services = useQuery(servicesQuery);
  return (
    <Panel title={t("manrs.platform")} actions={<Link to="/policies">{t("nav.policies")}</Link>}>
      <Loaded query={services} lines={2}>
        {(all) => (
          <Loaded query={policies} lines={2}>
            {(list) => {
              const lans = all.filter((service) => service.kind === "exchange_lan").map((lan) => lan.name);
              const ruled = new Set(list.flatMap((policy) => policy.lans));
              const open = lans.filter((lan) => !ruled.has(lan));
              return open.length > 0 ? (
                <Missing>{t("manrs.noPolicy", { lans: open.join(", ") })}</Missing>
              ) : (
                <Shown>{t("manrs.ruled", { lans: lans.length })}</Shown>
              );
            }}
          </Loaded>
        )}
      </Loaded>
    </Panel>
  );
}

/** Action 4: who can be reached about an incident. */
function Communication() {
  const t = useText();
  const accounts = useQuery(accountsQuery);
  const contacts = useQuery(contactsQuery);
  return (
    <Panel title={t("manrs.communication")} actions={<Link to="/members">{t("nav.members")}</Link>}>
      <Loaded query={accounts} lines={2}>
        {(all) => (
          <Loaded query={contacts} lines={2}>
            {(list) => {
              const reachable = new Set(
                list.filter((contact) => contact.roles.includes("noc")).map((contact) => contact.account.id),
              );
              // An account without a connection has nothing that an incident could hit.
              const connected = all.filter((account) => account.connections > 0 && account.kind !== "exchange");
              const silent = connected.filter((account) => !reachable.has(account.id)).map((account) => account.name);
              return silent.length > 0 ? (
                <Missing>{t("manrs.noNoc", { count: silent.length, names: silent.join(", ") })}</Missing>
              ) : (
                <Shown>{t("manrs.reachable", { count: connected.length })}</Shown>
              );
            }}
          </Loaded>
        )}
      </Loaded>
    </Panel>
  );
}

/** Action 5: the looking glass, which anybody can read. */
function Tools() {
  const t = useText();
  const query = useQuery(lookingGlassQuery);
  return (
    <Panel title={t("manrs.tools")} actions={<Link to="/looking-glass">{t("nav.lookingGlass")}</Link>}>
      <Loaded query={query} lines={2}>
        {({ route_servers: servers }) =>
          servers.length === 0 ? (
            <Missing>{t("glass.none")}</Missing>
          ) : (
            <Shown>{t("manrs.glass", { names: servers.map((server) => server.name).join(", ") })}</Shown>
          )
        }
      </Loaded>
    </Panel>
  );
}

function Evidence({ tone, word, children }: { tone: Tone; word: string; children: ReactNode }) {
  return (
    <p className="row">
      <State tone={tone}>{word}</State>
      <span>{children}</span>
    </p>
  );
}

function Shown({ children }: { children: ReactNode }) {
  const t = useText();
  return (
    <Evidence tone="ok" word={t("manrs.shown")}>
      {children}
    </Evidence>
  );
}

function Missing({ children }: { children: ReactNode }) {
  const t = useText();
  return (
    <Evidence tone="bad" word={t("manrs.missing")}>
      {children}
    </Evidence>
  );
}
