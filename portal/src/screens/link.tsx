import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";

import { publicOrder } from "../api/orders";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { Form, TextField } from "../ui/fields";
import { explain } from "../ui/loaded";
import { Button, Notice, Panel, ScreenHead } from "../ui/parts";
import { PublicFrame } from "../ui/publicframe";
import { plainCode } from "./signin";

const TITLES: Record<string, MessageId> = {
  invitation: "link.invitation",
  password: "link.password",
  second_factor: "link.secondFactor",
};

/** The page of a link in a letter: a new password, a new second factor, or both. */
export function UseLink() {
  const t = useText();
  // The token leaves the address, so that it is in no history and in no picture of the screen.
  const token = useRef(location.hash.slice(1));
  const read = useMutation({ mutationFn: publicOrder.readLink });
  const use = useMutation({
    mutationFn: () => publicOrder.useLink(token.current, password, plainCode(code) === "" ? null : plainCode(code)),
  });
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const [missing, setMissing] = useState<string>();
  const { mutate } = read;
  useEffect(() => {
    history.replaceState(history.state, "", "/link");
    mutate(token.current);
  }, [mutate]);
  const link = read.data;
  const isNew = link?.kind !== "second_factor";
  const submit = () => {
    const short =
      isNew && password.length < 12 ? t("password.short") : password === "" ? t("signin.passwordMissing") : undefined;
    setMissing(short);
    if (short === undefined) use.mutate();
  };
  return (
    <PublicFrame>
      <ScreenHead title={t(TITLES[link?.kind ?? ""] ?? "link.title")} below={link?.exchange} />
      <Panel>
        {read.error ? <Notice tone="bad" title={explain(t, read.error)} live /> : null}
        {use.isSuccess ? (
          <Notice tone="ok" title={t("link.done")} live>
            <Link to="/">{t("signin.title")}</Link>
          </Notice>
        ) : link ? (
          <Form onSubmit={submit} pending={use.isPending} label={t("link.title")}>
            <TextField label={t("signin.name")} value={link.name} isReadOnly autoComplete="username" />
            <TextField
              label={t(isNew ? "password.new" : "signin.password")}
              {...(isNew ? { hint: t("password.hint") } : {})}
              type="password"
              value={password}
              onChange={setPassword}
              autoComplete={isNew ? "new-password" : "current-password"}
              error={missing}
              inputProps={{ id: "link-password" }}
            />
            {link.totp ? (
              <>
                <p>{t("link.authenticator")}</p>
                <code className="secret" id="link-secret">
                  {link.totp.secret}
                </code>
                <p>
                  <a href={link.totp.uri}>{t("link.open")}</a>
                </p>
                <TextField
                  label={t("signin.code")}
                  hint={t("signin.codeHint")}
                  value={code}
                  onChange={setCode}
                  autoComplete="one-time-code"
                  inputProps={{ id: "link-code", inputMode: "numeric" }}
                />
              </>
            ) : null}
            {use.error ? <Notice tone="bad" title={explain(t, use.error)} live /> : null}
            <div>
              <Button type="submit" kind="primary" isPending={use.isPending}>
                {t("link.submit")}
              </Button>
            </div>
          </Form>
        ) : null}
      </Panel>
    </PublicFrame>
  );
}
