import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { keyOrder, useOrder } from "../api/orders";
import { RequestError } from "../api/problem";
import { apiKeys as apiKeysQuery, serviceKeys as serviceKeysQuery } from "../api/queries";
import { useMe } from "../app/shell";
import { Age, Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { Choices, Form, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { explain, Loaded } from "../ui/loaded";
import { Button, Empty, Notice, Panel, ScreenHead } from "../ui/parts";
import { Table } from "../ui/table";
import { Contacts } from "./contacts";
import { People } from "./people";
import { Webhooks } from "./webhooks";

/** Keys and the password of the user. */
export function Keys() {
  const t = useText();
  const me = useMe();
  return (
    <>
      <ScreenHead title={t("nav.keys")} below={t("keys.about")} />
      <div className="two">
        <div className="stack">
          {me.can.includes("read_users") ? <People /> : null}
          {me.can.includes("read_contact") ? <Contacts /> : null}
          <ApiKeys />
          {me.can.includes("read_webhook") ? <Webhooks /> : null}
          {me.can.includes("create_service_key") ? <ServiceKeys /> : null}
        </div>
        <Password />
      </div>
    </>
  );
}

/** The API keys of the user. A new one is shown once. */
function ApiKeys() {
  const t = useText();
  const query = useQuery(apiKeysQuery);
  const [name, setName] = useState("");
  const [scope, setScope] = useState<"read" | "write">("read");
  const [secret, setSecret] = useState<string>();
  const create = useOrder(keyOrder.create);
  const remove = useOrder(keyOrder.remove);
  return (
    <Panel
      title={t("keys.api")}
      actions={
        <ConfirmedAct
          label={t("keys.create")}
          title={t("keys.create")}
          sentence={t("keys.createAbout")}
          kind="primary"
          onOpen={() => setName("")}
          act={() =>
            name.trim() === ""
              ? Promise.reject(new InvalidField(t("keys.nameMissing")))
              : create.mutateAsync([name.trim(), scope]).then((made) => setSecret(made.secret))
          }
        >
          <TextField label={t("keys.name")} hint={t("keys.nameHint")} value={name} onChange={setName} />
          <Choices
            label={t("keys.scope")}
            value={scope}
            onChange={setScope}
            options={[
              { id: "read", name: t("keys.read"), hint: t("keys.readAbout") },
              { id: "write", name: t("keys.write"), hint: t("keys.writeAbout") },
            ]}
          />
        </ConfirmedAct>
      }
    >
      <div className="stack">
        {secret ? (
          <Notice tone="ok" title={t("keys.made")} live>
            <p>{t("keys.once")}</p>
            <code className="secret">{secret}</code>
          </Notice>
        ) : null}
        <Loaded
          query={query}
          lines={3}
          empty={{
            when: (list) => list.length === 0,
            show: <Empty title={t("keys.none")}>{t("keys.noneAbout")}</Empty>,
          }}
        >
          {(list) => (
            <div className="table-wrap">
              <Table
                rows={list}
                keyOf={(key) => key.id}
                columns={[
                  { title: t("keys.name"), cell: (key) => key.name },
                  { title: t("keys.scope"), cell: (key) => t(key.scope === "read" ? "keys.read" : "keys.write") },
                  { title: t("keys.created"), cell: (key) => <Time at={key.created} /> },
                  {
                    title: t("keys.lastUsed"),
                    cell: (key) => (key.last_used ? <Age at={key.last_used} /> : t("keys.never")),
                  },
                  {
                    title: t("fabric.acts"),
                    isActs: true,
                    cell: (key) => (
                      <ConfirmedAct
                        label={t("service.delete")}
                        title={t("keys.deleteTitle", { name: key.name })}
                        sentence={t("keys.deleteAbout")}
                        kind="danger"
                        act={() => remove.mutateAsync([key.id])}
                      />
                    ),
                  },
                ]}
              />
            </div>
          )}
        </Loaded>
      </div>
    </Panel>
  );
}

/** The service keys of the account, without their secrets. */
function ServiceKeys() {
  const t = useText();
  const query = useQuery(serviceKeysQuery);
  const revoke = useOrder(keyOrder.revoke);
  return (
    <Panel title={t("keys.service")}>
      <Loaded
        query={query}
        lines={3}
        empty={{
          when: (list) => list.length === 0,
          show: <Empty title={t("keys.noService")}>{t("keys.noServiceAbout")}</Empty>,
        }}
      >
        {(list) => (
          <ul className="lines">
            {list.map((key) => (
              <li key={key.id} className="row spread mac">
                <span>
                  <Link to="/services/$id" params={{ id: key.service }}>
                    {key.name}
                  </Link>{" "}
                  <span className="quiet">
                    {key.redeemed_by ? (
                      t("keys.usedBy", { account: key.redeemed_by.name })
                    ) : (
                      <>
                        {t("task.until")} <Time at={key.valid_until} />
                      </>
                    )}
                  </span>
                </span>
                {key.can.includes("revoke_service_key") && !key.redeemed_by ? (
                  <ConfirmedAct
                    label={t("keys.revoke")}
                    title={t("keys.revokeTitle", { service: key.name })}
                    sentence={t("keys.revokeAbout")}
                    kind="danger"
                    act={() => revoke.mutateAsync([key.id])}
                  />
                ) : null}
              </li>
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  );
}

function Password() {
  const t = useText();
  const me = useMe();
  const [present, setPresent] = useState("");
  const [next, setNext] = useState("");
  const change = useOrder(keyOrder.password);
  const [missing, setMissing] = useState<{ present?: string; next?: string }>({});
  const error = change.error instanceof RequestError ? change.error : undefined;
  const wrong = error?.at("/new");
  const submit = () => {
    const absent = {
      ...(present === "" ? { present: t("signin.passwordMissing") } : {}),
      ...(next.length < 12 ? { next: t("password.short") } : {}),
    };
    setMissing(absent);
    if (Object.keys(absent).length === 0) change.mutate([present, next]);
  };
  return (
    <Panel title={t("password.title")}>
      <Form onSubmit={submit} pending={change.isPending} label={t("password.title")}>
        {change.isSuccess ? <Notice tone="ok" title={t("password.done")} live /> : null}
        {error && !error.problem?.errors?.length ? <Notice tone="bad" title={explain(t, error)} live /> : null}
        <input type="text" autoComplete="username" value={me.name} readOnly hidden />
        <TextField
          label={t("password.present")}
          type="password"
          value={present}
          onChange={setPresent}
          autoComplete="current-password"
          error={missing.present ?? (error?.at("/present") ? t("problem.credentials") : undefined)}
        />
        <TextField
          label={t("password.new")}
          hint={t("password.hint")}
          type="password"
          value={next}
          onChange={setNext}
          autoComplete="new-password"
          error={missing.next ?? (wrong ? t.reason(wrong.coded, wrong.detail) : undefined)}
        />
        <div>
          <Button type="submit" isPending={change.isPending}>
            {t("password.change")}
          </Button>
        </div>
      </Form>
    </Panel>
  );
}
