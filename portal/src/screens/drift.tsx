import { useQuery } from "@tanstack/react-query";

import { drift as driftQuery, switches as switchesQuery } from "../api/queries";
import type { DriftedEntry, DriftFinding, Switch } from "../api/types";
import { Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { useAnchor } from "../ui/anchor";
import { Ident } from "../ui/ident";
import { Loaded } from "../ui/loaded";
import { Empty, Notice, Panel, ScreenHead, State } from "../ui/parts";
import { Table } from "../ui/table";
import { StateOf, wordOf } from "../ui/words";

const DIFFERENCES: Record<string, MessageId> = {
  added: "drift.added",
  removed: "drift.removed",
  changed: "drift.changed",
};

const OWNERS: Record<string, MessageId> = {
  service: "drift.ofService",
  end: "drift.ofEnd",
  filter: "drift.ofFilter",
  switch: "drift.ofSwitch",
};

/** Plan against switch: the entries of each switch that differ now, and what earlier comparisons have found. */
export function Drift() {
  const t = useText();
  const query = useQuery(switchesQuery);
  useAnchor(query.data !== undefined);
  return (
    <>
      <ScreenHead title={t("nav.drift")} below={t("drift.about")} />
      <Loaded
        query={query}
        lines={8}
        empty={{
          when: (list) => list.length === 0,
          show: (
            <Panel>
              <Empty title={t("fabric.empty")}>{t("fabric.emptyAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(list) => (
          <div className="stack">
            {list.map((entry) => (
              <SwitchDrift key={entry.id} entry={entry} />
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}

function SwitchDrift({ entry }: { entry: Switch }) {
  const t = useText();
  const query = useQuery(driftQuery(entry.id));
  return (
    <div id={entry.id}>
      <Panel
        title={
          <>
            {entry.name} <StateOf state={entry.state} />
          </>
        }
      >
        <div className="stack">
          {/* In these states the engine says what it waits for; a number of foreign entries is no drift. */}
          {entry.state === "drifted" && entry.error ? <Notice tone="bad" title={entry.error} /> : null}
          <Loaded query={query}>
            {(drift) => (
              <>
                {drift.differing > 0 ? (
                  <>
                    <h3>{t("drift.now", { count: drift.differing })}</h3>
                    <EntryTable label={t("drift.nowOf", { name: entry.name })} entries={drift.entries} />
                  </>
                ) : (
                  // Nothing is known about the content of a switch that is away.
                  <p className="quiet">{t(entry.state === "unreachable" ? "drift.away" : "drift.none")}</p>
                )}
                {drift.findings.map((finding) => (
                  <Finding key={finding.found_at} finding={finding} />
                ))}
              </>
            )}
          </Loaded>
        </div>
      </Panel>
    </div>
  );
}

/** What one comparison has found: since when, by whom as far as it is known, and whether the engine has mended it. */
function Finding({ finding }: { finding: DriftFinding }) {
  const t = useText();
  return (
    <section className="stack tight">
      <div className="row">
        <h3>
          <Time at={finding.found_at} />
        </h3>
        <span>{t("drift.count", { count: finding.differing })}</span>
        <State tone={finding.by_another ? "bad" : "off"}>
          {t(finding.by_another ? "drift.byAnother" : "drift.atConnection")}
        </State>
        {finding.mended_at ? (
          <State tone="ok">
            {t("drift.mended")} <Time at={finding.mended_at} />
          </State>
        ) : (
          <State tone="wait">{t("drift.open")}</State>
        )}
      </div>
      <EntryTable label={t("drift.count", { count: finding.differing })} entries={finding.entries} />
      {finding.entries.length < finding.differing ? (
        <p className="quiet">{t("drift.more", { count: finding.differing - finding.entries.length })}</p>
      ) : null}
    </section>
  );
}

function EntryTable({ label, entries }: { label: string; entries: DriftedEntry[] }) {
  const t = useText();
  return (
    <div className="table-wrap">
      <Table
        label={label}
        rows={entries}
        keyOf={(entry) => [entry.kind, entry.table, entry.priority, entry.number, entry.matching].join(" ")}
        columns={[
          { title: t("drift.entry"), cell: (entry) => <Place entry={entry} /> },
          {
            title: t("drift.difference"),
            cell: (entry) => <State tone="bad">{wordOf(t, DIFFERENCES, entry.difference)}</State>,
          },
          {
            title: t("drift.owner"),
            cell: (entry) =>
              entry.owner === null ? (
                <span className="quiet">{t("drift.noOwner")}</span>
              ) : (
                <>
                  {wordOf(t, OWNERS, entry.owner)} {entry.name} {entry.object ? <Ident id={entry.object} /> : null}
                </>
              ),
          },
        ]}
      />
    </div>
  );
}

/** Where an entry stands in the switch. The words are those of OpenFlow; the match is as ovs-ofctl prints it. */
function Place({ entry }: { entry: DriftedEntry }) {
  const t = useText();
  if (entry.kind === "group") return t("drift.group", { number: entry.number ?? 0 });
  if (entry.kind === "meter") return t("drift.meter", { number: entry.number ?? 0 });
  return (
    <span className="stack tight">
      <span>{t("drift.flow", { table: entry.table ?? 0, priority: entry.priority ?? 0 })}</span>
      <code>{entry.matching || t("drift.everyPacket")}</code>
    </span>
  );
}
