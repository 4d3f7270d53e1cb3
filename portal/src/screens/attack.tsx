import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import { client, idempotencyKey, result } from "../api/client";
import { attack as attackQuery, filterOrder, observedFilters, useOrder } from "../api/queries";
import type { AttackView, Conflict, Filter, NewFilter, Ordered, Suggestion, Traffic } from "../api/types";
import { Rate } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate, formatNumber, formatShare } from "../i18n/units";
import { Ident } from "../ui/ident";
import { Bars, MinuteChart } from "../ui/chart";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { parseRate } from "../ui/endfields";
import { Form, TextField } from "../ui/fields";
import {
  ActionOf,
  checkFilter,
  EMPTY_FILTER,
  FilterFields,
  filterErrors,
  filterOf,
  Lifetime,
  TimeLeft,
  type FilterDraft,
  type FilterErrors,
} from "../ui/filterform";
import { useHeld } from "../ui/held";
import { InvalidField } from "../ui/invalid";
import { explain, Loaded } from "../ui/loaded";
import { Button, Empty, Notice, Panel, ScreenHead, Skeleton, State } from "../ui/parts";
import { UndoBar, type Done } from "../ui/undo";
import { parseAttackSearch, type AttackSearch } from "./attack.search";

const BY: Record<string, MessageId> = {
  protocol: "attack.byProtocol",
  port: "attack.byPort",
  peer: "attack.byPeer",
  source_as: "attack.bySourceAs",
  fragment: "attack.byFragment",
  size: "attack.bySize",
};

/** Makes a filter. The key identifies the order when it is sent again. */
type Make = (body: NewFilter, key: string) => Promise<unknown>;

type Act = (sentence: string, undo: () => Promise<unknown>) => void;

/** Returns a function that makes a filter and offers to take it back. */
function useMakeFilter(done: Act) {
  const t = useText();
  const create = useOrder(filterOrder.create);
  return (body: NewFilter, key: string) =>
    create.mutateAsync([body, key]).then((outcome: Ordered) => {
      const made = outcome.created.find((id) => id.startsWith("fi-"));
      if (made) done(t("attack.made", { destination: body.destination }), () => removeNewest(made));
    });
}

/** Removes a filter, whatever its current revision is. */
async function removeNewest(filter: string): Promise<unknown> {
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
function again(filter: Filter): (() => Promise<unknown>) | undefined {
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

function SuggestionCard({
  suggestion,
  make,
  made,
  hold,
}: {
  suggestion: Suggestion;
  make: Make;
  made: (suggestion: Suggestion) => void;
  hold: (open: boolean) => void;
}) {
  const t = useText();
  const { language } = useLanguage();
  const [minutes, setMinutes] = useState("60");
  const [rate, setRate] = useState("");
  const limit = suggestion.order.action === "shape" ? (suggestion.order.rate_kbps ?? null) : null;
  const isLimit = suggestion.order.action === "shape";
  const parsed = parseRate(rate);
  const covered = formatShare(suggestion.covers, language);
  return (
    <li className="card">
      <code className="card-title">{suggestion.matching}</code>
      <p>{t.reason(suggestion.coded, suggestion.why)}</p>
      <div className="row spread">
        <span>
          {suggestion.collateral === null ? (
            <>
              <State tone="off">{t("attack.coversAll", { share: covered })}</State>{" "}
              <State tone="wait">{t("attack.collateralUnknown")}</State>
            </>
          ) : (
            <>
              <State tone="ok">{t("attack.covers", { share: covered })}</State>{" "}
              <State tone={suggestion.collateral > 0.01 ? "wait" : "off"}>
                {t("attack.collateral", { share: formatShare(suggestion.collateral, language) })}
              </State>
            </>
          )}
          {limit === null ? null : (
            <span className="quiet"> {t("attack.limitTo", { rate: formatBitRate(limit * 1000, language) })}</span>
          )}
        </span>
        <ConfirmedAct
          label={t(isLimit ? "attack.limit" : "attack.drop")}
          title={t(isLimit ? "attack.limitTitle" : "attack.dropTitle")}
          sentence={t(isLimit ? "attack.limitSentence" : "attack.dropSentence", { packets: suggestion.matching })}
          kind="primary"
          onOpen={() => setRate(limit === null ? "" : String(Math.max(1, Math.round(limit / 1000))))}
          explain={(error) => explain(t, error)}
          hold={hold}
          act={(keyOf) => {
            if (isLimit && (parsed === undefined || parsed === null))
              return Promise.reject(new InvalidField(t("filterForm.rateWrong")));
            const body = {
              ...suggestion.order,
              ...(isLimit && parsed ? { rate_kbps: parsed * 1000 } : {}),
              minutes: Number(minutes),
            };
            return make(body, keyOf(body)).then(() => made(suggestion));
          }}
        >
          {isLimit ? (
            <TextField
              label={t("end.rate")}
              unit="Mbit/s"
              value={rate}
              onChange={setRate}
              error={parsed ? undefined : t("filterForm.rateWrong")}
              inputProps={{ inputMode: "decimal" }}
            />
          ) : null}
          <Lifetime value={minutes} onChange={setMinutes} />
        </ConfirmedAct>
      </div>
    </li>
  );
}

/**
 * The suggestions of the last read. Those of an open dialog stay, because each read computes them again. A suggestion
 * whose filter was made is gone at once; the next read no longer has it.
 */
function Suggestions({ suggestions: live, make }: { suggestions: Suggestion[]; make: Make }) {
  const t = useText();
  const [opened, hold] = useAsOpened(live);
  const [taken, setTaken] = useState<{ of: Suggestion[]; matching: string[] }>({ of: live, matching: [] });
  const gone = taken.of === live ? taken.matching : [];
  const suggestions = opened.filter((suggestion) => !gone.includes(suggestion.matching));
  const made = (suggestion: Suggestion) => setTaken({ of: live, matching: [...gone, suggestion.matching] });
  if (suggestions.length === 0) return <p className="quiet">{t("attack.noSuggestions")}</p>;
  return (
    <div className="stack">
      {suggestions.some((suggestion) => suggestion.collateral === null) ? (
        <Notice tone="wait" title={t("attack.usualUnknown")} />
      ) : null}
      <ul className="stack">
        {suggestions.map((suggestion) => (
          <SuggestionCard key={suggestion.matching} suggestion={suggestion} make={make} made={made} hold={hold} />
        ))}
      </ul>
    </div>
  );
}

const NO_SUGGESTIONS: Suggestion[] = [];

type Target = AttackView["targets"][number];
const prefixOf = (target: Target) => target.prefix;

/** The targets with the greatest rates. They keep their places while pointer or focus is in the list. */
function Targets({ targets, chosen, choose }: { targets: Target[]; chosen: string; choose: (target: string) => void }) {
  const t = useText();
  const list = useRef<HTMLUListElement>(null);
  const first = useMemo(() => targets.slice(0, 8), [targets]);
  const held = useHeld(first, prefixOf, list, "");
  return (
    <>
      <ul className="targets" aria-label={t("attack.targets")} ref={list} {...held.handlers}>
        {held.items.map((entry) => (
          <li key={entry.prefix}>
            <Button
              kind={entry.prefix === chosen ? "primary" : "plain"}
              onPress={() => choose(entry.prefix)}
              aria-pressed={entry.prefix === chosen}
            >
              <span className="mono">{entry.prefix}</span> <Rate bits={entry.bits_per_s} />
            </Button>
          </li>
        ))}
      </ul>
      {held.waiting > 0 ? (
        <Notice tone="off" title={t("held.waiting", { count: held.waiting })}>
          <Button onPress={held.release}>{t("held.show")}</Button>
        </Notice>
      ) : null}
    </>
  );
}

/** The button for a filter that is written by hand. */
export function ManualFilter({ destination, make, label }: { destination: string; make: Make; label: string }) {
  const t = useText();
  const [draft, setDraft] = useState<FilterDraft>({ ...EMPTY_FILTER, destination });
  const [errors, setErrors] = useState<FilterErrors>({});
  /** The conflicts of an order with active filters, which a second confirmation accepts. */
  const [told, setTold] = useState<{ order: string; conflicts: Conflict[] }>();
  return (
    <ConfirmedAct
      label={label}
      title={t("filterForm.title")}
      sentence={t("filterForm.sentence")}
      explain={(error) => explain(t, error)}
      onOpen={() => {
        setDraft({ ...EMPTY_FILTER, destination });
        setErrors({});
        setTold(undefined);
      }}
      act={(keyOf) => {
        const found = checkFilter(t, draft);
        setErrors(found);
        if (Object.keys(found).length > 0) return Promise.reject(new InvalidField(t("form.incomplete")));
        const body = filterOf(draft);
        const order = JSON.stringify(body);
        // What the dry run cannot say, the order says.
        const tried =
          told?.order === order ? Promise.resolve(undefined) : filterOrder.tried(body).catch(() => undefined);
        return tried
          .then((outcome) => {
            const conflicts = outcome?.conflicts ?? [];
            if (conflicts.length > 0) {
              setTold({ order, conflicts });
              throw new InvalidField(t("filterForm.conflicts"));
            }
            return make(body, keyOf(body));
          })
          .catch((error: unknown) => {
            setErrors(filterErrors(t, error));
            throw error;
          });
      }}
    >
      <FilterFields value={draft} onChange={setDraft} errors={errors} />
      {told ? (
        <ul>
          {told.conflicts.map((conflict) => (
            <li key={conflict.filter}>{t.reason(conflict.coded, conflict.text)}</li>
          ))}
        </ul>
      ) : null}
    </ConfirmedAct>
  );
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
            explain={(error) => explain(t, error)}
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
                    explain={(error) => explain(t, error)}
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

/** The rate above which traffic with an unknown usual rate may be an attack, in bit/s. */
const ALARM = 1e8;

/** The present rates, and the last hour. */
export function Numbers({ traffic }: { traffic: Traffic }) {
  const t = useText();
  const { language } = useLanguage();
  const usual = traffic.target.usual_bits_per_s;
  const passed = Math.max(0, traffic.target.bits_per_s - traffic.dropped_bits_per_s);
  const times = new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(passed / (usual || 1));
  return (
    <div className="stack">
      <div className="big">
        <div>
          <span className="big-value" data-tone={(usual ? passed >= 2 * usual : passed > ALARM) ? "bad" : "ok"}>
            {formatBitRate(passed, language)}
          </span>
          <span>
            {t(usual === null ? "attack.arrivesUnknown" : usual === 0 ? "attack.arrivesNew" : "attack.arrives", {
              times,
            })}
          </span>
        </div>
        <div>
          <span className="big-value">{formatBitRate(traffic.dropped_bits_per_s, language)}</span>
          <span>{t("attack.isDropped")}</span>
        </div>
      </div>
      <MinuteChart minutes={traffic.minutes} usual={usual} />
      <p className="quiet small">
        {t("attack.sampled", {
          error: new Intl.NumberFormat(language, { maximumFractionDigits: 1 }).format(traffic.error_percent),
        })}
      </p>
    </div>
  );
}

/** The screen for the minutes of an attack: the numbers, what would help, what is active. */
export function UnderAttack() {
  const t = useText();
  const search = useSearch({ strict: false }) as AttackSearch;
  const navigate = useNavigate();
  const list = useQuery(attackQuery(""));
  const first = list.data?.targets[0]?.prefix;
  const target = search.target ?? first ?? "";
  // The list is sorted again with each read; the screen stays at the target that was the first.
  useEffect(() => {
    if (search.target === undefined && first !== undefined)
      void navigate({ to: "/attack", search: parseAttackSearch({ target: first }), replace: true });
  }, [search.target, first, navigate]);
  const query = useQuery(attackQuery(target));
  const filters = useQuery(observedFilters);
  const [typed, setTyped] = useState("");
  const [last, setLast] = useState<Done>();
  const done = useCallback<Act>((sentence, undo) => setLast({ sentence, undo, at: Date.now() }), []);
  const gone = useCallback((act: Done) => setLast((shown) => (shown === act ? undefined : shown)), []);
  const make = useMakeFilter(done);
  const choose = (target: string) => void navigate({ to: "/attack", search: parseAttackSearch({ target }) });
  const active = useMemo(() => (filters.data ?? []).filter((filter) => filter.state === "active"), [filters.data]);
  const traffic = query.data?.traffic;
  return (
    <>
      <ScreenHead
        title={t("nav.attack")}
        below={t("attack.about")}
        actions={<ManualFilter destination={target} make={make} label={t("attack.byHand")} />}
      />
      <div className="stack">
        {last ? <UndoBar key={last.at} done={last} onGone={gone} /> : null}
        <Panel title={t("attack.target")}>
          <div className="stack">
            <Loaded
              query={list}
              lines={2}
              empty={{
                when: (view) => view.targets.length === 0,
                show: <Empty title={t("attack.unmeasured")}>{t("attack.unmeasuredAbout")}</Empty>,
              }}
            >
              {(view) => <Targets targets={view.targets} chosen={target} choose={choose} />}
            </Loaded>
            <Form onSubmit={() => typed.trim() !== "" && choose(typed.trim())} label={t("attack.target")}>
              <div className="with-button">
                <TextField
                  label={t("attack.typed")}
                  value={typed}
                  onChange={setTyped}
                  inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "203.0.113.7" }}
                />
                <Button type="submit">{t("task.look")}</Button>
              </div>
            </Form>
          </div>
        </Panel>
        {target === "" ? null : (
          <div className="two attack">
            <div className="stack">
              <Panel title={t("attack.traffic", { target })}>
                <Loaded query={query} lines={8}>
                  {() =>
                    traffic ? (
                      <Numbers traffic={traffic} />
                    ) : (
                      <Empty title={t("attack.noTraffic")}>{t("attack.noTrafficAbout")}</Empty>
                    )
                  }
                </Loaded>
              </Panel>
              {traffic && traffic.breakdown.length > 0 ? (
                <div className="last-on-phone">
                  <Panel title={t("attack.from")}>
                    <div className="breakdown">
                      {traffic.breakdown
                        .filter((part) => part.shares.length > 0)
                        .map((part) => (
                          <section key={part.by} className="stack tight">
                            <h3>{t(BY[part.by] ?? "attack.byPort")}</h3>
                            <Bars shares={part.shares.slice(0, 8)} label={t(BY[part.by] ?? "attack.byPort")} />
                          </section>
                        ))}
                    </div>
                  </Panel>
                </div>
              ) : null}
            </div>
            <div className="stack">
              <Panel title={t("attack.suggestions")}>
                {query.isPending ? (
                  <Skeleton lines={3} />
                ) : (
                  <Suggestions key={target} suggestions={traffic?.suggestions ?? NO_SUGGESTIONS} make={make} />
                )}
              </Panel>
              <Loaded query={filters} lines={3}>
                {() => <ActiveRules filters={active} done={done} />}
              </Loaded>
            </div>
          </div>
        )}
      </div>
    </>
  );
}
