import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { staffOrder, useOrder } from "../api/orders";
import { accounts as accountsQuery, users as usersQuery } from "../api/queries";
import type { Account } from "../api/types";
import { matches } from "../app/finder";
import { useMe } from "../app/shell";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { useAnchor } from "../ui/anchor";
import { ConfirmedAct } from "../ui/dialog";
import { Choices, Select, TextField } from "../ui/fields";
import { Ident } from "../ui/ident";
import { InvalidField } from "../ui/invalid";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead, State } from "../ui/parts";
import { AddPerson, PersonActs } from "../ui/persons";
import { Table } from "../ui/table";
import { roleWord } from "../ui/words";
import { Contacts } from "./contacts";

const KINDS: Record<string, MessageId> = {
  exchange: "account.exchange",
  reseller: "account.reseller",
  member: "account.member",
  authority: "account.authority",
};

function words(account: Account): string {
  return [account.id, account.name, ...account.asns.map((asn) => `AS${asn}`)].join(" ");
}

/**
 * Returns the AS numbers of a text, or undefined if the text has something else: "AS64500, 64501" is [64500, 64501].
 */
export function parseAsns(text: string): number[] | undefined {
  const parts = text.split(/[\s,;]+/).filter((part) => part !== "");
  const asns = parts.map((part) => Number(/^(?:AS)?(\d{1,10})$/i.exec(part)?.[1] ?? Number.NaN));
  return asns.every((asn) => asn >= 1 && asn <= 4_294_967_294) ? asns : undefined;
}

/** The accounts with their connections and services, their people and contacts. */
export function Members() {
  const t = useText();
  const me = useMe();
  const [text, setText] = useState("");
  const accounts = useQuery(accountsQuery);
  const users = useQuery({ ...usersQuery, enabled: me.can.includes("read_users") });
  useAnchor(accounts.data !== undefined);
  const found = useMemo(
    () => (accounts.data ?? []).filter((account) => matches(words(account), text)),
    [accounts.data, text],
  );
  return (
    <>
      <ScreenHead
        title={t("nav.members")}
        actions={me.operator && me.can.includes("create_account") ? <AddMember /> : null}
      />
      <div className="stack">
        <div className="toolbar" role="search" aria-label={t("members.filter")}>
          <TextField label={t("members.filter")} value={text} onChange={setText} type="search" />
        </div>
        <Panel title={t("members.accounts")} flush>
          <Loaded
            fills="table"
            query={accounts}
            lines={6}
            empty={{
              when: () => found.length === 0,
              show: (
                <Empty title={t(text === "" ? "members.none" : "services.noMatch")}>
                  {t(text === "" ? "members.noneAbout" : "services.noMatchAbout")}
                </Empty>
              ),
            }}
          >
            {() => (
              <Table
                rows={found}
                keyOf={(account) => account.id}
                anchor={(account) => account.id}
                columns={[
                  {
                    title: t("members.name"),
                    cell: (account) => (
                      <>
                        {account.name} <Ident id={account.id} />
                      </>
                    ),
                  },
                  { title: t("members.kind"), cell: (account) => t(KINDS[account.kind] ?? "account.member") },
                  { title: t("members.asns"), cell: (account) => account.asns.map((asn) => `AS${asn}`).join(", ") },
                  { title: t("nav.connections"), isNumber: true, cell: (account) => account.connections },
                  {
                    title: t("nav.services"),
                    isNumber: true,
                    cell: (account) =>
                      account.services > 0 ? (
                        <Link to="/services" search={{ q: account.name, state: "" }}>
                          {account.services}
                        </Link>
                      ) : (
                        0
                      ),
                  },
                  { title: t("members.parent"), cell: (account) => account.parent?.name },
                  { title: t("service.acts"), isActs: true, cell: (account) => <AccountActs account={account} /> },
                ]}
              />
            )}
          </Loaded>
        </Panel>
        {me.can.includes("read_users") ? (
          <Panel title={t("members.people")} flush>
            <Loaded
              fills="table"
              query={users}
              empty={{
                when: (list) => list.length === 0,
                show: <Empty title={t("members.noPeople")}>{t("members.noPeopleAbout")}</Empty>,
              }}
            >
              {(list) => (
                <Table
                  rows={list}
                  keyOf={(user) => user.id}
                  columns={[
                    {
                      title: t("signin.name"),
                      cell: (user) => (
                        <>
                          {user.name} <Ident id={user.id} />
                          {user.deactivated ? <State tone="off">{t("people.deactivated")}</State> : null}
                        </>
                      ),
                    },
                    { title: t("connection.account"), cell: (user) => user.account.name },
                    {
                      title: t("members.roles"),
                      cell: (user) => user.roles.map((role) => roleWord(t, role)).join(", "),
                    },
                    { title: t("members.mail"), cell: (user) => user.email },
                    { title: t("service.acts"), isActs: true, cell: (user) => <PersonActs user={user} /> },
                  ]}
                />
              )}
            </Loaded>
          </Panel>
        ) : null}
        {me.can.includes("read_contact") ? <Contacts /> : null}
      </div>
    </>
  );
}

/** The act by which the staff adds a member. */
function AddMember() {
  const t = useText();
  const [name, setName] = useState("");
  const [asns, setAsns] = useState("");
  const [kind, setKind] = useState("member");
  const [found, setFound] = useState<"yes" | "no">("yes");
  const add = useOrder(staffOrder.account);
  return (
    <ConfirmedAct
      label={t("members.add")}
      title={t("members.add")}
      sentence={t("members.addAbout")}
      kind="primary"
      onOpen={() => {
        setName("");
        setAsns("");
      }}
      act={(keyOf) => {
        const numbers = parseAsns(asns);
        if (name.trim() === "") return Promise.reject(new InvalidField(t("members.nameMissing")));
        if (numbers === undefined) return Promise.reject(new InvalidField(t("members.asnsWrong")));
        const body = { name: name.trim(), kind, asns: numbers, discoverable: found === "yes" };
        return add.mutateAsync([body, keyOf(body)]);
      }}
    >
      <TextField label={t("members.name")} value={name} onChange={setName} />
      <TextField label={t("members.asns")} hint={t("members.asnsHint")} value={asns} onChange={setAsns} />
      <Select
        label={t("members.kind")}
        selectedKey={kind}
        onSelectionChange={(key) => setKind(String(key))}
        options={["member", "reseller", "authority"].map((id) => ({ id, name: t(KINDS[id] ?? "account.member") }))}
      />
      <Choices
        label={t("members.found")}
        value={found}
        onChange={setFound}
        options={[
          { id: "yes", name: t("members.foundYes") },
          { id: "no", name: t("members.foundNo") },
        ]}
      />
    </ConfirmedAct>
  );
}

function AccountActs({ account }: { account: Account }) {
  const t = useText();
  const me = useMe();
  const remove = useOrder(staffOrder.removeAccount);
  return (
    <div className="buttons">
      {me.can.includes("create_user") ? <AddPerson account={account} kind={account.kind} /> : null}
      {account.can.includes("delete_account") &&
      account.connections === 0 &&
      account.services === 0 &&
      account.kind !== "exchange" ? (
        <ConfirmedAct
          label={t("people.remove")}
          title={t("people.removeTitle", { name: account.name })}
          sentence={t("members.removeAbout")}
          kind="danger"
          act={() => remove.mutateAsync([account.id, account.revision])}
        />
      ) : null}
    </div>
  );
}
