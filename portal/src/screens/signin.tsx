import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { client, result } from "../api/client";
import { publicOrder } from "../api/orders";
import { RequestError } from "../api/problem";
import { provider } from "../api/queries";
import { Preferences } from "../app/preferences";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { Form, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { explain } from "../ui/loaded";
import { Button, Notice, Skeleton } from "../ui/parts";

/** The path to which the provider returns. */
export const CALLBACK = "/sign-in/callback";
/** The storage key of the address that was open when the sign-in by the provider began. */
const RETURN_TO = "millrace.return-to";

/**
 * Returns an address of this page, or that of its first screen. A link to `https://ix.example//other.example/` has the
 * path `//other.example/`, which a browser would take for another host.
 */
export function ownAddress(text: string | null): string {
  const there = URL.canParse(text ?? "", location.origin) ? new URL(text ?? "", location.origin) : undefined;
  return there && there.origin === location.origin
    ? `${location.origin}${there.pathname.replace(/^\/+/, "/")}${there.search}${there.hash}`
    : "/";
}

/** The button with which one signs in by the exchange's provider, if it has one. */
function ByProvider() {
  const t = useText();
  const name = useQuery(provider).data?.name;
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>();
  if (!name) return null;
  const begin = () => {
    setPending(true);
    setError(undefined);
    result(client.POST("/api/v1/oidc")).then(
      ({ location: there }) => {
        sessionStorage.setItem(RETURN_TO, location.pathname === CALLBACK ? "/" : location.pathname + location.search);
        location.assign(there);
      },
      (reason: unknown) => {
        setPending(false);
        setError(reason);
      },
    );
  };
  return (
    <div className="stack tight">
      {error === undefined ? null : <Notice tone="bad" title={explain(t, error)} live />}
      <Button onPress={begin} isPending={pending}>
        {t("signin.byProvider", { name })}
      </Button>
    </div>
  );
}

/** Ends a sign-in by the provider, which has returned to this address, and leads to where it began. */
export function SignInReturn() {
  const t = useText();
  const queries = useQueryClient();
  const [error, setError] = useState<unknown>();
  const began = useRef(false);
  useEffect(() => {
    // A code is valid once, also where effects run twice.
    if (began.current) return;
    began.current = true;
    const answer = new URLSearchParams(location.search);
    const names = ["code", "state", "iss", "error", "error_description"] as const;
    const body = Object.fromEntries(names.map((name) => [name, answer.get(name)]));
    // The code leaves the address, and with it the history.
    history.replaceState(null, "", CALLBACK);
    result(client.POST("/api/v1/oidc/callback", { body })).then(
      () => {
        const there = sessionStorage.getItem(RETURN_TO);
        sessionStorage.removeItem(RETURN_TO);
        queries.clear();
        location.replace(ownAddress(there));
      },
      (reason: unknown) => setError(reason),
    );
  }, [queries]);
  if (error === undefined) {
    return (
      <div className="signin">
        <main aria-busy="true" aria-label={t("signin.returning")}>
          <Skeleton lines={4} />
        </main>
      </div>
    );
  }
  return <SignIn problem={error} />;
}

/** Returns a one-time code without the spaces with which authenticators show it. */
export function plainCode(text: string): string {
  return text.replace(/\s/g, "");
}

/** The form with which one signs in: name and password, then the one-time code if the account needs one. */
export function SignInForm({ onDone, name: known }: { onDone: () => void; name?: string }) {
  const t = useText();
  const [name, setName] = useState(known ?? "");
  const [password, setPassword] = useState("");
  const [code, setCode] = useState("");
  const [needsCode, setNeedsCode] = useState(false);
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>();
  const [missing, setMissing] = useState<{ name?: string; password?: string; code?: string }>({});
  const codeField = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (needsCode) codeField.current?.focus();
  }, [needsCode]);

  const submit = () => {
    const absent = {
      ...(name.trim() === "" ? { name: t("signin.nameMissing") } : {}),
      ...(password === "" ? { password: t("signin.passwordMissing") } : {}),
      ...(needsCode && !/^\d{6}$/.test(plainCode(code)) ? { code: t("signin.codeMissing") } : {}),
    };
    setMissing(absent);
    setError(undefined);
    const first = Object.keys(absent)[0];
    if (first) {
      document.getElementById(`signin-${first}`)?.focus();
      return;
    }
    setPending(true);
    const body = { name: name.trim(), password, ...(needsCode ? { code: plainCode(code) } : {}) };
    result(client.POST("/api/v1/session", { body })).then(
      () => {
        setPending(false);
        onDone();
      },
      (reason: unknown) => {
        setPending(false);
        setCode("");
        if (reason instanceof RequestError && reason.problem?.type.endsWith("/code-required")) {
          setNeedsCode(true);
        } else {
          setError(reason);
        }
      },
    );
  };

  return (
    <Form onSubmit={submit} pending={pending} label={t("signin.title")}>
      {error === undefined ? null : <Notice tone="bad" title={explain(t, error)} live />}
      <TextField
        label={t("signin.name")}
        value={name}
        onChange={setName}
        autoComplete="username"
        error={missing.name}
        isReadOnly={known !== undefined}
        inputProps={{ id: "signin-name", autoCapitalize: "none", spellCheck: false }}
      />
      <TextField
        label={t("signin.password")}
        type="password"
        value={password}
        onChange={setPassword}
        autoComplete="current-password"
        error={missing.password}
        inputProps={{ id: "signin-password" }}
      />
      {needsCode ? (
        <TextField
          label={t("signin.code")}
          hint={t("signin.codeHint")}
          value={code}
          onChange={(value) => setCode(value.replace(/\D/g, "").slice(0, 6))}
          autoComplete="one-time-code"
          error={missing.code}
          inputProps={{ id: "signin-code", inputMode: "numeric", ref: codeField }}
        />
      ) : null}
      <Button type="submit" kind="primary" isPending={pending}>
        {t("signin.submit")}
      </Button>
      <ByProvider />
    </Form>
  );
}

/** The act of a person who has lost the password: a letter with a link. The answer is the same for every name. */
function Forgotten() {
  const t = useText();
  const [name, setName] = useState("");
  const [asked, setAsked] = useState(false);
  if (asked) return <Notice tone="ok" title={t("signin.asked")} live />;
  return (
    <ConfirmedAct
      label={t("signin.forgotten")}
      title={t("signin.forgotten")}
      sentence={t("signin.forgottenAbout")}
      act={() =>
        name.trim() === ""
          ? Promise.reject(new InvalidField(t("signin.nameMissing")))
          : publicOrder.forgotten(name.trim()).then(() => setAsked(true))
      }
    >
      <TextField
        label={t("signin.name")}
        value={name}
        onChange={setName}
        inputProps={{ autoCapitalize: "none", spellCheck: false }}
      />
    </ConfirmedAct>
  );
}

/**
 * The whole screen that is shown without a session. The address stays, so that it leads to the same screen after.
 * `problem` is the reason for which a sign-in by the provider failed.
 */
export function SignIn({ problem }: { problem?: unknown }) {
  const t = useText();
  const queries = useQueryClient();
  const about = useQuery(provider).data;
  const exchange = about?.exchange;
  const title = exchange ? t("signin.at", { exchange }) : t("signin.title");
  useEffect(() => {
    document.title = `${title} · ${t("app.name")}`;
  }, [title, t]);
  return (
    <div className="signin">
      <main>
        <div className="signin-head">
          <img src="/mark.svg" alt="" />
          <h1>{title}</h1>
          <p className="quiet">{t("signin.about")}</p>
        </div>
        {problem === undefined ? null : <Notice tone="bad" title={explain(t, problem)} live />}
        <SignInForm
          onDone={() => (location.pathname === CALLBACK ? location.replace("/") : void queries.resetQueries())}
        />
        {about?.mail ? <Forgotten /> : null}
        <nav className="row" aria-label={t("nav.public")}>
          <a href="/status">{t("nav.status")}</a>
          <a href="/looking-glass">{t("nav.lookingGlass")}</a>
        </nav>
      </main>
      <footer>
        <span>{exchange ? `${exchange} · ${t("app.name")}` : t("app.name")}</span>
        <Preferences />
      </footer>
    </div>
  );
}
