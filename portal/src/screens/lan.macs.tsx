import { useState } from "react";

import { lanOrder, useOrder } from "../api/orders";
import { RequestError } from "../api/problem";
import type { End } from "../api/types";
import { Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Select, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";

const HOURS = ["1", "6", "24"];

/**
 * The longest time in ms for which both addresses are ordered: the limit of a day, less the error of the reader's
 * clock.
 */
const SWAP_MAX = 86_400_000 - 300_000;

export function isMac(text: string): boolean {
  return /^(([0-9a-f]{2}[:-]){5}[0-9a-f]{2}|([0-9a-f]{4}[.-]){2}[0-9a-f]{4}|[0-9a-f]{12})$/i.test(text.trim());
}

function inHours(hours: number): string {
  return new Date(Date.now() + Math.min(hours * 3_600_000, SWAP_MAX)).toISOString();
}

/** The registered MAC addresses of an end. */
export function Macs({ end, max }: { end: End; max?: number | undefined }) {
  const t = useText();
  const [address, setAddress] = useState("");
  const add = useOrder(lanOrder.addMac);
  const remove = useOrder(lanOrder.removeMac);
  return (
    <section className="stack tight">
      <h3>{t("mac.title")}</h3>
      {end.macs.length === 0 ? <p className="quiet">{t("mac.none")}</p> : null}
      <ul className="lines">
        {end.macs.map((mac) => (
          <li key={mac.id} className="row spread mac">
            <span>
              <code>{mac.address}</code>{" "}
              {mac.valid_until ? (
                <span className="quiet">
                  {t("task.until")} <Time at={mac.valid_until} />
                </span>
              ) : null}
            </span>
            {end.can.includes("remove_mac") ? (
              <ConfirmedAct
                label={t("mac.remove")}
                title={t("mac.removeTitle", { address: mac.address })}
                sentence={t("mac.removeAbout")}
                kind="danger"
                act={() => remove.mutateAsync([mac.id])}
              />
            ) : null}
          </li>
        ))}
      </ul>
      {max === undefined ? null : <p className="hint">{t("mac.limit", { count: max })}</p>}
      <div className="buttons">
        <SwapRouter end={end} />
        {end.can.includes("add_mac") && (max === undefined || end.macs.length < max) ? (
          <ConfirmedAct
            label={t("mac.add")}
            title={t("mac.add")}
            sentence={t("mac.addAbout")}
            onOpen={() => setAddress("")}
            act={(keyOf) =>
              isMac(address)
                ? add.mutateAsync([end.id, address.trim(), keyOf(address.trim())])
                : Promise.reject(new InvalidField(t("mac.wrong")))
            }
          >
            <TextField
              label={t("mac.new")}
              hint={t("mac.hint")}
              value={address}
              onChange={setAddress}
              inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "02:00:5e:00:53:01" }}
            />
          </ConfirmedAct>
        ) : null}
      </div>
    </section>
  );
}

/** The wizard for a new router: the new address is added, the old one ends by itself. */
function SwapRouter({ end: live }: { end: End }) {
  const t = useText();
  const [end, hold] = useAsOpened(live);
  const [address, setAddress] = useState("");
  const [hours, setHours] = useState("24");
  const swap = useOrder(
    async (old: { id: string; valid_until: string | null }, address: string, until: string, key: string) => {
      // The policy permits one address more than its limit while the validity of one of them ends within a day.
      await lanOrder.endMac(old.id, until);
      try {
        return await lanOrder.addMac(end.id, address, key);
      } catch (error) {
        // Without an answer the new address may be registered: the same order again finds out.
        const isRefused = error instanceof RequestError && !error.isTransient;
        if (isRefused) await lanOrder.endMac(old.id, old.valid_until).catch(() => {});
        throw error;
      }
    },
  );
  const old = end.macs[end.macs.length - 1];
  if (!old || !end.can.includes("add_mac")) return null;
  return (
    <ConfirmedAct
      label={t("mac.swap")}
      title={t("mac.swap")}
      sentence={t("mac.swapAbout", { address: old.address })}
      kind="primary"
      hold={hold}
      onOpen={() => setAddress("")}
      act={(keyOf) =>
        isMac(address)
          ? swap.mutateAsync([old, address.trim(), inHours(Number(hours)), keyOf(address.trim())])
          : Promise.reject(new InvalidField(t("mac.wrong")))
      }
    >
      <TextField
        id="mac-new"
        label={t("mac.new")}
        hint={t("mac.hint")}
        value={address}
        onChange={setAddress}
        inputProps={{ spellCheck: false, autoCapitalize: "none", placeholder: "02:00:5e:00:53:01" }}
      />
      <Select
        label={t("mac.oldEnds")}
        options={HOURS.map((id) => ({ id, name: t("filterForm.hours", { count: Number(id) }) }))}
        value={hours}
        onChange={(key) => setHours(String(key))}
      />
      <p className="hint">{t("mac.told")}</p>
    </ConfirmedAct>
  );
}
