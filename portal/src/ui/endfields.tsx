import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import type { EndOrder } from "../api/orders";
import { connections as connectionsQuery, vlans as vlansQuery } from "../api/queries";
import type { Vlan } from "../api/types";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { Choices, ComboBox, Select, TextField, type Option } from "./fields";

/** The fields of an end as they are typed. VLANs and rate are text until the order is given. */
export type EndDraft = {
  connection: string;
  tagging: "dot1q" | "qinq" | "port";
  vlan: string;
  inner: string;
  rate: string;
};

export const EMPTY_END: EndDraft = { connection: "", tagging: "dot1q", vlan: "", inner: "", rate: "" };

export type EndErrors = Partial<Record<"connection" | "vlan" | "inner" | "rate", string>>;

/** Returns the VID of a text, or null if the text leaves the choice open. */
function vid(text: string): number | null {
  return text.trim() === "" ? null : Number(text.trim());
}

/** Returns the tags for the engine. */
export function vlanOf(draft: EndDraft): Vlan {
  switch (draft.tagging) {
    case "port":
      return { type: "port" };
    case "dot1q":
      return { type: "dot1q", vlan: vid(draft.vlan) };
    case "qinq":
      return { type: "qinq", outer: vid(draft.vlan), inner: vid(draft.inner) };
  }
}

/**
 * Returns the rate in Mbit/s, null for the whole speed, or undefined if the text is no rate. "1 G" is 1000. A comma in
 * front of three digits groups them, as everywhere on the page: "1,000" is 1000. Another comma is a decimal one: "2,5
 * G" is 2500.
 */
export function parseRate(text: string): number | null | undefined {
  const trimmed = text.trim().toLowerCase().replace(/\s+/g, "");
  if (trimmed === "") return null;
  const found = /^(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+|,\d{1,2})?)(k|m|g)?(?:bit\/s|bps|b\/s)?$/.exec(trimmed);
  if (!found) return undefined;
  const digits = found[1] ?? "";
  const isGrouped = /^\d{1,3}(?:,\d{3})+(?:\.|$)/.test(digits);
  const scale = { k: 0.001, m: 1, g: 1000 }[found[2] ?? "m"] ?? 1;
  // 2.01 * 1000 is a little less than 2010 in binary.
  const rate =
    Math.round(Number(isGrouped ? digits.replaceAll(",", "") : digits.replace(",", ".")) * scale * 1e6) / 1e6;
  return Number.isInteger(rate) && rate >= 1 ? rate : undefined;
}

/** Returns an order of a checked draft. */
export function endOrder(draft: EndDraft): EndOrder {
  return { connection: draft.connection, vlan: vlanOf(draft), capacity_mbps: parseRate(draft.rate) ?? null };
}

/** Returns true if a text is a VID or leaves the choice open. */
export function isVid(text: string): boolean {
  const number = vid(text);
  return number === null || (Number.isInteger(number) && number >= 1 && number <= 4094);
}

/** The fields of one end: connection, tags with the free ones offered, rate. */
export function EndFields({
  value,
  onChange,
  errors,
  prefix,
  withRate = true,
  account,
}: {
  value: EndDraft;
  onChange: (value: EndDraft) => void;
  errors: EndErrors;
  prefix: string;
  withRate?: boolean;
  account?: string;
}) {
  const t = useText();
  const { language } = useLanguage();
  const connections = useQuery(connectionsQuery);
  const vlans = useQuery(vlansQuery(value.connection));
  const change = (next: Partial<EndDraft>) => onChange({ ...value, ...next });
  const own = useMemo(
    () => (connections.data ?? []).filter((connection) => account === undefined || connection.account.id === account),
    [connections.data, account],
  );
  const chosen = own.find((connection) => connection.id === value.connection);
  const options: Option[] = own.map((connection) => {
    const ports = connection.ports.map((port) => port.id).join(", ");
    const free = Math.max(0, connection.speed_mbps - connection.reserved_mbps) * 1e6;
    const hint = [connection.site, ports, t("end.free", { rate: formatBitRate(free, language) })].join(" · ");
    return { id: connection.id, name: connection.name, hint };
  });
  const vids = useMemo(() => vlanOptions(vlans.data, value.vlan, t), [vlans.data, value.vlan, t]);
  const taken = vlans.data?.taken.find((taken) => String(taken.outer) === value.vlan.trim());
  return (
    <>
      <Select
        label={t("end.connection")}
        id={`${prefix}-connection`}
        options={options}
        placeholder={t(
          connections.isPending ? "load.loading" : options.length === 0 ? "end.noConnection" : "end.chooseConnection",
        )}
        value={value.connection === "" ? null : value.connection}
        onChange={(key) => change({ connection: String(key ?? ""), vlan: "", inner: "" })}
        error={errors.connection}
        isDisabled={options.length === 0}
      />
      <Choices
        label={t("end.tagging")}
        value={value.tagging}
        onChange={(tagging) => change({ tagging })}
        options={[
          { id: "dot1q", name: t("end.dot1q"), hint: t("end.dot1qAbout") },
          {
            id: "port",
            name: t("end.port"),
            hint: t(vlans.data && !vlans.data.port ? "end.portTaken" : "end.portAbout"),
          },
          { id: "qinq", name: t("end.qinq"), hint: t("end.qinqAbout") },
        ]}
      />
      {value.tagging === "port" ? null : (
        <ComboBox
          id={`${prefix}-vlan`}
          label={t(value.tagging === "qinq" ? "end.outer" : "end.vlan")}
          hint={taken && value.tagging === "dot1q" ? t("end.vlanUsed", { service: taken.name }) : t("end.vlanAuto")}
          allowsCustomValue
          inputValue={value.vlan}
          onInputChange={(text) => change({ vlan: /^\d*/.exec(text.trim())?.[0] ?? "" })}
          onChange={(key) => key !== null && change({ vlan: String(key).replace("vid-", "") })}
          options={vids}
          empty={t("end.noVlan")}
          error={errors.vlan}
          isDisabled={value.connection === ""}
        />
      )}
      {value.tagging === "qinq" ? (
        <TextField
          id={`${prefix}-inner`}
          label={t("end.inner")}
          hint={t("end.vlanAuto")}
          value={value.inner}
          onChange={(inner) => change({ inner })}
          error={errors.inner}
          inputProps={{ inputMode: "numeric" }}
        />
      ) : null}
      {withRate ? (
        <TextField
          id={`${prefix}-rate`}
          label={t("end.rate")}
          hint={
            chosen
              ? t("end.rateHint", { speed: formatBitRate(chosen.speed_mbps * 1e6, language) })
              : t("end.rateHintPlain")
          }
          value={value.rate}
          onChange={(rate) => change({ rate })}
          unit="Mbit/s"
          error={errors.rate}
          inputProps={{ inputMode: "decimal" }}
        />
      ) : null}
    </>
  );
}

/** Returns free VIDs around what is typed, and the taken ones with the service that has them. */
function vlanOptions(
  vlans: { free: number[][]; taken: { outer: number | null; name: string }[] } | undefined,
  typed: string,
  t: ReturnType<typeof useText>,
): Option[] {
  if (!vlans) return [];
  const options: Option[] = [];
  const wanted = typed.trim();
  for (const [first = 1, last = 0] of vlans.free) {
    for (let number = first; number <= last && options.length < 40; number += 1) {
      if (String(number).startsWith(wanted)) options.push({ id: `vid-${number}`, name: String(number) });
    }
  }
  for (const taken of vlans.taken) {
    if (taken.outer !== null && String(taken.outer).startsWith(wanted) && wanted !== "")
      options.push({
        id: `vid-${taken.outer}`,
        name: String(taken.outer),
        hint: t("end.vlanUsed", { service: taken.name }),
        disabled: true,
      });
  }
  return options;
}

/** Returns what is wrong about a draft, by field. */
export function checkEnd(t: ReturnType<typeof useText>, draft: EndDraft): EndErrors {
  const errors: EndErrors = {};
  if (draft.connection === "") errors.connection = t("end.connectionMissing");
  if (draft.tagging !== "port" && !isVid(draft.vlan)) errors.vlan = t("end.vlanWrong");
  if (draft.tagging === "qinq" && !isVid(draft.inner)) errors.inner = t("end.vlanWrong");
  if (parseRate(draft.rate) === undefined) errors.rate = t("end.rateWrong");
  return errors;
}
