import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { audit as auditQuery } from "../api/queries";
import type { AuditEntry } from "../api/types";
import { Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { AddressField } from "../ui/fields";
import { Ident } from "../ui/ident";
import { Loaded } from "../ui/loaded";
import { OlderPages } from "../ui/older";
import { operationWord } from "../ui/operations";
import { Empty, Panel, ScreenHead } from "../ui/parts";
import { Table } from "../ui/table";
import { parseAuditSearch, type AuditSearch } from "./audit.search";

/** The audit chain, newest first: who did what when, and the hash that proves it. */
export function Audit() {
  const t = useText();
  const search = useSearch({ strict: false }) as AuditSearch;
  const navigate = useNavigate();
  const query = useQuery(auditQuery(search));
  const change = (next: AuditSearch) =>
    void navigate({ to: "/audit", search: parseAuditSearch({ ...search, after: undefined, ...next }), replace: true });
  return (
    <>
      <ScreenHead title={t("nav.audit")} below={t("audit.about")} />
      <div className="stack">
        <div className="toolbar" role="search" aria-label={t("audit.filter")}>
          <AddressField
            label={t("audit.actor")}
            value={search.actor ?? ""}
            onChange={(actor) => change({ actor })}
            wait={300}
          />
          <AddressField
            label={t("audit.object")}
            value={search.object ?? ""}
            onChange={(object) => change({ object })}
            wait={300}
          />
        </div>
        <Panel flush>
          <Loaded
            fills="table"
            query={query}
            lines={8}
            empty={{
              when: (page) => page.items.length === 0,
              show: <Empty title={t("audit.none")}>{t("audit.noneAbout")}</Empty>,
            }}
          >
            {(page) => (
              <Table
                rows={page.items}
                keyOf={(entry) => entry.serial}
                columns={[
                  { title: t("audit.serial"), isNumber: true, cell: (entry) => entry.serial },
                  { title: t("changes.when"), cell: (entry) => <Time at={entry.time} /> },
                  { title: t("changes.who"), cell: (entry) => entry.actor },
                  { title: t("audit.act"), cell: (entry) => <Act entry={entry} /> },
                  { title: t("audit.object"), cell: (entry) => entry.object_name ?? <Ident id={entry.object} /> },
                  {
                    title: t("audit.hash"),
                    cell: (entry) => <code title={entry.hash}>{entry.hash.slice(0, 12)}</code>,
                  },
                ]}
              />
            )}
          </Loaded>
        </Panel>
        <OlderPages
          after={search.after}
          next={query.data?.next}
          onChange={(after) => change(after === undefined ? {} : { after })}
        />
      </div>
    </>
  );
}

/** An act in words, with the facts that the chain has about it. */
function Act({ entry }: { entry: AuditEntry }) {
  const t = useText();
  const detail = entry.detail as Record<string, unknown> | null;
  const word = operationWord(t, entry.action);
  if (detail === null || Object.keys(detail).length === 0) return word;
  return (
    <details>
      <summary>{word}</summary>
      <pre className="frame" tabIndex={0} aria-label={t("audit.detail")}>
        {JSON.stringify(detail, null, 1)}
      </pre>
    </details>
  );
}
