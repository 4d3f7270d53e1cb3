import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState, type ReactNode } from "react";

import {
  lookingGlass as lookingGlassQuery,
  publicOrder,
  publicStatus,
  publicTraffic as publicTrafficQuery,
} from "../api/queries";
import type { GlassSession } from "../api/types";
import { Preferences } from "../app/preferences";
import type { MessageId } from "../i18n/messages";
import { Age, Time } from "../i18n/format";
import { useLanguage, useText } from "../i18n/text";
import { formatMicros } from "../i18n/units";
import { Form, TextField } from "../ui/fields";
import { GraphOfObjects } from "../ui/graph";
import { explain, Loaded } from "../ui/loaded";
import { Button, Empty, Facts, Notice, Panel, ScreenHead, State, type Tone } from "../ui/parts";
import { Table } from "../ui/table";
import { NoticeState } from "./notices";
import { plainCode } from "./signin";

/** The frame of the pages that need no sign-in. */
export function PublicFrame({ children }: { children: ReactNode }) {
  const t = useText();
  return (
    <main id="main" className="main public" tabIndex={-1}>
      <nav className="row spread" aria-label={t("nav.label")}>
        <span className="row">
          <Link to="/status">{t("nav.status")}</Link>
          <Link to="/looking-glass">{t("nav.lookingGlass")}</Link>
          <Link to="/">{t("signin.title")}</Link>
        </span>
        <Preferences />
      </nav>
      {children}
    </main>
  );
}

const STATES: Record<string, { tone: Tone; word: MessageId }> = {
  ok: { tone: "ok", word: "public.ok" },
  degraded: { tone: "bad", word: "public.degraded" },
  down: { tone: "bad", word: "public.down" },
  unknown: { tone: "off", word: "state.unknown" },
};

function StateOfSite({ state }: { state: string }) {
  const t = useText();
  const known = STATES[state] ?? { tone: "off" as const, word: "state.unknown" as const };
  return <State tone={known.tone}>{t(known.word)}</State>;
}

/** The traffic of the exchange over a day, and the links between its sites. */
function Traffic() {
  const t = useText();
  const { language } = useLanguage();
  const query = useQuery(publicTrafficQuery);
  return (
    <Panel title={t("graph.exchange")}>
      <Loaded query={query} lines={5}>
        {(found) => (
          <div className="stack">
            <GraphOfObjects
              graph={found.traffic}
              directions={{ in: t("graph.entered"), out: t("graph.left") }}
              choose=""
            />
            {found.links.length === 0 ? null : (
              <>
                <h3>{t("public.links")}</h3>
                <Facts
                  items={found.links.map((link): [ReactNode, ReactNode] => [
                    link.sites.join(" ⇄ "),
                    <span key={link.sites.join(" ")} className="row">
                      <StateOfSite state={link.state} />
                      {link.round_trip_us === null
                        ? null
                        : `${t("graph.roundTrip")}: ${formatMicros(link.round_trip_us, language)}`}
                    </span>,
                  ])}
                />
              </>
            )}
          </div>
        )}
      </Loaded>
    </Panel>
  );
}

/** The status of the exchange: sites, peering LANs, maintenance and incidents of 90 days. */
export function PublicStatus() {
  const t = useText();
  const query = useQuery(publicStatus);
  return (
    <PublicFrame>
      <ScreenHead title={t("nav.status")} below={query.data?.exchange} />
      <Loaded query={query} lines={8}>
        {(status) => (
          <div className="stack">
            <Panel
              title={
                <>
                  {t("public.now")} <StateOfSite state={status.state} />
                </>
              }
            >
              <Facts
                items={[
                  ...status.sites.map((site): [ReactNode, ReactNode] => [
                    site.name,
                    <StateOfSite key={site.name} state={site.state} />,
                  ]),
                  ...status.lans.map((lan): [ReactNode, ReactNode] => [
                    lan.name,
                    t("public.members", { count: lan.members }),
                  ]),
                ]}
              />
              <p className="quiet">
                {t("load.readAt")} <Age at={status.at} />
              </p>
            </Panel>
            <Traffic />
            <Panel
              title={t("nav.notices")}
              actions={
                <>
                  <a href="/api/v1/status.ics">{t("notice.calendar")}</a>
                  <a href="/api/v1/status.atom">{t("public.feed")}</a>
                </>
              }
            >
              {status.notices.length === 0 ? (
                <Empty title={t("notice.none")}>{t("public.noNotices")}</Empty>
              ) : (
                <ul className="lines">
                  {status.notices.map((notice) => (
                    <li key={`${notice.title} ${notice.begins}`}>
                      <strong>{notice.title}</strong> <NoticeState state={notice.state} />{" "}
                      <span className="quiet">
                        <Time at={notice.begins} />
                        {" – "}
                        {notice.ends ? <Time at={notice.ends} /> : t("notice.endUnknown")}
                      </span>
                      {notice.about === "" ? null : <p>{notice.about}</p>}
                    </li>
                  ))}
                </ul>
              )}
            </Panel>
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

const VALIDITY: Record<string, { tone: Tone; word: MessageId }> = {
  valid: { tone: "ok", word: "glass.rpkiValid" },
  invalid: { tone: "bad", word: "glass.rpkiInvalid" },
  not_found: { tone: "off", word: "glass.rpkiUnknown" },
};

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

/** The check of a letter of authorisation by its code, for data centres. */
export function VerifyLetter() {
  const t = useText();
  const [code, setCode] = useState(() => location.hash.slice(1));
  const check = useMutation({ mutationFn: publicOrder.letter });
  return (
    <PublicFrame>
      <ScreenHead title={t("letter.title")} below={t("letter.about")} />
      <Panel>
        <Form onSubmit={() => check.mutate(code)} pending={check.isPending} label={t("letter.title")}>
          <TextField
            label={t("cross.code")}
            value={code}
            onChange={setCode}
            inputProps={{ autoComplete: "off", spellCheck: false }}
          />
          {check.error ? <Notice tone="bad" title={explain(t, check.error)} live /> : null}
          <div>
            <Button type="submit" kind="primary" isPending={check.isPending}>
              {t("letter.check")}
            </Button>
          </div>
        </Form>
        {check.data ? (
          <Notice tone="ok" title={t("letter.valid", { exchange: check.data.exchange })} live>
            <Facts
              items={[
                [t("cross.numberLabel"), check.data.number],
                [t("account.member"), check.data.member],
                [t("service.site"), check.data.site],
                [t("cross.ourSide"), check.data.demarcation],
                [t("cross.validUntil"), <Time key="until" at={check.data.valid_until} dateOnly />],
              ]}
            />
          </Notice>
        ) : null}
      </Panel>
    </PublicFrame>
  );
}

const TITLES: Record<string, MessageId> = {
  invitation: "link.invitation",
  password: "link.password",
  second_factor: "link.secondFactor",
};

/** The page of a link in a letter: a new password, a new second factor, or both. */
export function UseLink() {
  const t = useText();
  // The token leaves the address, so that it is in no history and in no picture of the screen.
  const token = useRef(location.hash.slice(1));
  const read = useMutation({ mutationFn: publicOrder.readLink });
  const use = useMutation({
    mutationFn: () => publicOrder.useLink(token.current, password, plainCode(code) === "" ? null : plainCode(code)),
  });
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const [missing, setMissing] = useState<string>();
  const { mutate } = read;
  useEffect(() => {
    history.replaceState(history.state, "", "/link");
    mutate(token.current);
  }, [mutate]);
  const link = read.data;
  const isNew = link?.kind !== "second_factor";
  const submit = () => {
    const short =
      isNew && password.length < 12 ? t("password.short") : password === "" ? t("signin.passwordMissing") : undefined;
    setMissing(short);
    if (short === undefined) use.mutate();
  };
  return (
    <PublicFrame>
      <ScreenHead title={t(TITLES[link?.kind ?? ""] ?? "link.title")} below={link?.exchange} />
      <Panel>
        {read.error ? <Notice tone="bad" title={explain(t, read.error)} live /> : null}
        {use.isSuccess ? (
          <Notice tone="ok" title={t("link.done")} live>
            <Link to="/">{t("signin.title")}</Link>
          </Notice>
        ) : link ? (
          <Form onSubmit={submit} pending={use.isPending} label={t("link.title")}>
            <TextField label={t("signin.name")} value={link.name} isReadOnly autoComplete="username" />
            <TextField
              label={t(isNew ? "password.new" : "signin.password")}
              {...(isNew ? { hint: t("password.hint") } : {})}
              type="password"
              value={password}
              onChange={setPassword}
              autoComplete={isNew ? "new-password" : "current-password"}
              error={missing}
              inputProps={{ id: "link-password" }}
            />
            {link.totp ? (
              <>
                <p>{t("link.authenticator")}</p>
                <code className="secret" id="link-secret">
                  {link.totp.secret}
                </code>
                <p>
                  <a href={link.totp.uri}>{t("link.open")}</a>
                </p>
                <TextField
                  label={t("signin.code")}
                  hint={t("signin.codeHint")}
                  value={code}
                  onChange={setCode}
                  autoComplete="one-time-code"
                  inputProps={{ id: "link-code", inputMode: "numeric" }}
                />
              </>
            ) : null}
            {use.error ? <Notice tone="bad" title={explain(t, use.error)} live /> : null}
            <div>
              <Button type="submit" kind="primary" isPending={use.isPending}>
                {t("link.submit")}
              </Button>
            </div>
          </Form>
        ) : null}
      </Panel>
    </PublicFrame>
  );
}
