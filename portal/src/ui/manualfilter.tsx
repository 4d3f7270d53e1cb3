import { useState } from "react";

import { filterOrder } from "../api/orders";
import type { Conflict, NewFilter } from "../api/types";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import {
  checkFilter,
  EMPTY_FILTER,
  filterErrors,
  FilterFields,
  filterOf,
  type FilterDraft,
  type FilterErrors,
} from "../ui/filterform";
import { InvalidField } from "../ui/invalid";

/** Makes a filter. The key identifies the order when it is sent again. */
export type Make = (body: NewFilter, key: string) => Promise<unknown>;

/** The button for a filter that is written by hand. */
export function ManualFilter({ destination, make, label }: { destination: string; make: Make; label: string }) {
  const t = useText();
  const [draft, setDraft] = useState<FilterDraft>({ ...EMPTY_FILTER, destination });
  const [errors, setErrors] = useState<FilterErrors>({});
  /** The conflicts of an order with active filters, which a second confirmation accepts. */
  const [told, setTold] = useState<{ order: string; conflicts: Conflict[] }>();
  return (
    <ConfirmedAct
      label={label}
      title={t("filterForm.title")}
      sentence={t("filterForm.sentence")}
      onOpen={() => {
        setDraft({ ...EMPTY_FILTER, destination });
        setErrors({});
        setTold(undefined);
      }}
      act={(keyOf) => {
        const found = checkFilter(t, draft);
        setErrors(found);
        if (Object.keys(found).length > 0) return Promise.reject(new InvalidField(t("form.incomplete")));
        const body = filterOf(draft);
        const order = JSON.stringify(body);
        // What the dry run cannot say, the order says.
        const tried =
          told?.order === order ? Promise.resolve(undefined) : filterOrder.tried(body).catch(() => undefined);
        return tried
          .then((outcome) => {
            const conflicts = outcome?.conflicts ?? [];
            if (conflicts.length > 0) {
              setTold({ order, conflicts });
              throw new InvalidField(t("filterForm.conflicts"));
            }
            return make(body, keyOf(body));
          })
          .catch((error: unknown) => {
            setErrors(filterErrors(t, error));
            throw error;
          });
      }}
    >
      <FilterFields value={draft} onChange={setDraft} errors={errors} />
      {told ? (
        <ul>
          {told.conflicts.map((conflict) => (
            <li key={conflict.filter}>{t.reason(conflict.coded, conflict.text)}</li>
          ))}
        </ul>
      ) : null}
    </ConfirmedAct>
  );
}
