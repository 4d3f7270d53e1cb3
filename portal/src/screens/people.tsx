import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { peopleOrder, useOrder, users as usersQuery } from "../api/queries";
import type { User } from "../api/types";
import { useMe } from "../app/shell";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Choices, TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { explain, Loaded } from "../ui/loaded";
import { Empty, Panel } from "../ui/parts";
import { roleWord } from "../ui/words";
import { Table } from "../ui/table";
import type { MessageId } from "../i18n/messages";

/** The roles that a member gives, with what each may do. */
const ROLES: { id: string; about: MessageId }[] = [
  { id: "member_admin", about: "people.adminAbout" },
  { id: "member_tech", about: "people.techAbout" },
  { id: "member_noc", about: "people.nocAbout" },
  { id: "member_billing", about: "people.billingAbout" },
];

/** The act that removes a person, who is signed out at once. Nobody removes himself. */
export function RemovePerson({ user: live }: { user: User }) {
  const t = useText();
  const me = useMe();
  const [user, hold] = useAsOpened(live);
  const remove = useOrder(peopleOrder.remove);
  if (!live.can.includes("delete_user") || live.id === me.user) return null;
  return (
    <ConfirmedAct
      label={t("people.remove")}
      title={t("people.removeTitle", { name: user.name })}
      sentence={t("people.removeAbout", { name: user.name })}
      kind="danger"
      explain={(error) => explain(t, error)}
      hold={hold}
      act={() => remove.mutateAsync([user.id, user.revision])}
    />
  );
}

/** The people of the account with their roles. */
export function People() {
  const t = useText();
  const me = useMe();
  const query = useQuery(usersQuery);
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [role, setRole] = useState("member_tech");
  const add = useOrder(peopleOrder.add);
  const own = (query.data ?? []).filter((user) => user.account.id === me.account.id);
  return (
    <Panel
      title={t("members.people")}
      flush
      actions={
        me.can.includes("create_user") && !me.operator ? (
          <ConfirmedAct
            label={t("people.add")}
            title={t("people.add")}
            sentence={t("people.addAbout")}
            explain={(error) => explain(t, error)}
            onOpen={() => {
              setName("");
              setEmail("");
            }}
            act={(keyOf) => {
              if (name.trim() === "") return Promise.reject(new InvalidField(t("signin.nameMissing")));
              const person = { name: name.trim(), email: email.trim() === "" ? null : email.trim(), roles: [role] };
              return add.mutateAsync([person, keyOf(person)]);
            }}
          >
            <TextField label={t("signin.name")} value={name} onChange={setName} inputProps={{ autoCapitalize: "none", spellCheck: false, autoComplete: "off" }} />
            <TextField label={t("members.mail")} type="email" value={email} onChange={setEmail} inputProps={{ autoComplete: "off" }} />
            <Choices label={t("people.role")} value={role} onChange={setRole} options={ROLES.map(({ id, about }) => ({ id, name: roleWord(t, id), hint: t(about) }))} />
          </ConfirmedAct>
        ) : null
      }
    >
      <div className={query.data && own.length > 0 ? "table-wrap" : "panel-body"}>
        <Loaded query={query} lines={3} empty={{ when: () => own.length === 0, show: <Empty title={t("members.noPeople")}>{t("people.noneAbout")}</Empty> }}>
          {() => (
            <Table
              rows={own}
              keyOf={(user) => user.id}
              columns={[
                {
                  title: t("signin.name"),
                  cell: (user) => (
                    <>
                        {user.name} {user.id === me.user ? <span className="quiet">{t("lan.you")}</span> : null}
                    </>
                  ),
                },
                { title: t("members.roles"), cell: (user) => user.roles.map((one) => roleWord(t, one)).join(", ") },
                { title: t("members.mail"), cell: (user) => user.email },
                { title: t("service.acts"), isActs: true, cell: (user) => <RemovePerson user={user} /> },
              ]}
            />
          )}
        </Loaded>
      </div>
    </Panel>
  );
}
