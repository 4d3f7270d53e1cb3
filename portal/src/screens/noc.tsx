import { useQuery } from "@tanstack/react-query";

import { useLive } from "../api/live";
import { bgpSessions, observedOverview, observedTrunks, openChanges, switches as switchesQuery } from "../api/queries";
import { useClock } from "../i18n/format";
import { useLanguage, useText } from "../i18n/text";
import { formatAge, formatBitRate } from "../i18n/units";
import { Failure } from "../ui/loaded";
import { operationWord } from "../ui/operations";
import { ScreenHead, Skeleton, State } from "../ui/parts";
import { StateOf, stateTone, stateWord } from "../ui/words";
import { LoadBars, trunkState } from "./fabric.map";
import { Tasks } from "./home";

/** The age in ms from which figures that are read every 10 s count as old. */
const OLD = 25_000;

/** The wall: readable at four metres, no scrolling at 1080p. It goes grey with a clock when its data is old. */
export function NocWall() {
  const t = useText();
  const { language } = useLanguage();
  const live = useLive();
  const now = useClock(1_000);
  const summary = useQuery(observedOverview);
  const switches = useQuery(switchesQuery);
  const trunks = useQuery(observedTrunks);
  const bgp = useQuery(bgpSessions);
  const sessions = bgp.data ?? [];
  const changes = useQuery(openChanges);
  const failed = [summary, switches, trunks, changes].find((query) => query.isError && query.data === undefined);
  if (failed) {
    return (
      <>
        <ScreenHead title={t("nav.noc")} />
        <Failure error={failed.error} retry={() => void failed.refetch()} />
      </>
    );
  }
  if (!summary.data || !switches.data || !trunks.data || !changes.data) {
    return (
      <>
        <ScreenHead title={t("nav.noc")} />
        <Skeleton lines={10} height="2rem" />
      </>
    );
  }
  // The time of the oldest figures: of the polled ones, of those whose last read failed, and of the lost stream.
  const polled = [summary, trunks].map((query) => query.dataUpdatedAt).filter((at) => now.getTime() - at > OLD);
  const broken = [summary, switches, trunks, changes, bgp]
    .filter((query) => query.isError)
    .map((query) => query.dataUpdatedAt || query.errorUpdatedAt);
  const lost = !live.connected && now.getTime() - live.since > 5_000 ? [live.since] : [];
  const since = [...polled, ...broken, ...lost].sort((a, b) => a - b)[0];
  const old = since !== undefined;
  // A quarantine that goes well is no alarm.
  const alarms = summary.data.tasks.filter((task) => task.severity !== "info");
  // A switch can also refuse what takes a change back.
  const open = changes.data.filter(
    (change) => change.state !== "cleaned" && (change.state !== "rolled_back" || change.error),
  );
  const sites = [...new Set(switches.data.map((entry) => entry.site))];
  const failing = switches.data.filter((entry) => entry.state !== "in_sync").length;
  const down = trunks.data.filter((trunk) => trunk.up === false).length;
  // A trunk whose state is not known does not count as up.
  const up = trunks.data.filter((trunk) => trunk.up === true).length;
  const established = sessions.filter((session) => session.state === "established").length;
  const clock = new Intl.DateTimeFormat(language, { timeStyle: "medium" }).format(now);
  return (
    <>
      <ScreenHead
        title={t("nav.noc")}
        actions={
          <span className="wall-clock">
            {old ? (
              <State tone="bad">{t("noc.old", { age: formatAge(new Date(since), now, language) })}</State>
            ) : (
              <State tone="ok">{t("noc.live")}</State>
            )}{" "}
            <time dateTime={now.toISOString()}>{clock}</time>
          </span>
        }
      />
      <div className="wall" data-old={old}>
        <ul className="wall-numbers">
          {summary.data.load ? <WallRate bits={summary.data.load.in_bps} label={t("noc.in")} /> : null}
          {summary.data.load ? <WallRate bits={summary.data.load.out_bps} label={t("noc.out")} /> : null}
          <WallNumber
            value={alarms.length}
            label={t("noc.alarms")}
            tone={alarms.some((task) => task.severity === "error") ? "bad" : alarms.length > 0 ? "wait" : "ok"}
          />
          <WallNumber
            value={`${switches.data.length - failing}/${switches.data.length}`}
            label={t("noc.switches")}
            tone={failing > 0 ? "bad" : "ok"}
          />
          <WallNumber
            value={`${up}/${trunks.data.length}`}
            label={t("noc.trunks")}
            tone={down > 0 ? "bad" : up < trunks.data.length ? "wait" : "ok"}
          />
          {sessions.length > 0 ? (
            <WallNumber
              value={`${established}/${sessions.length}`}
              label={t("noc.bgp")}
              tone={established < sessions.length ? "bad" : "ok"}
            />
          ) : null}
          <WallNumber
            value={summary.data.changes_open}
            label={t("noc.changes")}
            tone={open.some((change) => change.error) ? "bad" : summary.data.changes_open > 0 ? "wait" : "ok"}
          />
        </ul>
        <section className="panel wall-alarms" aria-labelledby="wall-alarms">
          <h2 id="wall-alarms" className="panel-head">
            {t("noc.alarms")}
          </h2>
          <Tasks tasks={alarms.slice(0, 8)} />
        </section>
        {sites.map((site) => (
          <section key={site} className="panel" aria-label={site}>
            <h2 className="panel-head">{site}</h2>
            <ul className="lines">
              {switches.data
                .filter((entry) => entry.site === site)
                .map((entry) => (
                  <li key={entry.id} className="line-item">
                    <span>{entry.name}</span>
                    <StateOf state={entry.state} />
                    {entry.error ? <small className="quiet">{entry.error}</small> : null}
                  </li>
                ))}
              {trunks.data
                .filter((trunk) => trunk.ends[0]?.site === site)
                .map((trunk) => (
                  <li key={trunk.id} className="line-item">
                    <span>
                      {trunk.name} → {trunk.ends[1]?.site}
                    </span>
                    <StateOf state={trunkState(trunk)} />
                    {trunk.load ? (
                      <LoadBars load={trunk.load} capacity={trunk.capacity_mbps} />
                    ) : (
                      <span className="quiet">{t("rate.unknown")}</span>
                    )}
                    <span className="quiet">
                      {formatBitRate(trunk.contracted_mbps * 1e6, language)} /{" "}
                      {formatBitRate(trunk.capacity_mbps * 1e6, language)}
                      {trunk.carries ? ` · ${t("fabric.carries")}` : ""}
                    </span>
                  </li>
                ))}
            </ul>
          </section>
        ))}
        <section className="panel" aria-labelledby="wall-services">
          <h2 id="wall-services" className="panel-head">
            {t("nav.services")}
          </h2>
          <ul className="lines">
            {summary.data.services.map((count) => (
              <li key={count.state} className="line-item">
                <State tone={stateTone(count.state)}>{stateWord(t, count.state)}</State>
                <strong>{count.count}</strong>
              </li>
            ))}
          </ul>
        </section>
        <section className="panel" aria-labelledby="wall-changes">
          <h2 id="wall-changes" className="panel-head">
            {t("noc.changes")}
          </h2>
          {open.length === 0 ? (
            <div className="panel-body quiet">{t("changes.none")}</div>
          ) : (
            <ul className="lines">
              {open.slice(0, 6).map((change) => (
                <li key={change.id} className="line-item">
                  <span>
                    {operationWord(t, change.operation)} <span className="quiet">{change.objects[0]}</span>
                  </span>
                  <StateOf state={change.state} />
                  {change.error ? <small className="quiet">{change.error}</small> : null}
                </li>
              ))}
            </ul>
          )}
        </section>
      </div>
    </>
  );
}

function WallNumber({ value, label, tone }: { value: number | string; label: string; tone: "ok" | "wait" | "bad" }) {
  return (
    <li className="wall-number" data-tone={tone}>
      <span className="wall-value">{value}</span>
      <State tone={tone}>{label}</State>
    </li>
  );
}

/** A rate; its unit stands with its label, so that the number has the room. */
function WallRate({ bits, label }: { bits: number; label: string }) {
  const { language } = useLanguage();
  const [value = "", unit = ""] = formatBitRate(bits, language).split("\u00a0");
  return (
    <li className="wall-number" data-tone="ok">
      <span className="wall-value">{value}</span>
      <span className="quiet">
        {label} <span className="wall-unit">{unit}</span>
      </span>
    </li>
  );
}
