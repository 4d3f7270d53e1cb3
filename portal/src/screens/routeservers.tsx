import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { memberRoutes, rejectedRoutes, routeServerSessions } from "../api/queries";
import type { MemberRoute, RejectedRoute, RouteServerSession } from "../api/types";
import { Age } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText, type Translate } from "../i18n/text";
import { Loaded } from "../ui/loaded";
import { Button, Notice, State, type Tone } from "../ui/parts";
import { Table } from "../ui/table";

/** The states of BGP have their names from RFC 4271 in every language. */
const BGP_STATES: Record<string, string> = {
  idle: "Idle",
  connect: "Connect",
  active: "Active",
  open_sent: "OpenSent",
  open_confirm: "OpenConfirm",
  established: "Established",
};

const OTHER_STATES: Record<string, MessageId> = {
  passive: "rs.passive",
  close: "rs.close",
  down: "rs.disabled",
  absent: "rs.absent",
};

const TONES: Record<string, Tone> = { established: "ok", idle: "bad", down: "bad", absent: "bad", unknown: "off" };

/** The number of rejected routes that are shown at first. */
const FIRST = 20;

/** The words of the states of a route by RPKI. */
const VALIDITY: Record<string, { tone: Tone; word: MessageId }> = {
  valid: { tone: "ok", word: "glass.rpkiValid" },
  invalid: { tone: "bad", word: "glass.rpkiInvalid" },
  not_found: { tone: "off", word: "glass.rpkiUnknown" },
};

function stateWord(t: Translate, state: string): string {
  return BGP_STATES[state] ?? t(OTHER_STATES[state] ?? "rs.unknown");
}

/** Returns one session of each route server; all its sessions have the same facts about the route server itself. */
function servers(sessions: RouteServerSession[]): RouteServerSession[] {
  return sessions.filter((session, index) => sessions.findIndex(({ server }) => server === session.server) === index);
}

/**
 * The sessions of an end with the route servers of its LAN, and the routes that they reject. Those of other members
 * (`isOwn` is false) are read while somebody has them open: an operator sees all ends of a LAN, which are many.
 */
export function RouteServers({ end, isOwn }: { end: string; isOwn: boolean }) {
  const t = useText();
  const [open, setOpen] = useState(false);
  if (isOwn) {
    return (
      <section className="stack tight route-servers">
        <h3>{t("rs.title")}</h3>
        <Sessions end={end} />
      </section>
    );
  }
  return (
    <details className="route-servers" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("rs.title")}</summary>
      {open ? <Sessions end={end} /> : null}
    </details>
  );
}

/** Says for each route server since when it does not answer, or how old its answer is. */
function Freshness({ sessions }: { sessions: RouteServerSession[] }) {
  const t = useText();
  return servers(sessions).map(({ server, freshness, read_at, failing_since, failure }) => {
    if (freshness === "fresh" && read_at !== null) {
      return (
        <p key={server} className="hint">
          {server}: {t("load.readAt")} <Age at={read_at} />
        </p>
      );
    }
    const title =
      failing_since === null ? t("rs.never", { server }) : t("rs.away", { server, time: new Date(failing_since) });
    return (
      <Notice key={server} tone={freshness === "pending" ? "off" : "wait"} title={title}>
        <p>{read_at === null ? t("rs.neverAbout") : t("rs.awayAbout", { time: new Date(read_at) })}</p>
        {failure === null ? null : <p className="breaks">{failure}</p>}
      </Notice>
    );
  });
}

/** The state of the session of each address at each route server. */
export function SessionTable({ sessions }: { sessions: RouteServerSession[] }) {
  const t = useText();
  return (
    <div className="table-wrap">
      <Table
        rows={sessions}
        keyOf={(session) => `${session.server} ${session.address} ${session.name ?? ""}`}
        columns={[
          { title: t("rs.address"), cell: (session) => <code>{session.address}</code> },
          {
            title: t("rs.server"),
            cell: (session) => (
              <span>
                {session.server} <span className="quiet">{`AS${session.server_asn}`}</span>
              </span>
            ),
          },
          {
            title: t("services.state"),
            cell: (session) => (
              <span>
                <State tone={TONES[session.state] ?? "wait"}>{stateWord(t, session.state)}</State>
                {session.error === null ? null : <small className="quiet breaks"> {session.error}</small>}
              </span>
            ),
          },
          { title: t("bgp.routes"), isNumber: true, cell: (session) => session.imported },
          {
            title: t("rs.rejectedCount"),
            isNumber: true,
            cell: (session) => `${session.rejected}${session.truncated ? "+" : ""}`,
          },
        ]}
      />
    </div>
  );
}

/** A table of the first rows, and the button that shows all of them. */
function Shortened<Row>({ rows, table }: { rows: Row[]; table: (shown: Row[]) => ReactNode }) {
  const t = useText();
  const [all, setAll] = useState(false);
  const shown = all ? rows : rows.slice(0, FIRST);
  return (
    <>
      <div className="table-wrap">{table(shown)}</div>
      {shown.length < rows.length ? (
        <div className="buttons">
          <Button onPress={() => setAll(true)}>{t("rs.showAll", { count: rows.length })}</Button>
        </div>
      ) : null}
    </>
  );
}

/** The rejected routes, each with its causes in words. */
export function RejectedTable({ routes }: { routes: RejectedRoute[] }) {
  const t = useText();
  return (
    <Shortened
      rows={routes}
      table={(shown) => (
        <Table
          rows={shown}
          keyOf={(route) => `${route.server} ${route.address} ${route.prefix} ${route.as_path} ${route.next_hop ?? ""}`}
          columns={[
            { title: t("rs.prefix"), cell: (route) => <code>{route.prefix}</code> },
            {
              title: t("rs.why"),
              cell: (route) => (
                <span className="stack tight">
                  {route.causes.map((cause) => (
                    <span key={cause.community ?? ""}>
                      {t.reason(cause.coded, cause.text)}{" "}
                      {cause.community === null ? null : <code className="quiet small">{cause.community}</code>}
                    </span>
                  ))}
                </span>
              ),
            },
            { title: t("rs.asPath"), cell: (route) => <span className="breaks">{route.as_path}</span> },
            {
              title: t("rs.nextHop"),
              cell: (route) => (route.next_hop === null ? null : <code>{route.next_hop}</code>),
            },
            { title: t("rs.server"), cell: (route) => route.server },
          ]}
        />
      )}
    />
  );
}

/** All routes of an end at the route servers, accepted and rejected, with their states by RPKI and in the registry. */
export function RoutesTable({ routes }: { routes: MemberRoute[] }) {
  const t = useText();
  const unknown = <span className="quiet">{t("rs.unknown")}</span>;
  return (
    <Shortened
      rows={routes}
      table={(shown) => (
        <Table
          label={t("rs.routes")}
          rows={shown}
          keyOf={(route) =>
            [route.server, route.prefix, route.as_path, route.next_hop, route.accepted ? "accepted" : "rejected"].join(
              " ",
            )
          }
          columns={[
            { title: t("rs.prefix"), cell: (route) => <code>{route.prefix}</code> },
            {
              title: t("services.state"),
              cell: (route) => (
                <span className="stack tight">
                  <State tone={route.accepted ? "ok" : "bad"}>
                    {t(route.accepted ? "glass.accepted" : "glass.rejected")}
                  </State>
                  {route.causes.map((cause) => (
                    <span key={cause.community ?? ""}>{t.reason(cause.coded, cause.text)}</span>
                  ))}
                </span>
              ),
            },
            {
              title: t("rs.rpki"),
              cell: (route) => {
                const state = VALIDITY[route.rpki ?? ""];
                return state ? <State tone={state.tone}>{t(state.word)}</State> : unknown;
              },
            },
            {
              title: t("rs.irr"),
              cell: (route) =>
                route.irr === null ? (
                  unknown
                ) : (
                  <State tone={route.irr ? "ok" : "bad"}>{t(route.irr ? "glass.irrThere" : "glass.irrMissing")}</State>
                ),
            },
            { title: t("rs.asPath"), cell: (route) => <span className="breaks">{route.as_path}</span> },
            {
              title: t("rs.communities"),
              cell: (route) =>
                route.communities === null ? unknown : <span className="breaks">{route.communities.join(" ")}</span>,
            },
            { title: t("rs.server"), cell: (route) => route.server },
          ]}
        />
      )}
    />
  );
}

/** The routes of an end, which are read while somebody has them open: there can be thousands. */
function Routes({ end }: { end: string }) {
  const t = useText();
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("rs.routes")}</summary>
      {open ? <OpenRoutes end={end} /> : null}
    </details>
  );
}

function OpenRoutes({ end }: { end: string }) {
  const t = useText();
  const query = useQuery(memberRoutes(end));
  return (
    <Loaded
      query={query}
      lines={3}
      empty={{ when: (list) => list.length === 0, show: <p className="quiet">{t("rs.noRoutes")}</p> }}
    >
      {(routes) => <RoutesTable routes={routes} />}
    </Loaded>
  );
}

function Rejected({ end, truncated }: { end: string; truncated: boolean }) {
  const t = useText();
  const query = useQuery(rejectedRoutes(end));
  return (
    <section className="stack tight">
      <h3>{t("rs.rejected")}</h3>
      <Loaded
        query={query}
        lines={3}
        empty={{ when: (list) => list.length === 0, show: <p className="quiet">{t("rs.noneRejected")}</p> }}
      >
        {(routes) => <RejectedTable routes={routes} />}
      </Loaded>
      {truncated ? <p className="hint">{t("rs.more")}</p> : null}
    </section>
  );
}

function Sessions({ end }: { end: string }) {
  const t = useText();
  const query = useQuery(routeServerSessions(end));
  return (
    <Loaded
      query={query}
      lines={3}
      empty={{ when: (list) => list.length === 0, show: <p className="quiet">{t("rs.none")}</p> }}
    >
      {(sessions) => (
        <>
          <Freshness sessions={sessions} />
          <SessionTable sessions={sessions} />
          {sessions.some((session) => session.read_at !== null) ? (
            <Rejected end={end} truncated={sessions.some((session) => session.truncated)} />
          ) : null}
          <Routes end={end} />
        </>
      )}
    </Loaded>
  );
}
