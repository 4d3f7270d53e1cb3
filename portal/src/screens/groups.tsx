import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Checkbox, CheckboxGroup, Label } from "react-aria-components";

import { groupOrder, useOrder } from "../api/orders";
import { accounts as accountsQuery, groups as groupsQuery } from "../api/queries";
import type { Group, GroupMember } from "../api/types";
import { useMe } from "../app/shell";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { checkEnd, EMPTY_END, EndFields, endOrder, type EndDraft, type EndErrors } from "../ui/endfields";
import { TextField } from "../ui/fields";
import { InvalidField } from "../ui/invalid";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead, State } from "../ui/parts";
import { Table } from "../ui/table";

/** The fields of an own end, checked before the order. */
function useEnd() {
  const t = useText();
  const [end, setEnd] = useState<EndDraft>(EMPTY_END);
  const [errors, setErrors] = useState<EndErrors>({});
  const check = () => {
    const found = checkEnd(t, end);
    setErrors(found);
    if (Object.keys(found).length > 0) throw new InvalidField(t("form.incomplete"));
    return endOrder(end);
  };
  const clear = () => {
    setEnd(EMPTY_END);
    setErrors({});
  };
  return { end, setEnd, errors, check, clear };
}

/** Closed groups: one service of several members, who are listed by the one that ordered it. */
export function Groups() {
  const t = useText();
  const me = useMe();
  const query = useQuery(groupsQuery);
  return (
    <>
      <ScreenHead
        title={t("nav.groups")}
        below={t("group.about")}
        actions={!me.operator && me.can.includes("create_service") ? <NewGroup /> : null}
      />
      <Loaded
        query={query}
        lines={6}
        empty={{
          when: (list) => list.length === 0,
          show: (
            <Panel>
              <Empty title={t("group.none")}>{t("group.noneAbout")}</Empty>
            </Panel>
          ),
        }}
      >
        {(list) => (
          <div className="stack">
            {list.map((group) => (
              <Panel key={group.id} title={group.name} actions={<GroupActs group={group} />}>
                <p>{t("group.owner", { owner: group.owner.name })}</p>
                {group.members.length === 0 ? null : (
                  <div className="table-wrap">
                    <Table
                      label={group.name}
                      rows={group.members}
                      keyOf={(member) => member.account.id}
                      columns={[
                        { title: t("members.name"), cell: (member) => member.account.name },
                        {
                          title: t("services.state"),
                          cell: (member) => (
                            <State tone={member.joined ? "ok" : "wait"}>
                              {t(member.joined ? "group.joined" : "group.listed")}
                            </State>
                          ),
                        },
                        ...(group.can.includes("create_service_key")
                          ? [
                              {
                                title: t("group.remove"),
                                cell: (member: GroupMember) => <RemoveMember group={group} member={member} />,
                              },
                            ]
                          : []),
                      ]}
                    />
                  </div>
                )}
              </Panel>
            ))}
          </div>
        )}
      </Loaded>
    </>
  );
}

/** The choice of the accounts that may join. */
function Members({ value, onChange }: { value: string[]; onChange: (members: string[]) => void }) {
  const t = useText();
  const me = useMe();
  const accounts = useQuery(accountsQuery);
  const others = (accounts.data ?? []).filter(
    (account) => account.id !== me.account.id && account.kind !== "exchange" && account.kind !== "authority",
  );
  return (
    <CheckboxGroup className="field" value={value} onChange={onChange}>
      <Label className="label">{t("group.members")}</Label>
      <div className="choices">
        {others.map((account) => (
          <Checkbox key={account.id} value={account.id} className="choice">
            <span className="mark square" />
            <span>{account.name}</span>
          </Checkbox>
        ))}
      </div>
    </CheckboxGroup>
  );
}

function NewGroup() {
  const t = useText();
  const me = useMe();
  const [name, setName] = useState("");
  const [members, setMembers] = useState<string[]>([]);
  const own = useEnd();
  const add = useOrder(groupOrder.add);
  return (
    <ConfirmedAct
      label={t("group.add")}
      title={t("group.add")}
      sentence={t("group.addAbout")}
      kind="primary"
      onOpen={() => {
        setName("");
        setMembers([]);
        own.clear();
      }}
      act={async (keyOf) => {
        if (name.trim() === "") throw new InvalidField(t("group.nameMissing"));
        const body = { name: name.trim(), end: own.check(), members };
        await add.mutateAsync([body, keyOf(body)]);
      }}
    >
      <TextField label={t("members.name")} value={name} onChange={setName} />
      <Members value={members} onChange={setMembers} />
      <EndFields prefix="group" value={own.end} onChange={own.setEnd} errors={own.errors} account={me.account.id} />
    </ConfirmedAct>
  );
}

function GroupActs({ group }: { group: Group }) {
  const t = useText();
  const me = useMe();
  const [members, setMembers] = useState<string[]>([]);
  const own = useEnd();
  const set = useOrder(groupOrder.members);
  const join = useOrder(groupOrder.join);
  return (
    <>
      {group.joinable ? (
        <ConfirmedAct
          label={t("lan.join")}
          title={t("lan.joinTitle", { lan: group.name })}
          sentence={t("group.joinAbout", { owner: group.owner.name })}
          kind="primary"
          onOpen={own.clear}
          act={async (keyOf) => {
            const end = own.check();
            await join.mutateAsync([group.id, end, keyOf(end)]);
          }}
        >
          <EndFields
            prefix="join-group"
            value={own.end}
            onChange={own.setEnd}
            errors={own.errors}
            account={me.account.id}
          />
        </ConfirmedAct>
      ) : null}
      {group.can.includes("create_service_key") && group.owner.id === me.account.id ? (
        <ConfirmedAct
          label={t("group.change")}
          title={t("group.changeTitle", { name: group.name })}
          sentence={t("group.changeAbout")}
          onOpen={() => setMembers(group.members.map((member) => member.account.id))}
          act={() => set.mutateAsync([group.id, members])}
        >
          <Members value={members} onChange={setMembers} />
        </ConfirmedAct>
      ) : null}
    </>
  );
}

/** The act by which the owner removes a member from the list, with the member's ends. */
function RemoveMember({ group, member }: { group: Group; member: GroupMember }) {
  const t = useText();
  const remove = useOrder(groupOrder.remove);
  return (
    <ConfirmedAct
      label={t("group.remove")}
      title={t("group.removeTitle", { member: member.account.name, name: group.name })}
      sentence={t(member.joined ? "group.removeAbout" : "group.removeListed")}
      kind="danger"
      act={(keyOf) => remove.mutateAsync([group.id, member.account.id, keyOf(member.account.id)])}
    />
  );
}
