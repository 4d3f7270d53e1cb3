import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { audit as auditQuery } from "../api/queries";
import type { AuditEntry } from "../api/types";
import { Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { AddressField } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { OlderPages } from "../ui/older";
import { Empty, Panel, ScreenHead } from "../ui/parts";
import { operationWord } from "../ui/operations";
import { parseAuditSearch, type AuditSearch } from "./audit.search";

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

/** The audit chain, newest first: who did what when, and the hash that proves it. */
export function Audit() {
  const t = useText();
  const search = useSearch({ strict: false }) as AuditSearch;
  const navigate = useNavigate();
  const query = useQuery(auditQuery(search));
  const change = (next: AuditSearch) => void navigate({ to: "/audit", search: parseAuditSearch({ ...search, after: undefined, ...next }), replace: true });
  return (
    <>
      <ScreenHead title={t("nav.audit")} below={t("audit.about")} />
      <div className="stack">
        <div className="toolbar" role="search" aria-label={t("audit.filter")}>
          <AddressField label={t("audit.actor")} value={search.actor ?? ""} onChange={(actor) => change({ actor })} wait={300} />
          <AddressField label={t("audit.object")} value={search.object ?? ""} onChange={(object) => change({ object })} wait={300} />
        </div>
        <Panel flush>
          <div className={query.data && query.data.items.length > 0 ? "table-wrap" : "panel-body"}>
            <Loaded query={query} lines={8} empty={{ when: (page) => page.items.length === 0, show: <Empty title={t("audit.none")}>{t("audit.noneAbout")}</Empty> }}>
              {(page) => (
                <table className="table cards">
                  <thead>
                    <tr>
                      <th scope="col" className="number">{t("audit.serial")}</th>
                      <th scope="col">{t("changes.when")}</th>
                      <th scope="col">{t("changes.who")}</th>
                      <th scope="col">{t("audit.act")}</th>
                      <th scope="col">{t("audit.object")}</th>
                      <th scope="col">{t("audit.hash")}</th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.items.map((entry) => (
                      <tr key={entry.serial}>
                        <td className="number" data-label={t("audit.serial")}>{entry.serial}</td>
                        <td data-label={t("changes.when")}>
                          <Time at={entry.time} />
                        </td>
                        <td data-label={t("changes.who")}>{entry.actor}</td>
                        <td data-label={t("audit.act")}>
                          <Act entry={entry} />
                        </td>
                        <td data-label={t("audit.object")}>{entry.object === "" ? null : <code>{entry.object}</code>}</td>
                        <td data-label={t("audit.hash")}>
                          <code title={entry.hash}>{entry.hash.slice(0, 12)}</code>
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              )}
            </Loaded>
          </div>
        </Panel>
        <OlderPages after={search.after} next={query.data?.next} onChange={(after) => change(after === undefined ? {} : { after })} />
      </div>
    </>
  );
}
