// Rates and sizes in SI units, as network engineers write them: 1 Mbit/s is 1,000,000 bit/s.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function scaled(value: number, unit: string, language: string): string {
  let step = 0;
  let shown = Math.abs(value);
  while (shown >= 1000 && step < PREFIXES.length - 1) {
    shown /= 1000;
    step += 1;
  }
  // 999.96 rounds to 1,000, which belongs to the next prefix.
  if (Number(shown.toPrecision(3)) >= 1000 && step < PREFIXES.length - 1) {
    shown /= 1000;
    step += 1;
  }
  const digits = shown >= 100 || Number.isInteger(shown) ? 0 : shown >= 10 ? 1 : 2;
  const number = new Intl.NumberFormat(language, { maximumFractionDigits: digits }).format(Math.sign(value) * shown);
  return `${number}\u00a0${PREFIXES[step] ?? ""}${unit}`;
}

/** Returns a bit rate, given in bit/s: "200 Mbit/s". */
export function formatBitRate(bitsPerSecond: number, language: string): string {
  return scaled(bitsPerSecond, "bit/s", language);
}

/** Returns a time, given in microseconds: "1.4 ms". */
export function formatMicros(micros: number, language: string): string {
  const [value, unit] = micros >= 1e6 ? [micros / 1e6, "s"] : micros >= 1000 ? [micros / 1000, "ms"] : [micros, "µs"];
  return `${new Intl.NumberFormat(language, { maximumSignificantDigits: 3 }).format(value)}\u00a0${unit}`;
}

/** Returns a size in bytes: "1.5 GB". */
export function formatBytes(bytes: number, language: string): string {
  return scaled(bytes, "B", language);
}

/** Returns a number with the separators of the language. */
export function formatNumber(value: number, language: string): string {
  return new Intl.NumberFormat(language).format(value);
}

/** Returns a share of 0 to 1 in percent: "2.5 %". A share that rounds to nothing has no sign. */
export function formatShare(share: number, language: string): string {
  return new Intl.NumberFormat(language, {
    style: "percent",
    maximumFractionDigits: 1,
    signDisplay: "negative",
  }).format(share);
}

/** Returns the exact time in UTC, for the hover text of local times: "2026-11-23 14:05:09 UTC". */
export function formatUtc(time: Date): string {
  return `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** Returns how long ago `then` was, in the largest fitting unit: "3 minutes ago". */
export function formatAge(then: Date, now: Date, language: string): string {
  const seconds = Math.round((then.getTime() - now.getTime()) / 1000);
  const format = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
  const steps: [number, Intl.RelativeTimeFormatUnit][] = [
    [60, "second"],
    [60, "minute"],
    [24, "hour"],
    [Number.POSITIVE_INFINITY, "day"],
  ];
  let value = seconds;
  for (const [size, unit] of steps) {
    if (Math.abs(value) < size) return format.format(value, unit);
    value = Math.trunc(value / size);
  }
  return format.format(value, "day");
}

/** Returns runs of consecutive numbers as text: [1, 2, 3, 7] is "1–3, 7". */
export function formatRuns(numbers: readonly number[]): string {
  const runs: string[] = [];
  for (let start = 0; start < numbers.length;) {
    let end = start;
    while (end + 1 < numbers.length && numbers[end + 1] === (numbers[end] ?? 0) + 1) end += 1;
    runs.push(start === end ? `${numbers[start]}` : `${numbers[start]}–${numbers[end]}`);
    start = end + 1;
  }
  return runs.join(", ");
}
