import { useState } from "react";

import { lanOrder, useOrder } from "../api/orders";
import type { Checklist, End } from "../api/types";
import { Age, useClock } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Notice, State, type Tone } from "../ui/parts";

const CHECKS: Record<string, { name: MessageId; fix: MessageId }> = {
  mac: { name: "check.mac", fix: "check.macFix" },
  tag: { name: "check.tag", fix: "check.tagFix" },
  ethertype: { name: "check.ethertype", fix: "check.ethertypeFix" },
  stp: { name: "check.stp", fix: "check.stpFix" },
  lacp: { name: "check.lacp", fix: "check.lacpFix" },
  lldp: { name: "check.lldp", fix: "check.lldpFix" },
  cdp: { name: "check.cdp", fix: "check.cdpFix" },
  dhcp: { name: "check.dhcp", fix: "check.dhcpFix" },
  ra: { name: "check.ra", fix: "check.raFix" },
  redirect: { name: "check.redirect", fix: "check.redirectFix" },
  arp: { name: "check.arp", fix: "check.arpFix" },
  nd: { name: "check.nd", fix: "check.ndFix" },
  proxy_arp: { name: "check.proxyArp", fix: "check.proxyArpFix" },
  multicast: { name: "check.multicast", fix: "check.multicastFix" },
};

const CHECK_STATES: Record<string, { tone: Tone; word: MessageId }> = {
  clean: { tone: "ok", word: "check.clean" },
  failing: { tone: "bad", word: "check.failing" },
  fixed: { tone: "wait", word: "check.fixed" },
  unchecked: { tone: "off", word: "check.unchecked" },
};

/** Returns a frame as rows of sixteen bytes. */
function hexRows(frame: string): string {
  const bytes = frame.match(/../g) ?? [];
  const rows: string[] = [];
  for (let at = 0; at < bytes.length; at += 16)
    rows.push(`${at.toString(16).padStart(4, "0")}  ${bytes.slice(at, at + 16).join(" ")}`);
  return rows.join("\n");
}

export function order(state: string): number {
  return state === "failing" ? 0 : state === "fixed" ? 1 : 2;
}

/** The checks of the quarantine, the time that is left, and the offending frames. */
export function QuarantineChecklist({ list }: { list: Checklist }) {
  const t = useText();
  const now = useClock(1_000);
  const left = Math.max(0, Math.round((new Date(list.ends).getTime() - now.getTime()) / 1000));
  const failing = list.checks.filter((check) => check.state === "failing");
  return (
    <div className="stack">
      <Notice
        tone={failing.length > 0 ? "bad" : "wait"}
        title={
          failing.length > 0
            ? t("quarantine.failing", { count: failing.length })
            : t("quarantine.running", { left: `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` })
        }
      >
        <p>{t(list.seen ? "quarantine.about" : "quarantine.unseen", { minutes: Math.round(list.seconds / 60) })}</p>
        <meter
          min={0}
          max={list.seconds}
          value={list.seconds - Math.min(left, list.seconds)}
          aria-label={t("quarantine.progress")}
        />
      </Notice>
      <ul className="checks" aria-label={t("quarantine.checks")}>
        {[...list.checks]
          .sort((a, b) => order(a.state) - order(b.state))
          .map((check) => {
            const known = CHECKS[check.check];
            const state = CHECK_STATES[check.state];
            return (
              <li key={check.check}>
                <State tone={state?.tone ?? "off"}>{t(state?.word ?? "state.unknown")}</State>
                <span>{known ? t(known.name) : check.check}</span>
                {check.state === "failing" && known ? <span className="check-fix">{t(known.fix)}</span> : null}
              </li>
            );
          })}
      </ul>
      {list.findings.length > 0 ? (
        <section className="stack tight">
          <h3>{t("quarantine.frames")}</h3>
          <ul className="stack tight">
            {list.findings.map((finding, index) => (
              <li key={`${finding.at} ${index}`}>
                <details open={index === 0}>
                  <summary>
                    {t.reason(finding.coded, finding.text)} <span className="quiet">×{finding.count}</span>{" "}
                    <Age at={finding.at} />
                  </summary>
                  <pre className="frame" tabIndex={0} aria-label={t("quarantine.bytes")}>
                    {hexRows(finding.frame)}
                  </pre>
                </details>
              </li>
            ))}
          </ul>
        </section>
      ) : null}
    </div>
  );
}

export function Waive({ end: live }: { end: End }) {
  const t = useText();
  const [end, hold] = useAsOpened(live);
  const [reason, setReason] = useState("");
  const waive = useOrder(lanOrder.waive);
  if (!end.can.includes("waive_quarantine") || end.quarantine !== "running") return null;
  return (
    <ConfirmedAct
      label={t("quarantine.waive")}
      title={t("quarantine.waive")}
      sentence={t("quarantine.waiveAbout", { account: end.account.name })}
      kind="danger"
      hold={hold}
      act={() =>
        reason.trim() === ""
          ? Promise.reject(new InvalidField(t("quarantine.reasonMissing")))
          : waive.mutateAsync([end.id, end.revision, reason.trim()])
      }
    >
      <TextField label={t("service.reason")} value={reason} onChange={setReason} />
    </ConfirmedAct>
  );
}
