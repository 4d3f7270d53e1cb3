import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { accounts as accountsQuery, users as usersQuery } from "../api/queries";
import type { Account } from "../api/types";
import { matches } from "../app/finder";
import { useMe } from "../app/shell";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { Ident } from "../ui/ident";
import { useAnchor } from "../ui/anchor";
import { TextField } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead } from "../ui/parts";
import { roleWord } from "../ui/words";
import { Table } from "../ui/table";
import { RemovePerson } from "./people";

const KINDS: Record<string, MessageId> = { exchange: "account.exchange", reseller: "account.reseller", member: "account.member", authority: "account.authority" };

function words(account: Account): string {
  return [account.id, account.name, ...account.asns.map((asn) => `AS${asn}`)].join(" ");
}

/** The accounts with their connections and services, and their people. */
export function Members() {
  const t = useText();
  const me = useMe();
  const [text, setText] = useState("");
  const accounts = useQuery(accountsQuery);
  const users = useQuery({ ...usersQuery, enabled: me.can.includes("read_users") });
  useAnchor(accounts.data !== undefined);
  const found = useMemo(() => (accounts.data ?? []).filter((account) => matches(words(account), text)), [accounts.data, text]);
  return (
    <>
      <ScreenHead title={t("nav.members")} />
      <div className="stack">
        <div className="toolbar" role="search" aria-label={t("members.filter")}>
          <TextField label={t("members.filter")} value={text} onChange={setText} type="search" />
        </div>
        <Panel title={t("members.accounts")} flush>
          <div className={accounts.data && found.length > 0 ? "table-wrap" : "panel-body"}>
            <Loaded query={accounts} lines={6}>
              {() =>
                found.length === 0 ? (
                  <Empty title={t(text === "" ? "members.none" : "services.noMatch")}>{t(text === "" ? "members.noneAbout" : "services.noMatchAbout")}</Empty>
                ) : (
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
                        cell: (account) => (
                          account.services > 0 ? (
                            <Link to="/services" search={{ q: account.name, state: "" }}>
                              {account.services}
                            </Link>
                          ) : (
                            0
                          )
                        ),
                      },
                      { title: t("members.parent"), cell: (account) => account.parent?.name },
                    ]}
                  />
                )
              }
            </Loaded>
          </div>
        </Panel>
        {me.can.includes("read_users") ? (
          <Panel title={t("members.people")} flush>
            <div className={users.data && users.data.length > 0 ? "table-wrap" : "panel-body"}>
              <Loaded query={users} empty={{ when: (list) => list.length === 0, show: <Empty title={t("members.noPeople")}>{t("members.noPeopleAbout")}</Empty> }}>
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
                          </>
                        ),
                      },
                      { title: t("connection.account"), cell: (user) => user.account.name },
                      { title: t("members.roles"), cell: (user) => user.roles.map((role) => roleWord(t, role)).join(", ") },
                      { title: t("members.mail"), cell: (user) => user.email },
                      { title: t("service.acts"), isActs: true, cell: (user) => <RemovePerson user={user} /> },
                    ]}
                  />
                )}
              </Loaded>
            </div>
          </Panel>
        ) : null}
      </div>
    </>
  );
}
