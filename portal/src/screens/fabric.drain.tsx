import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { order, useOrder } from "../api/orders";
import { impact as impactQuery } from "../api/queries";
import type { Impact, Trunk } from "../api/types";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { ConfirmWithin } from "../ui/confirmation";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Loaded } from "../ui/loaded";
import { Notice } from "../ui/parts";
import { DryRun, type Tried } from "../ui/planned";

/** The drain of a trunk, confirmed when its effect is known. */
export function DrainTrunk({ trunk: live }: { trunk: Trunk }) {
  const t = useText();
  const [trunk, hold] = useAsOpened(live);
  const drain = useOrder(order.drain);
  const [preview, setPreview] = useState<Tried>();
  const [open, setOpen] = useState(false);
  const [within, setWithin] = useState(0);
  const opened = useRef(0);
  const impact = useQuery(impactQuery(trunk.id, open && !trunk.drained));
  if (!trunk.can.includes("drain_trunk")) return null;
  return (
    <ConfirmedAct
      label={t(trunk.drained ? "fabric.undrain" : "fabric.drain")}
      title={t(trunk.drained ? "fabric.undrainTitle" : "fabric.drainTitle", { trunk: trunk.name })}
      sentence={t(trunk.drained ? "fabric.undrainAbout" : "fabric.drainAbout", {
        count: impact.data?.services.length ?? trunk.services,
      })}
      hold={hold}
      onOpen={() => {
        setOpen(true);
        void impact.refetch();
        setPreview(undefined);
        const of = opened.current + 1;
        opened.current = of;
        const tried = (next: Tried) => (opened.current === of ? setPreview(next) : undefined);
        order.drain(trunk.id, trunk.revision, !trunk.drained, 0, true).then(
          (outcome) => tried({ outcome }),
          (error: unknown) => tried({ error }),
        );
      }}
      isUnready={!trunk.drained && (impact.isPending || impact.isFetching)}
      act={() => drain.mutateAsync([trunk.id, trunk.revision, !trunk.drained, within])}
    >
      {trunk.drained ? null : (
        <Loaded query={impact} lines={2}>
          {(impact) => <ImpactOf impact={impact} />}
        </Loaded>
      )}
      {preview ? <DryRun tried={preview} /> : null}
      <ConfirmWithin value={within} onChange={setWithin} />
    </ConfirmedAct>
  );
}

/** What a drain does: the services that move, the load of the other trunk after it, the members to be told. */
function ImpactOf({ impact }: { impact: Impact }) {
  const t = useText();
  const { language } = useLanguage();
  const over = impact.contracted_mbps > impact.capacity_mbps;
  return (
    <div className="stack tight">
      {impact.services.length === 0 ? null : impact.carrier === null ? (
        <Notice tone="bad" title={t("impact.noTrunk")} />
      ) : (
        <Notice
          tone={over ? "wait" : "off"}
          title={t("impact.after", {
            trunk: impact.carrier,
            load: formatBitRate(impact.contracted_mbps * 1e6, language),
            capacity: formatBitRate(impact.capacity_mbps * 1e6, language),
          })}
        />
      )}
      {impact.services.length === 0 ? null : (
        <details>
          <summary>{t("impact.services", { count: impact.services.length })}</summary>
          <ul className="plain-list">
            {impact.services.map((service) => (
              <li key={service.id}>
                {service.name}{" "}
                <span className="quiet">
                  {service.id} · {service.account.name}
                </span>
              </li>
            ))}
          </ul>
        </details>
      )}
      {impact.members.length === 0 ? null : (
        <p>{t("impact.members", { names: impact.members.map((member) => member.name).join(", ") })}</p>
      )}
    </div>
  );
}
