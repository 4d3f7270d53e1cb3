import { useQuery } from "@tanstack/react-query";

import { filters as filtersQuery } from "../api/queries";
import type { Filter } from "../api/types";
import { Rate, Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText, type Translate } from "../i18n/text";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead } from "../ui/parts";
import { StateOf } from "../ui/words";

const ORIGINS: Record<string, MessageId> = { page: "filter.page", api: "filter.api", rtbh: "filter.rtbh", flowspec: "filter.flowspec" };
const ACTIONS: Record<string, MessageId> = { drop: "filter.drop", shape: "filter.shape", count: "filter.count" };

function word(t: Translate, words: Record<string, MessageId>, key: string): string {
  const known = words[key];
  return known ? t(known) : key;
}

/** All filters, whatever their origin; refused ones say why. */
export function Filters() {
  const t = useText();
  const query = useQuery(filtersQuery);
  return (
    <>
      <ScreenHead title={t("nav.filters")} below={t("filters.about")} />
      <Panel flush title={query.data ? t("filters.number", { count: query.data.length }) : undefined}>
        <div className={query.data && query.data.length > 0 ? "table-wrap" : "panel-body"}>
          <Loaded query={query} lines={6} empty={{ when: (list: Filter[]) => list.length === 0, show: <Empty title={t("filters.none")}>{t("filters.noneAbout")}</Empty> }}>
            {(list) => (
              <table className="table cards">
                <thead>
                  <tr>
                    <th scope="col">{t("filters.matching")}</th>
                    <th scope="col">{t("services.state")}</th>
                    <th scope="col">{t("filters.action")}</th>
                    <th scope="col">{t("filters.origin")}</th>
                    <th scope="col">{t("filters.until")}</th>
                  </tr>
                </thead>
                <tbody>
                  {list.map((filter) => (
                    <tr key={filter.id}>
                      <th scope="row">
                        <code>{filter.matching}</code> <span className="quiet">{filter.id}</span>
                      </th>
                      <td data-label={t("services.state")}>
                        <span>
                          <StateOf state={filter.state} />
                          {filter.reason ? <small className="quiet"> {filter.reason}</small> : null}
                        </span>
                      </td>
                      <td data-label={t("filters.action")}>
                        <span>
                          {word(t, ACTIONS, filter.action)} {filter.rate_kbps === null ? null : <Rate bits={filter.rate_kbps * 1000} />}
                        </span>
                      </td>
                      <td data-label={t("filters.origin")}>{word(t, ORIGINS, filter.origin)}</td>
                      <td data-label={t("filters.until")}>{filter.expires ? <Time at={filter.expires} /> : t("filters.withRoute")}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            )}
          </Loaded>
        </div>
      </Panel>
    </>
  );
}
