import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import { filterOrder, useOrder } from "../api/orders";
import { attack as attackQuery, observedFilters } from "../api/queries";
import type { AttackView, NewFilter, Ordered, Suggestion, Traffic } from "../api/types";
import { Rate } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { Bars, MinuteChart } from "../ui/chart";
import { Form, TextField } from "../ui/fields";
import { useHeld } from "../ui/held";
import { Loaded } from "../ui/loaded";
import { ManualFilter } from "../ui/manualfilter";
import { Button, Empty, Notice, Panel, ScreenHead, Skeleton } from "../ui/parts";
import { UndoBar, type Done } from "../ui/undo";
import { ActiveRules, removeNewest, type Act } from "./attack.rules";
import { parseAttackSearch, type AttackSearch } from "./attack.search";
import { Suggestions } from "./attack.suggestions";

const BY: Record<string, MessageId> = {
  protocol: "attack.byProtocol",
  port: "attack.byPort",
  peer: "attack.byPeer",
  source_as: "attack.bySourceAs",
  fragment: "attack.byFragment",
  size: "attack.bySize",
};

const NO_SUGGESTIONS: Suggestion[] = [];

type Target = AttackView["targets"][number];

const prefixOf = (target: Target) => target.prefix;

/** The rate above which traffic with an unknown usual rate may be an attack, in bit/s. */
const ALARM = 1e8;

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
