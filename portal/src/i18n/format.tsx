import { useEffect, useState } from "react";

import { useLanguage, useText } from "./text";
import { formatAge, formatBitRate, formatUtc } from "./units";

/** Shows a time in the reader's zone, with UTC on hover. */
export function Time({ at, dateOnly = false }: { at: string | number | Date; dateOnly?: boolean }) {
  const { language } = useLanguage();
  const time = new Date(at);
  const style: Intl.DateTimeFormatOptions = dateOnly
    ? { dateStyle: "medium" }
    : { dateStyle: "medium", timeStyle: "medium" };
  return (
    <time dateTime={time.toISOString()} title={formatUtc(time)}>
      {new Intl.DateTimeFormat(language, style).format(time)}
    </time>
  );
}

/** Shows how long ago a time was, updated as it passes, with UTC on hover. */
export function Age({ at }: { at: string | number | Date }) {
  const { language } = useLanguage();
  const time = new Date(at);
  const now = useClock(Math.abs(Date.now() - time.getTime()) < 60_000 ? 1_000 : 20_000);
  return (
    <time dateTime={time.toISOString()} title={formatUtc(time)}>
      {formatAge(time, now, language)}
    </time>
  );
}

/** Shows a bit rate with the exact number on hover; `null` is an unlimited rate. */
export function Rate({ bits }: { bits: number | null | undefined }) {
  const { language } = useLanguage();
  const t = useText();
  if (bits === null || bits === undefined) return <>{t("rate.unlimited")}</>;
  return <span title={`${bits} bit/s`}>{formatBitRate(bits, language)}</span>;
}

/** Returns the current time, renewed every `period` milliseconds. */
export function useClock(period: number): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), period);
    return () => clearInterval(timer);
  }, [period]);
  return now;
}
