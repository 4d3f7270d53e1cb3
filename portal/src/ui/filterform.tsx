import { RequestError } from "../api/problem";
import type { Filter, NewFilter, PortRange } from "../api/types";
import { Rate, useClock } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText, type Translate } from "../i18n/text";
import { Choices, Select, TextField } from "./fields";

const ACTIONS: Record<string, MessageId> = {
  drop: "filter.drop",
  shape: "filter.shape",
  count: "filter.count",
  none: "filter.none",
};
const PROTOCOLS: Record<string, number> = { udp: 17, tcp: 6, icmp: 1, icmpv6: 58 };
export const LIFETIMES = ["15", "60", "360", "1440", "10080"];

/** The fields of a filter as they are typed. */
export type FilterDraft = {
  destination: string;
  source: string;
  protocol: string;
  sourcePorts: string;
  destinationPorts: string;
  fragment: string;
  action: "drop" | "shape" | "count";
  rate: string;
  minutes: string;
  comment: string;
};

export const EMPTY_FILTER: FilterDraft = {
  destination: "",
  source: "",
  protocol: "any",
  sourcePorts: "",
  destinationPorts: "",
  fragment: "all",
  action: "drop",
  rate: "",
  minutes: "60",
  comment: "",
};

export type FilterErrors = Partial<
  Record<"destination" | "source" | "sourcePorts" | "destinationPorts" | "rate", string>
>;

/** Returns the ranges of a text such as "53, 1024-2048", or undefined if it is none. */
export function parsePorts(text: string): PortRange[] | undefined {
  if (text.trim() === "") return [];
  const ranges: PortRange[] = [];
  for (const part of text.split(",")) {
    const found = /^\s*(\d{1,5})\s*(?:[-–]\s*(\d{1,5}))?\s*$/.exec(part);
    if (!found) return undefined;
    const first = Number(found[1]);
    const last = found[2] === undefined ? first : Number(found[2]);
    if (first > last || last > 65_535) return undefined;
    ranges.push({ first, last });
  }
  return ranges;
}

/** Returns the problems of a draft that can be seen without the engine. */
export function checkFilter(t: Translate, draft: FilterDraft): FilterErrors {
  return {
    ...(draft.destination.trim() === "" ? { destination: t("filterForm.destinationMissing") } : {}),
    ...(parsePorts(draft.sourcePorts) === undefined ? { sourcePorts: t("filterForm.portsWrong") } : {}),
    ...(parsePorts(draft.destinationPorts) === undefined ? { destinationPorts: t("filterForm.portsWrong") } : {}),
    ...(draft.action === "shape" && !/^\d*$/.test(draft.rate.trim()) ? { rate: t("filterForm.rateWrong") } : {}),
  };
}

/** Returns the errors that the engine names, at their fields. */
export function filterErrors(t: Translate, error: unknown): FilterErrors {
  if (!(error instanceof RequestError)) return {};
  const at = (pointer: string) => {
    const found = error.at(pointer);
    return found ? t.reason(found.coded, found.detail) : undefined;
  };
  const destination = at("/destination");
  const source = at("/source");
  const sourcePorts = at("/source_ports");
  const destinationPorts = at("/destination_ports");
  return {
    ...(destination ? { destination } : {}),
    ...(source ? { source } : {}),
    ...(sourcePorts ? { sourcePorts } : {}),
    ...(destinationPorts ? { destinationPorts } : {}),
  };
}

/** Returns the order for a draft. */
export function filterOf(draft: FilterDraft): NewFilter {
  const rate = draft.rate.trim() === "" ? null : Number(draft.rate) * 1000;
  return {
    destination: draft.destination.trim(),
    source: draft.source.trim() === "" ? null : draft.source.trim(),
    protocol: PROTOCOLS[draft.protocol] ?? null,
    source_ports: parsePorts(draft.sourcePorts) ?? [],
    destination_ports: parsePorts(draft.destinationPorts) ?? [],
    fragment: draft.fragment === "all" ? null : draft.fragment,
    action: draft.action,
    rate_kbps: draft.action === "shape" ? rate : null,
    minutes: Number(draft.minutes),
    comment: draft.comment.trim() === "" ? null : draft.comment.trim(),
  };
}

export function lifetimeWord(t: Translate, minutes: string): string {
  const number = Number(minutes);
  if (number % 1440 === 0) return t("filterForm.days", { count: number / 1440 });
  if (number % 60 === 0) return t("filterForm.hours", { count: number / 60 });
  return t("filterForm.minutes", { count: number });
}

/** The choice of a time to live. */
export function Lifetime({ value, onChange }: { value: string; onChange: (minutes: string) => void }) {
  const t = useText();
  return (
    <Select
      label={t("filterForm.lifetime")}
      options={LIFETIMES.map((id) => ({ id, name: lifetimeWord(t, id) }))}
      value={value}
      onChange={(key) => onChange(String(key))}
    />
  );
}

/** The fields of a filter: packets, treatment, time to live. */
export function FilterFields({
  value,
  onChange,
  errors,
}: {
  value: FilterDraft;
  onChange: (value: FilterDraft) => void;
  errors: FilterErrors;
}) {
  const t = useText();
  const change = (next: Partial<FilterDraft>) => onChange({ ...value, ...next });
  const hasPorts = value.protocol === "udp" || value.protocol === "tcp";
  return (
    <>
      <TextField
        id="filter-destination"
        label={t("filterForm.destination")}
        hint={t("filterForm.destinationHint")}
        value={value.destination}
        onChange={(destination) => change({ destination })}
        error={errors.destination}
        inputProps={{ spellCheck: false, autoCapitalize: "none" }}
      />
      <Select
        label={t("filterForm.protocol")}
        options={[
          { id: "any", name: t("filterForm.anyProtocol") },
          ...Object.keys(PROTOCOLS).map((id) => ({ id, name: id.toUpperCase().replace("V6", "v6") })),
        ]}
        value={value.protocol}
        onChange={(key) =>
          change({
            protocol: String(key),
            ...(key === "udp" || key === "tcp" ? {} : { sourcePorts: "", destinationPorts: "" }),
          })
        }
      />
      {hasPorts ? (
        <div className="pair">
          <TextField
            label={t("filterForm.sourcePorts")}
            hint={t("filterForm.portsHint")}
            value={value.sourcePorts}
            onChange={(sourcePorts) => change({ sourcePorts })}
            error={errors.sourcePorts}
          />
          <TextField
            label={t("filterForm.destinationPorts")}
            hint={t("filterForm.portsHint")}
            value={value.destinationPorts}
            onChange={(destinationPorts) => change({ destinationPorts })}
            error={errors.destinationPorts}
          />
        </div>
      ) : null}
      <TextField
        label={t("filterForm.source")}
        hint={t("filterForm.sourceHint")}
        value={value.source}
        onChange={(source) => change({ source })}
        error={errors.source}
        inputProps={{ spellCheck: false, autoCapitalize: "none" }}
      />
      <Select
        label={t("filterForm.fragments")}
        options={[
          { id: "all", name: t("filterForm.fragmentAll") },
          { id: "any", name: t("filterForm.fragmentAny") },
          { id: "later", name: t("filterForm.fragmentLater") },
        ]}
        value={value.fragment}
        onChange={(key) => change({ fragment: String(key) })}
      />
      <Choices
        label={t("filters.action")}
        value={value.action}
        onChange={(action) => change({ action })}
        options={[
          { id: "drop", name: t("filter.drop"), hint: t("filterForm.dropAbout") },
          { id: "shape", name: t("filterForm.shape"), hint: t("filterForm.shapeAbout") },
          { id: "count", name: t("filter.count"), hint: t("filterForm.countAbout") },
        ]}
      />
      {value.action === "shape" ? (
        <TextField
          label={t("end.rate")}
          hint={t("filterForm.rateHint")}
          unit="Mbit/s"
          value={value.rate}
          onChange={(rate) => change({ rate })}
          error={errors.rate}
          inputProps={{ inputMode: "numeric" }}
        />
      ) : null}
      <Lifetime value={value.minutes} onChange={(minutes) => change({ minutes })} />
      <TextField label={t("filterForm.comment")} value={value.comment} onChange={(comment) => change({ comment })} />
    </>
  );
}

/** The treatment of a filter in words. */
export function ActionOf({ filter }: { filter: Filter }) {
  const t = useText();
  const known = ACTIONS[filter.action];
  return (
    <span>
      {known ? t(known) : filter.action} {filter.rate_kbps === null ? null : <Rate bits={filter.rate_kbps * 1000} />}
    </span>
  );
}

/** Returns a duration as a clock shows it: "1:02:03", or "2:03" below an hour. */
function clockTime(seconds: number): string {
  const twoDigits = (count: number) => String(count).padStart(2, "0");
  const hours = Math.floor(seconds / 3_600);
  const minutes = Math.floor(seconds / 60) % 60;
  const below = `${hours > 0 ? twoDigits(minutes) : minutes}:${twoDigits(seconds % 60)}`;
  return hours > 0 ? `${hours}:${below}` : below;
}

/** The time that a filter has left, counted down. */
export function TimeLeft({ until }: { until: string }) {
  const t = useText();
  const now = useClock(1_000);
  const seconds = Math.max(0, Math.round((new Date(until).getTime() - now.getTime()) / 1000));
  const days = Math.floor(seconds / 86_400);
  const text = days >= 2 ? t("filterForm.days", { count: days }) : clockTime(seconds);
  return (
    <time dateTime={until} title={new Date(until).toISOString()}>
      {text}
    </time>
  );
}
