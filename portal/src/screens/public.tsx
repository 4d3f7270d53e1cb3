import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { publicStatus, publicTraffic as publicTrafficQuery } from "../api/queries";
import { Age, Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatMicros } from "../i18n/units";
import { GraphOfObjects } from "../ui/graph";
import { Loaded } from "../ui/loaded";
import { Empty, Facts, Panel, ScreenHead, State, type Tone } from "../ui/parts";
import { PublicFrame } from "../ui/publicframe";
import { NoticeState } from "./notices";

const STATES: Record<string, { tone: Tone; word: MessageId }> = {
  ok: { tone: "ok", word: "public.ok" },
  degraded: { tone: "bad", word: "public.degraded" },
  down: { tone: "bad", word: "public.down" },
  unknown: { tone: "off", word: "state.unknown" },
};

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
