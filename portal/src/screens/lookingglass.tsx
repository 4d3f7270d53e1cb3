import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { publicOrder } from "../api/orders";
import { lookingGlass as lookingGlassQuery } from "../api/queries";
import type { GlassSession } from "../api/types";
import { Age } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { Form, TextField } from "../ui/fields";
import { explain, Loaded } from "../ui/loaded";
import { Button, Empty, Notice, Panel, ScreenHead, State, type Tone } from "../ui/parts";
import { PublicFrame } from "../ui/publicframe";
import { Table } from "../ui/table";

const VALIDITY: Record<string, { tone: Tone; word: MessageId }> = {
  valid: { tone: "ok", word: "glass.rpkiValid" },
  invalid: { tone: "bad", word: "glass.rpkiInvalid" },
  not_found: { tone: "off", word: "glass.rpkiUnknown" },
};

/** The sessions of the route servers, and the prefixes that they reject with the causes. */
export function LookingGlass() {
  const t = useText();
  const query = useQuery(lookingGlassQuery);
  const [text, setText] = useState("");
  const wanted = text.trim().toLowerCase();
  const fits = (session: GlassSession) =>
    wanted === "" ||
    [`as${session.asn ?? ""}`, session.member, session.address, ...session.rejected.map((route) => route.prefix)].some(
      (word) => word.toLowerCase().includes(wanted),
    );
  return (
    <PublicFrame>
      <ScreenHead title={t("nav.lookingGlass")} below={query.data?.exchange} />
      <Routes />
      <Loaded
        query={query}
        lines={8}
        empty={{
          when: (glass) => glass.route_servers.length === 0,
          show: (
            <Panel>
              <Empty title={t("glass.none")}>{t("glass.noneAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(glass) => (
          <div className="stack">
            <div className="toolbar" role="search" aria-label={t("glass.filter")}>
              <TextField label={t("glass.filter")} value={text} onChange={setText} type="search" />
            </div>
            {glass.route_servers.map((server) => (
              <Panel
                key={server.name}
                flush
                title={
                  <>
                    {server.name} <span className="quiet">{`AS${server.asn} · ${server.lan}`}</span>
                  </>
                }
                actions={
                  server.read_at ? (
                    <span className="quiet">
                      {t("load.readAt")} <Age at={server.read_at} />
                    </span>
                  ) : null
                }
              >
                {server.sessions.length === 0 ? (
                  <div className="panel-body">
                    <Empty title={t("glass.unread")}>{t("glass.unreadAbout")}</Empty>
                  </div>
                ) : (
                  <div className="table-wrap">
                    <Table
                      label={server.name}
                      rows={server.sessions.filter(fits)}
                      keyOf={(session) => `${session.asn ?? ""} ${session.address}`}
                      columns={[
                        {
                          title: t("members.asns"),
                          cell: (session) => (session.asn === null ? "–" : `AS${session.asn}`),
                        },
                        { title: t("members.name"), cell: (session) => session.member },
                        { title: t("glass.address"), cell: (session) => <code>{session.address}</code> },
                        {
                          title: t("services.state"),
                          cell: (session) => (
                            <State tone={session.established ? "ok" : "bad"}>
                              {t(session.established ? "state.up" : "state.down")}
                            </State>
                          ),
                        },
                        { title: t("glass.accepted"), isNumber: true, cell: (session) => session.accepted },
                        { title: t("glass.rejected"), cell: (session) => <Rejected session={session} /> },
                      ]}
                    />
                  </div>
                )}
              </Panel>
            ))}
          </div>
        )}
      </Loaded>
    </PublicFrame>
  );
}

function Rejected({ session }: { session: GlassSession }) {
  const t = useText();
  if (session.rejected.length === 0) return <>0</>;
  return (
    <details>
      <summary>{session.truncated ? `${session.rejected.length}+` : session.rejected.length}</summary>
      <ul className="lines">
        {session.rejected.map((route) => (
          <li key={`${route.prefix} ${route.as_path}`}>
            <code>{route.prefix}</code>{" "}
            {route.rpki ? (
              <State tone="bad">{t(route.rpki === "invalid" ? "glass.rpkiInvalid" : "glass.rpkiUnknown")}</State>
            ) : null}{" "}
            {route.irr ? <State tone="bad">{t("glass.irrMissing")}</State> : null}
            <p className="quiet">{route.causes.map((cause) => t.reason(cause.coded, cause.text)).join("; ")}</p>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The live routes to a prefix or an address, with their states by RPKI and in the routing registry. */
function Routes() {
  const t = useText();
  const [prefix, setPrefix] = useState("");
  const find = useMutation({ mutationFn: publicOrder.routes });
  const found = find.data;
  const unknown = <span className="quiet">{t("state.unknown")}</span>;
  return (
    <Panel title={t("glass.routes")}>
      <Form onSubmit={() => find.mutate(prefix.trim())} pending={find.isPending} label={t("glass.routes")}>
        <TextField
          label={t("glass.prefix")}
          hint={t("glass.prefixHint")}
          value={prefix}
          onChange={setPrefix}
          inputProps={{ autoComplete: "off", spellCheck: false }}
        />
        {find.error ? <Notice tone="bad" title={explain(t, find.error)} live /> : null}
        <div>
          <Button type="submit" kind="primary" isPending={find.isPending}>
            {t("glass.find")}
          </Button>
        </div>
      </Form>
      {found === undefined ? null : found.routes.length === 0 ? (
        <Notice tone="off" title={t(found.known ? "glass.noRoute" : "glass.noneAbout")} live />
      ) : (
        <div className="table-wrap">
          <Table
            label={t("glass.routes")}
            rows={found.routes}
            keyOf={(route) => `${route.prefix} ${route.as_path}`}
            columns={[
              { title: t("glass.prefix"), cell: (route) => <code>{route.prefix}</code> },
              { title: t("rs.asPath"), cell: (route) => route.as_path },
              { title: t("account.member"), cell: (route) => route.member },
              {
                title: "RPKI",
                cell: (route) => {
                  const state = VALIDITY[route.rpki ?? ""];
                  return state ? <State tone={state.tone}>{t(state.word)}</State> : unknown;
                },
              },
              {
                title: "IRR",
                cell: (route) =>
                  route.irr === null ? (
                    unknown
                  ) : (
                    <State tone={route.irr ? "ok" : "bad"}>
                      {t(route.irr ? "glass.irrThere" : "glass.irrMissing")}
                    </State>
                  ),
              },
            ]}
          />
        </div>
      )}
    </Panel>
  );
}
