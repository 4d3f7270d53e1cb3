import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";

import { audit as auditQuery } from "../api/queries";
import { Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { TextField } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { Button, Empty, Panel, ScreenHead } from "../ui/parts";
import { operationWord } from "../ui/words";
import { parseAuditSearch, type AuditSearch } from "./audit.search";

/** The audit chain, newest first: who did what when, and the hash that proves it. */
export function Audit() {
  const t = useText();
  const search = useSearch({ strict: false }) as AuditSearch;
  const navigate = useNavigate();
  const query = useQuery({ ...auditQuery(search), placeholderData: keepPreviousData });
  const change = (next: AuditSearch) => void navigate({ to: "/audit", search: parseAuditSearch({ ...search, after: undefined, ...next }), replace: true });
  return (
    <>
      <ScreenHead title={t("nav.audit")} below={t("audit.about")} />
      <div className="stack">
        <div className="toolbar" role="search" aria-label={t("audit.filter")}>
          <TextField label={t("audit.actor")} value={search.actor ?? ""} onChange={(actor) => change({ actor })} type="search" />
          <TextField label={t("audit.object")} value={search.object ?? ""} onChange={(object) => change({ object })} type="search" />
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
                        <td data-label={t("audit.act")}>{operationWord(t, entry.action)}</td>
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
        <div className="buttons">
          {search.after ? <Button onPress={() => change({})}>{t("audit.newest")}</Button> : null}
          {query.data?.next ? <Button onPress={() => change({ after: query.data.next ?? "" })}>{t("audit.older")}</Button> : null}
        </div>
      </div>
    </>
  );
}
