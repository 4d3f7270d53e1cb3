import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { accounts as accountsQuery, users as usersQuery } from "../api/queries";
import type { Account } from "../api/types";
import { matches } from "../app/finder";
import { useMe } from "../app/shell";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { useAnchor } from "../ui/anchor";
import { TextField } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead } from "../ui/parts";
import { roleWord } from "../ui/words";
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
                  <table className="table cards">
                    <thead>
                      <tr>
                        <th scope="col">{t("members.name")}</th>
                        <th scope="col">{t("members.kind")}</th>
                        <th scope="col">{t("members.asns")}</th>
                        <th scope="col" className="number">{t("nav.connections")}</th>
                        <th scope="col" className="number">{t("nav.services")}</th>
                        <th scope="col">{t("members.parent")}</th>
                      </tr>
                    </thead>
                    <tbody>
                      {found.map((account) => (
                        <tr key={account.id} id={account.id}>
                          <th scope="row">
                            {account.name} <span className="quiet">{account.id}</span>
                          </th>
                          <td data-label={t("members.kind")}>{t(KINDS[account.kind] ?? "account.member")}</td>
                          <td data-label={t("members.asns")}>{account.asns.map((asn) => `AS${asn}`).join(", ")}</td>
                          <td className="number" data-label={t("nav.connections")}>{account.connections}</td>
                          <td className="number" data-label={t("nav.services")}>
                            {account.services > 0 ? (
                              <Link to="/services" search={{ q: account.name, state: "" }}>
                                {account.services}
                              </Link>
                            ) : (
                              0
                            )}
                          </td>
                          <td data-label={t("members.parent")}>{account.parent?.name}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
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
                  <table className="table cards">
                    <thead>
                      <tr>
                        <th scope="col">{t("signin.name")}</th>
                        <th scope="col">{t("connection.account")}</th>
                        <th scope="col">{t("members.roles")}</th>
                        <th scope="col">{t("members.mail")}</th>
                        <th scope="col">
                          <span className="visually-hidden">{t("service.acts")}</span>
                        </th>
                      </tr>
                    </thead>
                    <tbody>
                      {list.map((user) => (
                        <tr key={user.id}>
                          <th scope="row">
                            {user.name} <span className="quiet">{user.id}</span>
                          </th>
                          <td data-label={t("connection.account")}>{user.account.name}</td>
                          <td data-label={t("members.roles")}>{user.roles.map((role) => roleWord(t, role)).join(", ")}</td>
                          <td data-label={t("members.mail")}>{user.email}</td>
                          <td>
                            <RemovePerson user={user} />
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                )}
              </Loaded>
            </div>
          </Panel>
        ) : null}
      </div>
    </>
  );
}
