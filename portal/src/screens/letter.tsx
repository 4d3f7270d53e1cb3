import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { publicOrder } from "../api/orders";
import { Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { Form, TextField } from "../ui/fields";
import { explain } from "../ui/loaded";
import { Button, Facts, Notice, Panel, ScreenHead } from "../ui/parts";
import { PublicFrame } from "../ui/publicframe";

/** The check of a letter of authorisation by its code, for data centres. */
export function VerifyLetter() {
  const t = useText();
  const [code, setCode] = useState(() => location.hash.slice(1));
  const check = useMutation({ mutationFn: publicOrder.letter });
  return (
    <PublicFrame>
      <ScreenHead title={t("letter.title")} below={t("letter.about")} />
      <Panel>
        <Form onSubmit={() => check.mutate(code)} pending={check.isPending} label={t("letter.title")}>
          <TextField
            label={t("cross.code")}
            value={code}
            onChange={setCode}
            inputProps={{ autoComplete: "off", spellCheck: false }}
          />
          {check.error ? <Notice tone="bad" title={explain(t, check.error)} live /> : null}
          <div>
            <Button type="submit" kind="primary" isPending={check.isPending}>
              {t("letter.check")}
            </Button>
          </div>
        </Form>
        {check.data ? (
          <Notice tone="ok" title={t("letter.valid", { exchange: check.data.exchange })} live>
            <Facts
              items={[
                [t("cross.numberLabel"), check.data.number],
                [t("account.member"), check.data.member],
                [t("service.site"), check.data.site],
                [t("cross.ourSide"), check.data.demarcation],
                [t("cross.validUntil"), <Time key="until" at={check.data.valid_until} dateOnly />],
              ]}
            />
          </Notice>
        ) : null}
      </Panel>
    </PublicFrame>
  );
}
