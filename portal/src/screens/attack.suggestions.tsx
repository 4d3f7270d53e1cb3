import { useState } from "react";

import type { Suggestion } from "../api/types";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate, formatShare } from "../i18n/units";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { parseRate } from "../ui/endfields";
import { TextField } from "../ui/fields";
import { Lifetime } from "../ui/filterform";
import { InvalidField } from "../ui/invalid";
import type { Make } from "../ui/manualfilter";
import { Notice, State } from "../ui/parts";

/**
 * The suggestions of the last read. Those of an open dialog stay, because each read computes them again. A suggestion
 * whose filter was made is gone at once; the next read no longer has it.
 */
export function Suggestions({ suggestions: live, make }: { suggestions: Suggestion[]; make: Make }) {
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
