import { changeOrder, useOrder } from "../api/orders";
import type { Change } from "../api/types";
import { Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "./dialog";
import { Select } from "./fields";
import { TimeLeft } from "./filterform";
import { operationWord } from "./operations";
import { Notice } from "./parts";

/** The times after which an order is undone unless somebody confirms it, in seconds; 0 is an order that stays. */
const WAITS = [0, 60, 600, 3600];

/** The choice of the time within which an order must be confirmed. */
export function ConfirmWithin({ value, onChange }: { value: number; onChange: (seconds: number) => void }) {
  const t = useText();
  const options = WAITS.map((seconds) => ({
    id: String(seconds),
    name: seconds === 0 ? t("confirm.never") : t("confirm.minutes", { count: seconds / 60 }),
  }));
  return (
    <Select
      label={t("confirm.within")}
      hint={t("confirm.hint")}
      options={options}
      selectedKey={String(value)}
      onSelectionChange={(key) => onChange(Number(key))}
    />
  );
}

/** A change that is undone unless somebody confirms it: the time that is left, and both decisions. */
export function AwaitsConfirmation({ change }: { change: Change }) {
  const t = useText();
  const confirm = useOrder(changeOrder.confirm);
  const revert = useOrder(changeOrder.revert);
  const until = change.confirm_until;
  if (until === null) return null;
  const name = operationWord(t, change.operation);
  return (
    <Notice tone="wait" title={<span role="status">{t("confirm.waits", { change: name })}</span>}>
      <div className="stack tight">
        <p>
          {t("confirm.undoneAt")} <Time at={until} /> · <TimeLeft until={until} />
        </p>
        {change.can_confirm ? (
          <div className="buttons">
            <ConfirmedAct
              label={t("confirm.keep")}
              title={t("confirm.keepTitle", { change: name })}
              sentence={t("confirm.keepAbout")}
              kind="primary"
              act={() => confirm.mutateAsync([change.id])}
            />
            <ConfirmedAct
              label={t("confirm.undo")}
              title={t("confirm.undoTitle", { change: name })}
              sentence={t("confirm.undoAbout")}
              act={() => revert.mutateAsync([change.id])}
            />
          </div>
        ) : null}
      </div>
    </Notice>
  );
}
