import type { Minute } from "../api/types";
import { Time } from "../i18n/format";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { Table } from "./table";

const WIDTH = 600;
const HEIGHT = 150;

/** Minutes whose rates are known, and the number of those before them. */
type Known = { values: { passed: number; dropped: number; at: string }[]; before: number };

/** Returns the minutes whose rates are known: all since the switches send samples. */
function known(minutes: Minute[]): Known {
  const values = minutes.flatMap(({ at, passed_bps, dropped_bps }) =>
    passed_bps === null || dropped_bps === null ? [] : [{ passed: passed_bps, dropped: dropped_bps, at }],
  );
  return { values, before: minutes.length - values.length };
}

/** Returns the points of a line over the minutes. */
function line(values: number[], top: number, before: number): string {
  const step = WIDTH / Math.max(1, before + values.length - 1);
  return values
    .map(
      (value, index) => `${((before + index) * step).toFixed(1)},${(HEIGHT - (value / top) * (HEIGHT - 8)).toFixed(1)}`,
    )
    .join(" ");
}

/** Returns the points of the area between two lines over the minutes. */
function area(upper: number[], lower: number[], top: number, before: number): string {
  return `${line(upper, top, before)} ${line(lower, top, before).split(" ").reverse().join(" ")}`;
}

/**
 * The minutes of the traffic to a destination: the part that passes, and above it the part that filters drop. A
 * sentence and a table say the same.
 */
export function MinuteChart({ minutes, usual }: { minutes: Minute[]; usual: number | null }) {
  const t = useText();
  const { language } = useLanguage();
  const { values, before } = known(minutes);
  const total = values.map((minute) => minute.passed + minute.dropped);
  const passed = values.map((minute) => minute.passed);
  const top = Math.max(1, (usual ?? 0) * 1.2, ...total);
  const peak = total.indexOf(Math.max(...total));
  const at = values[peak]?.at;
  if (at === undefined) return null;
  const clock = (time: string) => new Intl.DateTimeFormat(language, { timeStyle: "short" }).format(new Date(time));
  const rate = (bits: number | null) => (bits === null ? t("chart.unknown") : formatBitRate(bits, language));
  const sentence = t("chart.peak", { rate: rate(total[peak] ?? 0), time: clock(at), usual: rate(usual) });
  // The area of what passes begins at the first known minute, and goes down to the axis at both ends.
  const begins = (before * WIDTH) / Math.max(1, minutes.length - 1);
  const passedArea = `${begins},${HEIGHT} ${line(passed, top, before)} ${WIDTH},${HEIGHT}`;
  const usualAt = usual === null ? undefined : HEIGHT - (usual / top) * (HEIGHT - 8);
  return (
    <figure className="chart">
      <div className="chart-frame">
        <span className="chart-top" aria-hidden="true">
          {rate(top)}
        </span>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={sentence}>
          <polygon className="chart-dropped" points={area(total, passed, top, before)} />
          <polygon className="chart-passed" points={passedArea} />
          <polyline className="chart-line" points={line(passed, top, before)} />
          {usualAt === undefined ? null : <line className="chart-usual" x1="0" x2={WIDTH} y1={usualAt} y2={usualAt} />}
        </svg>
        <div className="chart-axis" aria-hidden="true">
          <span>{clock(minutes[0]?.at ?? at)}</span>
          <span>{clock(minutes[minutes.length - 1]?.at ?? at)}</span>
        </div>
      </div>
      <figcaption className="chart-caption">
        <span className="legend" data-of="passed">
          {t("chart.passed")}
        </span>
        <span className="legend" data-of="dropped">
          {t("chart.dropped")}
        </span>
        {usual === null ? null : (
          <span className="legend" data-of="usual">
            {t("chart.usual")}
          </span>
        )}
        <span className="quiet">{sentence}</span>
      </figcaption>
      <details>
        <summary>{t("chart.table")}</summary>
        <div className="table-wrap chart-table" tabIndex={0} role="region" aria-label={t("chart.table")}>
          <Table
            isWide
            rows={[...minutes].reverse()}
            keyOf={(minute) => minute.at}
            columns={[
              { title: t("chart.minute"), cell: (minute) => <Time at={minute.at} /> },
              { title: t("chart.passed"), isNumber: true, cell: (minute) => rate(minute.passed_bps) },
              { title: t("chart.dropped"), isNumber: true, cell: (minute) => rate(minute.dropped_bps) },
            ]}
          />
        </div>
      </details>
    </figure>
  );
}

/** Shares of a whole as bars with numbers. */
export function Bars({ shares, label }: { shares: { label: string; bits_per_s: number }[]; label: string }) {
  const { language } = useLanguage();
  const top = Math.max(1, ...shares.map((share) => share.bits_per_s));
  return (
    <ul className="bars" aria-label={label}>
      {shares.map((share) => (
        <li key={share.label}>
          <span className="bar-label">{share.label}</span>
          <span className="bar-value">{formatBitRate(share.bits_per_s, language)}</span>
          <span className="bar" aria-hidden="true">
            <span style={{ inlineSize: `${Math.max(1, (share.bits_per_s / top) * 100)}%` }} />
          </span>
        </li>
      ))}
    </ul>
  );
}
