import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";

import { graph as graphQuery, type GraphOf } from "../api/queries";
import type { Graph, GraphLine, Period } from "../api/types";
import { Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText, type Translate } from "../i18n/text";
import { formatBitRate, formatMicros, formatShare } from "../i18n/units";
import { saveCsv } from "./csv";
import { Choices, Select } from "./fields";
import { parsePeriod, PERIODS } from "./graph.search";
import { Loaded } from "./loaded";
import { Button, Empty } from "./parts";
import { Table, type Column } from "./table";

const WIDTH = 600;
const HEIGHT = 150;

const PERIOD_NAMES: Record<Period, MessageId> = {
  day: "graph.day",
  week: "graph.week",
  month: "graph.month",
  year: "graph.year",
};

/** The words for `in` and `out`, which differ by what is measured. */
export type Directions = { in: string; out: string };

/** Returns the name of a line in the words of the reader. */
function nameOf(t: Translate, measure: string, directions: Directions): string {
  const [direction, family] = [measure.startsWith("out") ? directions.out : directions.in, measure.split("_ipv")[1]];
  if (measure === "round_trip") return t("graph.roundTrip");
  return family ? t("graph.family", { direction, family: `IPv${family}` }) : direction;
}

/** Returns true for a line by IP version, which is drawn thin. */
const isPart = (line: GraphLine) => line.measure.includes("_ipv");

/** Returns the lines of each object, in the order of the graph. */
export function byObject(lines: GraphLine[]): { name: string; lines: GraphLine[] }[] {
  const found: { name: string; object: string; lines: GraphLine[] }[] = [];
  for (const line of lines) {
    const last = found.at(-1);
    // Objects that the reader may not know have no identifier; each has one line of each measure.
    const isSame =
      last?.object === line.object &&
      last.name === line.name &&
      !last.lines.some((other) => other.measure === line.measure);
    if (last && isSame) last.lines.push(line);
    else found.push({ name: line.name, object: line.object, lines: [line] });
  }
  return found.map(({ name, lines }) => ({ name, lines }));
}

/** Returns the known stretches of a line as points of a drawing; a gap is between two of them. */
export function stretches(values: readonly (number | null)[], top: number): string[] {
  const step = WIDTH / Math.max(1, values.length - 1);
  const found: string[][] = [];
  let isOpen = false;
  values.forEach((value, index) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    const point = `${(index * step).toFixed(1)},${(HEIGHT - (value / top) * (HEIGHT - 8)).toFixed(1)}`;
    if (isOpen) found.at(-1)?.push(point);
    else found.push([point]);
    isOpen = true;
  });
  // A stretch of one point is drawn as one step.
  return found.map((points) =>
    points.length > 1
      ? points.join(" ")
      : `${points[0]} ${Number(points[0]?.split(",")[0]) + step},${points[0]?.split(",")[1]}`,
  );
}

/** Returns the area under a stretch. */
function area(stretch: string): string {
  const points = stretch.split(" ");
  const x = (point: string | undefined) => point?.split(",")[0] ?? "0";
  return `${x(points[0])},${HEIGHT} ${stretch} ${x(points.at(-1))},${HEIGHT}`;
}

/** Returns what a line says: its peak with the time, the average, and which share of the time is known. */
function sentenceOf(
  t: Translate,
  name: string,
  line: GraphLine,
  at: (index: number) => string,
  value: (value: number) => string,
  share: (share: number) => string,
): string {
  const peaks = line.peak.map((peak, index) => peak ?? line.average[index] ?? null);
  const known = peaks.flatMap((peak) => (peak === null ? [] : [peak]));
  if (known.length === 0) return t("graph.nothing", { line: name });
  const peak = Math.max(...known);
  // Each point counts by the share of its time that is known.
  let [sum, weight] = [0, 0];
  line.average.forEach((average, index) => {
    const covered = line.coverage[index] ?? 0;
    if (average === null) return;
    sum += average * covered;
    weight += covered;
  });
  const average = weight > 0 ? sum / weight : peak;
  return t("graph.sentence", {
    line: name,
    peak: value(peak),
    time: at(peaks.indexOf(peak)),
    average: value(average),
    known: share(weight / Math.max(1, line.average.length)),
  });
}

/** One object's lines over time: a drawing, a sentence for each line, and the same as a table. */
export function GraphChart({
  graph,
  lines,
  directions,
  name,
}: {
  graph: Graph;
  lines: GraphLine[];
  directions: Directions;
  name: string;
}) {
  const t = useText();
  const { language } = useLanguage();
  const [open, setOpen] = useState(false);
  const start = new Date(graph.start).getTime();
  const timeOf = (index: number) => new Date(start + index * graph.step_seconds * 1000);
  const style: Intl.DateTimeFormatOptions =
    graph.period === "day"
      ? { timeStyle: "short" }
      : graph.period === "year"
        ? { dateStyle: "medium" }
        : { dateStyle: "medium", timeStyle: "short" };
  const clock = (index: number) => new Intl.DateTimeFormat(language, style).format(timeOf(index));
  const value = (line: GraphLine) => (value: number) =>
    line.unit === "us" ? formatMicros(value, language) : formatBitRate(value, language);
  const names = lines.map((line) => nameOf(t, line.measure, directions));
  const top = Math.max(1, ...lines.flatMap((line) => line.average.map((average) => average ?? 0)));
  const [first] = lines;
  const points = first?.average.length ?? 0;
  if (!first) return null;
  const sentences = lines.map((line, index) =>
    sentenceOf(t, names[index] ?? "", line, clock, value(line), (share) => formatShare(share, language)),
  );
  const figure = (line: GraphLine, found: number | null | undefined) =>
    found === null || found === undefined ? t("chart.unknown") : value(line)(found);
  // The newest point first.
  const times = first.average.map((_, index) => points - 1 - index);
  const columns: Column<number>[] = [
    { title: t("graph.time"), cell: (index) => <Time at={timeOf(index)} /> },
    ...lines.map((line, number) => ({
      title: names[number] ?? "",
      isNumber: true,
      cell: (index: number) => figure(line, line.average[index]),
    })),
    ...lines.flatMap((line, number) =>
      isPart(line)
        ? []
        : [
            {
              title: t("graph.peakOf", { line: names[number] ?? "" }),
              isNumber: true,
              cell: (index: number) => figure(line, line.peak[index]),
            },
          ],
    ),
  ];
  const save = () =>
    saveCsv(`${name || "graph"}-${graph.period}.csv`, [
      [
        "start",
        ...lines.flatMap((line) => [
          `${line.measure} average ${line.unit}`,
          `${line.measure} peak ${line.unit}`,
          `${line.measure} coverage`,
        ]),
      ],
      ...first.average.map((_, index) => [
        timeOf(index).toISOString(),
        ...lines.flatMap((line) => [
          line.average[index] ?? null,
          line.peak[index] ?? null,
          line.coverage[index] ?? null,
        ]),
      ]),
    ]);
  return (
    <figure className="chart" aria-label={name}>
      <div className="chart-frame">
        <span className="chart-top" aria-hidden="true">
          {value(first)(top)}
        </span>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={sentences.join(" ")}>
          {lines.map((line) => (
            <g key={line.measure} className="graph-line" data-of={line.measure}>
              {stretches(line.average, top).map((stretch) => (
                <g key={stretch}>
                  {line.measure === "in" || line.measure === "round_trip" ? <polygon points={area(stretch)} /> : null}
                  <polyline points={stretch} />
                </g>
              ))}
            </g>
          ))}
        </svg>
        <div className="chart-axis" aria-hidden="true">
          <span>{clock(0)}</span>
          <span>{clock(points - 1)}</span>
        </div>
      </div>
      <figcaption className="graph-caption">
        <ul className="graph-notes">
          {lines.map((line, index) => (
            <li key={line.measure}>
              <span className="graph-legend" data-of={line.measure}>
                {sentences[index]}
              </span>
              {line.sampled ? <span className="quiet"> {t("graph.sampled")}</span> : null}
            </li>
          ))}
        </ul>
      </figcaption>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>{t("chart.table")}</summary>
        {open ? (
          <div className="stack tight">
            <div className="table-wrap chart-table" tabIndex={0} role="region" aria-label={t("chart.table")}>
              <Table isWide rows={times} keyOf={(index) => index} columns={columns} />
            </div>
            <div>
              <Button onPress={save}>{t("act.csv")}</Button>
            </div>
          </div>
        ) : null}
      </details>
    </figure>
  );
}

/** The lines of a graph, or the words for why there are none. Of several objects, one is chosen. */
export function GraphOfObjects({
  graph,
  directions,
  choose,
  about,
}: {
  graph: Graph;
  directions: Directions;
  choose: string;
  about?: string;
}) {
  const t = useText();
  const objects = byObject(graph.lines);
  const [chosen, setChosen] = useState("");
  const entries = objects.map(({ name, lines }, index) => ({
    id: `${index}`,
    name: name === "" && objects.length > 1 ? t("graph.unnamed", { number: index + 1 }) : name,
    lines,
  }));
  // The choice is kept by its name, because the order changes with the traffic.
  const shown = entries.find((entry) => entry.name === chosen) ?? entries[0];
  if (!graph.measured) return <Empty title={t("graph.off")}>{t("graph.offAbout")}</Empty>;
  if (!shown) return <Empty title={t("graph.empty")}>{about ?? t("graph.emptyAbout")}</Empty>;
  return (
    <div className="stack tight">
      {entries.length > 1 ? (
        <Select
          label={choose}
          selectedKey={shown.id}
          onSelectionChange={(key) => setChosen(entries.find((entry) => entry.id === key)?.name ?? "")}
          options={entries.map(({ id, name }) => ({ id, name }))}
        />
      ) : null}
      <GraphChart graph={graph} lines={shown.lines} directions={directions} name={shown.name} />
    </div>
  );
}

/**
 * The graphs of an object over a day, a week, a month or a year; the address keeps the period. They are read when they
 * are opened.
 */
export function Graphs({
  of,
  directions,
  choose = "",
  about,
  isOpen = false,
  title,
}: {
  of: GraphOf;
  directions: Directions;
  choose?: string;
  about?: string;
  isOpen?: boolean;
  title?: string;
}) {
  const t = useText();
  const navigate = useNavigate();
  const { period = "day" } = parsePeriod(useSearch({ strict: false }));
  const [open, setOpen] = useState(isOpen);
  const query = useQuery(graphQuery(of, period, open));
  return (
    <details className="graphs" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title ?? t("graph.title")}</summary>
      {open ? (
        <div className="stack tight">
          <Choices
            label={t("graph.period")}
            value={period}
            onChange={(next) =>
              void navigate({
                to: ".",
                search: ((before: object) => ({ ...before, period: next })) as never,
                replace: true,
                resetScroll: false,
              })
            }
            options={PERIODS.map((id) => ({ id, name: t(PERIOD_NAMES[id]) }))}
          />
          <Loaded query={query} lines={5}>
            {(graph) => <GraphOfObjects graph={graph} directions={directions} choose={choose} about={about} />}
          </Loaded>
        </div>
      ) : null}
    </details>
  );
}
