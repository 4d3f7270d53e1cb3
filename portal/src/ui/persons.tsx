import { useState } from "react";

import { peopleOrder, useOrder, type LinkKind } from "../api/orders";
import type { User } from "../api/types";
import { useMe } from "../app/shell";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "./dialog";
import { Choices, Select, TextField } from "./fields";
import { InvalidField } from "./invalid";
import { Notice } from "./parts";
import { roleWord } from "./words";

/** The roles that people of an account get, with what each may do. */
const ROLES: Record<string, { id: string; about: MessageId }[]> = {
  member: [
    { id: "member_admin", about: "people.adminAbout" },
    { id: "member_tech", about: "people.techAbout" },
    { id: "member_noc", about: "people.nocAbout" },
    { id: "member_billing", about: "people.billingAbout" },
  ],
  reseller: [{ id: "reseller", about: "people.resellerAbout" }],
  exchange: [
    { id: "operator_noc", about: "people.operatorNocAbout" },
    { id: "operator_provisioning", about: "people.provisioningAbout" },
    { id: "operator_admin", about: "people.operatorAdminAbout" },
  ],
  authority: [{ id: "regulator", about: "people.regulatorAbout" }],
};

/** The act that adds a person, who gets an invitation if there is a mail address. */
export function AddPerson({ account, kind = "member" }: { account?: { id: string; name: string }; kind?: string }) {
  const t = useText();
  const roles = ROLES[kind] ?? ROLES["member"] ?? [];
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [role, setRole] = useState(roles[0]?.id ?? "");
  const add = useOrder(peopleOrder.add);
  const link = useOrder(peopleOrder.link);
  const title = account ? t("people.addTo", { account: account.name }) : t("people.add");
  return (
    <ConfirmedAct
      label={t("people.add")}
      title={title}
      sentence={t("people.addAbout")}
      onOpen={() => {
        setName("");
        setEmail("");
      }}
      act={async (keyOf) => {
        if (name.trim() === "") throw new InvalidField(t("signin.nameMissing"));
        const person = {
          name: name.trim(),
          email: email.trim() === "" ? null : email.trim(),
          roles: [role],
          account: account?.id ?? null,
        };
        const made = await add.mutateAsync([person, keyOf(person)]);
        const user = made.created.find((id) => id.startsWith("us-"));
        if (person.email && user) await link.mutateAsync([user, "invitation"]);
      }}
    >
      <TextField
        label={t("signin.name")}
        value={name}
        onChange={setName}
        inputProps={{ autoCapitalize: "none", spellCheck: false, autoComplete: "off" }}
      />
      <TextField
        label={t("members.mail")}
        hint={t("people.mailHint")}
        type="email"
        value={email}
        onChange={setEmail}
        inputProps={{ autoComplete: "off" }}
      />
      <Choices
        label={t("people.role")}
        value={role}
        onChange={setRole}
        options={roles.map(({ id, about }) => ({ id, name: roleWord(t, id), hint: t(about) }))}
      />
    </ConfirmedAct>
  );
}

const LINKS: { id: LinkKind; name: MessageId; about: MessageId }[] = [
  { id: "invitation", name: "people.invitation", about: "people.invitationAbout" },
  { id: "password", name: "people.newPassword", about: "people.newPasswordAbout" },
  { id: "second_factor", name: "people.secondFactor", about: "people.secondFactorAbout" },
];

/** The acts on a person: a letter with a link, deactivation, removal. Nobody deactivates or removes himself. */
export function PersonActs({ user: live }: { user: User }) {
  const t = useText();
  const me = useMe();
  const [user, hold] = useAsOpened(live);
  const [kind, setKind] = useState<LinkKind>("invitation");
  const [sent, setSent] = useState(false);
  const link = useOrder(peopleOrder.link);
  const change = useOrder(peopleOrder.change);
  const remove = useOrder(peopleOrder.remove);
  const isOther = live.id !== me.user;
  const updates = live.can.includes("update_user");
  const word = t(user.deactivated ? "people.activate" : "people.deactivate");
  return (
    <div className="stack tight">
      {sent ? <Notice tone="ok" title={t("people.sent", { name: user.name })} live /> : null}
      <div className="buttons">
        {updates && !live.deactivated ? (
          <ConfirmedAct
            label={t("people.send")}
            title={t("people.sendTo", { name: user.name })}
            sentence={user.email ? t("people.sendAbout", { mail: user.email }) : t("people.noMail")}
            hold={hold}
            onOpen={() => setSent(false)}
            act={() => link.mutateAsync([user.id, kind]).then(() => setSent(true))}
          >
            <Select
              label={t("people.letter")}
              options={LINKS.map((entry) => ({ id: entry.id, name: t(entry.name), hint: t(entry.about) }))}
              selectedKey={kind}
              onSelectionChange={(key) => setKind(key as LinkKind)}
            />
          </ConfirmedAct>
        ) : null}
        {updates && isOther ? (
          <ConfirmedAct
            label={word}
            title={t(user.deactivated ? "people.activateTitle" : "people.deactivateTitle", { name: user.name })}
            sentence={t(user.deactivated ? "people.activateAbout" : "people.deactivateAbout", { name: user.name })}
            hold={hold}
            act={() => change.mutateAsync([user.id, user.revision, { deactivated: !user.deactivated }])}
          />
        ) : null}
        {live.can.includes("delete_user") && isOther ? (
          <ConfirmedAct
            label={t("people.remove")}
            title={t("people.removeTitle", { name: user.name })}
            sentence={t("people.removeAbout", { name: user.name })}
            kind="danger"
            hold={hold}
            act={() => remove.mutateAsync([user.id, user.revision])}
          />
        ) : null}
      </div>
    </div>
  );
}
