import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Checkbox, CheckboxGroup, Label } from "react-aria-components";

import { contactOrder, useOrder } from "../api/orders";
import { contacts as contactsQuery } from "../api/queries";
import type { AccountContact } from "../api/types";
import { useMe } from "../app/shell";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { TextField } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { Empty, Panel } from "../ui/parts";
import { Table } from "../ui/table";

const ROLES: { id: string; name: MessageId }[] = [
  { id: "noc", name: "contact.noc" },
  { id: "peering", name: "contact.peering" },
  { id: "abuse", name: "contact.abuse" },
  { id: "implementation", name: "contact.implementation" },
  { id: "billing", name: "contact.billing" },
  { id: "legal", name: "contact.legal" },
];

/** The contacts of the account: whom the exchange and other members write to, and about what. */
export function Contacts() {
  const t = useText();
  const me = useMe();
  const query = useQuery(contactsQuery);
  const remove = useOrder(contactOrder.remove);
  const shown = (query.data ?? []).filter((contact) => me.operator || contact.account.id === me.account.id);
  const roleName = (id: string) => {
    const role = ROLES.find((one) => one.id === id);
    return role ? t(role.name) : id;
  };
  return (
    <Panel
      title={t("contact.title")}
      flush
      actions={me.can.includes("write_contact") && !me.operator ? <Edit /> : null}
    >
      <Loaded
        fills="table"
        query={query}
        lines={3}
        empty={{
          when: () => shown.length === 0,
          show: <Empty title={t("contact.none")}>{t("contact.noneAbout")}</Empty>,
        }}
      >
        {() => (
          <Table
            rows={shown}
            keyOf={(contact) => contact.id}
            columns={[
              { title: t("members.name"), cell: (contact) => contact.name },
              ...(me.operator
                ? [{ title: t("connection.account"), cell: (contact: AccountContact) => contact.account.name }]
                : []),
              { title: t("members.roles"), cell: (contact) => contact.roles.map(roleName).join(", ") },
              { title: t("members.mail"), cell: (contact) => contact.email },
              { title: t("contact.telephone"), cell: (contact) => contact.telephone },
              {
                title: t("service.acts"),
                isActs: true,
                cell: (contact) =>
                  contact.can.includes("write_contact") ? (
                    <div className="buttons">
                      <Edit contact={contact} />
                      <ConfirmedAct
                        label={t("people.remove")}
                        title={t("people.removeTitle", { name: contact.name ?? "" })}
                        sentence={t("contact.removeAbout")}
                        kind="danger"
                        act={() => remove.mutateAsync([contact.id])}
                      />
                    </div>
                  ) : null,
              },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}

/** The act that adds a contact, or changes one. */
function Edit({ contact }: { contact?: AccountContact }) {
  const t = useText();
  const [name, setName] = useState("");
  const [email, setEmail] = useState("");
  const [telephone, setTelephone] = useState("");
  const [roles, setRoles] = useState<string[]>([]);
  const add = useOrder(contactOrder.add);
  const change = useOrder(contactOrder.change);
  const label = t(contact ? "contact.change" : "contact.add");
  const orNull = (text: string) => (text.trim() === "" ? null : text.trim());
  return (
    <ConfirmedAct
      label={label}
      title={label}
      sentence={t("contact.about")}
      onOpen={() => {
        setName(contact?.name ?? "");
        setEmail(contact?.email ?? "");
        setTelephone(contact?.telephone ?? "");
        setRoles(contact?.roles ?? []);
      }}
      act={(keyOf) => {
        const body = { name: name.trim(), email: orNull(email), telephone: orNull(telephone), roles };
        return contact ? change.mutateAsync([contact.id, body]) : add.mutateAsync([body, keyOf(body)]);
      }}
    >
      <TextField label={t("members.name")} value={name} onChange={setName} />
      <TextField label={t("members.mail")} type="email" value={email} onChange={setEmail} />
      <TextField
        label={t("contact.telephone")}
        hint={t("contact.telephoneHint")}
        type="tel"
        value={telephone}
        onChange={setTelephone}
      />
      <CheckboxGroup className="field" value={roles} onChange={setRoles}>
        <Label className="label">{t("members.roles")}</Label>
        <div className="choices">
          {ROLES.map((role) => (
            <Checkbox key={role.id} value={role.id} className="choice">
              <span className="mark square" />
              <span>{t(role.name)}</span>
            </Checkbox>
          ))}
        </div>
      </CheckboxGroup>
    </ConfirmedAct>
  );
}
