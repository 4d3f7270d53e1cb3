import { useState } from "react";

import { lanOrder, useOrder } from "../api/orders";
import type { Service } from "../api/types";
import { useMe } from "../app/shell";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "./dialog";
import { checkEnd, EMPTY_END, EndFields, endOrder, type EndDraft, type EndErrors } from "./endfields";
import { InvalidField } from "./invalid";

type Words = { label: string; title: string; sentence: string };

/** The act by which an account configures an end of its own: it joins a LAN, or returns to a path that it has left. */
export function Join({ service, kind, words }: { service: Service; kind: "primary" | "plain"; words: Words }) {
  const t = useText();
  const me = useMe();
  const [end, setEnd] = useState<EndDraft>(EMPTY_END);
  const [errors, setErrors] = useState<EndErrors>({});
  const join = useOrder(lanOrder.join);
  return (
    <ConfirmedAct
      {...words}
      kind={kind}
      onOpen={() => {
        setEnd(EMPTY_END);
        setErrors({});
      }}
      act={(keyOf) => {
        const found = checkEnd(t, end);
        setErrors(found);
        if (Object.keys(found).length > 0) return Promise.reject(new InvalidField(t("form.incomplete")));
        return join.mutateAsync([service.id, endOrder(end), keyOf(endOrder(end))]);
      }}
    >
      <EndFields
        prefix="join"
        value={end}
        onChange={setEnd}
        errors={errors}
        account={me.operator ? undefined : me.account.id}
      />
    </ConfirmedAct>
  );
}
