import { useState } from "react";

import { order, useOrder } from "../api/orders";
import type { Service as ServiceView } from "../api/types";
import { useMe } from "../app/shell";
import { Rate } from "../i18n/format";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { checkEnd, EMPTY_END, EndFields, endOrder, type EndDraft, type EndErrors } from "../ui/endfields";
import { TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Facts, Notice } from "../ui/parts";

/** The invitation to this account, with its two answers. */
export function Invitation({ service: live }: { service: ServiceView }) {
  const t = useText();
  const [service, hold] = useAsOpened(live);
  const me = useMe();
  const [end, setEnd] = useState<EndDraft>(EMPTY_END);
  const [errors, setErrors] = useState<EndErrors>({});
  const [reason, setReason] = useState("");
  const ordered = service.ends[0]?.capacity_mbps ?? null;
  const accept = useOrder(order.accept);
  const refuse = useOrder(order.refuse);
  return (
    <Notice tone="wait" title={t("service.invited", { account: service.account.name })}>
      <div className="stack tight">
        <p>{t("service.invitedAbout")}</p>
        {service.ends.length > 0 ? (
          <Facts
            items={[[t("service.orderedRate"), <Rate key="rate" bits={ordered === null ? null : ordered * 1e6} />]]}
          />
        ) : null}
        <div className="buttons">
          <ConfirmedAct
            label={t("service.accept")}
            title={t("service.acceptTitle", { service: service.name })}
            sentence={t("service.acceptAbout")}
            kind="primary"
            hold={hold}
            onOpen={() => {
              setEnd({ ...EMPTY_END, rate: ordered === null ? "" : String(ordered) });
              setErrors({});
            }}
            act={() => {
              const found = checkEnd(t, end);
              setErrors(found);
              if (Object.keys(found).length > 0) return Promise.reject(new InvalidField(t("form.incomplete")));
              return accept.mutateAsync([service.id, service.revision, endOrder(end)]);
            }}
          >
            <EndFields
              prefix="accept"
              value={end}
              onChange={setEnd}
              errors={errors}
              account={me.operator ? service.peer?.id : me.account.id}
            />
          </ConfirmedAct>
          <ConfirmedAct
            label={t("service.refuse")}
            title={t("service.refuseTitle", { service: service.name })}
            sentence={t("service.refuseAbout", { account: service.account.name })}
            kind="danger"
            hold={hold}
            act={() =>
              reason.trim() === ""
                ? Promise.reject(new InvalidField(t("service.reasonMissing")))
                : refuse.mutateAsync([service.id, service.revision, reason.trim()])
            }
          >
            <TextField label={t("service.reason")} value={reason} onChange={setReason} />
          </ConfirmedAct>
        </div>
      </div>
    </Notice>
  );
}
