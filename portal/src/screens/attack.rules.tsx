import { useRef } from "react";

import { client, idempotencyKey, result } from "../api/client";
import { filterOrder, useOrder } from "../api/orders";
import type { Filter } from "../api/types";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate, formatNumber } from "../i18n/units";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { ActionOf, TimeLeft } from "../ui/filterform";
import { Ident } from "../ui/ident";
import { explain } from "../ui/loaded";
import { Button, Notice, Panel } from "../ui/parts";

export type Act = (sentence: string, undo: () => Promise<unknown>) => void;

/** Removes a filter, whatever its current revision is. */
export async function removeNewest(filter: string): Promise<unknown> {
  const read = await result(client.GET("/api/v1/filters/{id}", { params: { path: { id: filter } } }));
  return filterOrder.remove(filter, read.revision);
}

/** Gives a filter the expiry that it had, whatever its current revision is. */
async function expireAt(filter: string, expires: string): Promise<unknown> {
  const read = await result(client.GET("/api/v1/filters/{id}", { params: { path: { id: filter } } }));
  return filterOrder.extend(filter, read.revision, minutesTo(expires));
}

/** Returns the whole minutes to a time, at least one. */
function minutesTo(time: string): number {
  return Math.max(1, Math.ceil((new Date(time).getTime() - Date.now()) / 60_000));
}

/** Returns the act that makes a removed filter again. Filters of routes come from their routes. */
export function again(filter: Filter): (() => Promise<unknown>) | undefined {
  const { order, expires } = filter;
  if (!order) return undefined;
  const minutes = expires ? minutesTo(expires) : 60;
  // One key: an act that is done again after a lost answer makes no second filter.
  const key = idempotencyKey();
  return () => filterOrder.create({ ...order, minutes }, key);
}

/** Returns one act that does several. When it is repeated, it skips those that succeeded. */
function inTurn(acts: (() => Promise<unknown>)[]): () => Promise<unknown> {
  const rest = [...acts];
  return async () => {
    for (let act = rest[0]; act !== undefined; act = rest[0]) {
      await act();
      rest.shift();
    }
  };
}

/** The active filters of a destination with their present rates. */
export function ActiveRules({ filters: live, done }: { filters: Filter[]; done: Act }) {
  const t = useText();
  const [filters, hold] = useAsOpened(live);
  /** Filters that an order which then failed has removed: the held list still has them. */
  const stopped = useRef(new Set<string>());
  const { language } = useLanguage();
  const remove = useOrder(filterOrder.remove);
  const extend = useOrder(filterOrder.extend);
  const own = filters.filter((filter) => filter.can.includes("write_filter") && filter.order !== null);
  const lengthen = (filter: Filter, expires: string) =>
    extend.mutate([filter.id, filter.revision, minutesTo(expires) + 60], {
      onSuccess: () => done(t("attack.extended", { packets: filter.matching }), () => expireAt(filter.id, expires)),
    });
  const stop = async (filter: Filter) => {
    await remove.mutateAsync([filter.id, filter.revision]);
    const back = again(filter);
    if (back) done(t("attack.stopped", { packets: filter.matching }), back);
  };
  return (
    <Panel
      title={t("attack.rules")}
      actions={
        own.length > 1 ? (
          <ConfirmedAct
            label={t("attack.stopAll")}
            title={t("attack.stopAllTitle")}
            sentence={t("attack.stopAllSentence", { count: own.length })}
            kind="danger"
            hold={hold}
            act={async () => {
              const back: (() => Promise<unknown>)[] = [];
              try {
                for (const filter of own) {
                  if (stopped.current.has(filter.id)) continue;
                  await remove.mutateAsync([filter.id, filter.revision]);
                  stopped.current.add(filter.id);
                  const act = again(filter);
                  if (act) back.push(act);
                }
              } finally {
                // Those that were removed before a failure can be made again.
                if (back.length > 0) done(t("attack.allStopped", { count: back.length }), inTurn(back));
              }
            }}
          />
        ) : null
      }
    >
      {extend.isError ? <Notice tone="bad" title={explain(t, extend.error)} live /> : null}
      {filters.length === 0 ? (
        <p className="quiet">{t("attack.noRules")}</p>
      ) : (
        <ul className="stack">
          {filters.map((filter) => (
            <li key={filter.id} className="rule">
              <div>
                <code>{filter.matching}</code> <Ident id={filter.id} />
              </div>
              <div className="row">
                <ActionOf filter={filter} />
                {filter.counter ? (
                  <strong title={formatNumber(filter.counter.bytes, language) + " B"}>
                    {t("attack.dropping", {
                      rate: formatBitRate(filter.counter.bits_per_s, language),
                      packets: formatNumber(filter.counter.packets, language),
                    })}
                  </strong>
                ) : null}
                <span className="quiet">
                  {filter.expires ? (
                    <>
                      {t("attack.left")} <TimeLeft until={filter.expires} />
                    </>
                  ) : (
                    t("filters.withRoute")
                  )}
                </span>
              </div>
              {filter.can.includes("write_filter") && filter.expires ? (
                <div className="buttons">
                  <Button onPress={() => lengthen(filter, filter.expires ?? "")} isPending={extend.isPending}>
                    {t("attack.extend")}
                  </Button>
                  <ConfirmedAct
                    label={t("attack.stop")}
                    title={t("attack.stopTitle")}
                    sentence={t("attack.stopSentence", { packets: filter.matching })}
                    kind="danger"
                    hold={hold}
                    act={() => stop(filter)}
                  />
                </div>
              ) : null}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
