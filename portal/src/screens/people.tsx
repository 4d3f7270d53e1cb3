import { useQuery } from "@tanstack/react-query";

import { users as usersQuery } from "../api/queries";
import { useMe } from "../app/shell";
import { useText } from "../i18n/text";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, State } from "../ui/parts";
import { AddPerson, PersonActs } from "../ui/persons";
import { Table } from "../ui/table";
import { roleWord } from "../ui/words";

/** The people of the account with their roles. */
export function People() {
  const t = useText();
  const me = useMe();
  const query = useQuery(usersQuery);
  const own = (query.data ?? []).filter((user) => user.account.id === me.account.id);
  return (
    <Panel
      title={t("members.people")}
      flush
      actions={me.can.includes("create_user") && !me.operator ? <AddPerson /> : null}
    >
      <Loaded
        fills="table"
        query={query}
        lines={3}
        empty={{
          when: () => own.length === 0,
          show: <Empty title={t("members.noPeople")}>{t("people.noneAbout")}</Empty>,
        }}
      >
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
                    {user.deactivated ? <State tone="off">{t("people.deactivated")}</State> : null}
                  </>
                ),
              },
              { title: t("members.roles"), cell: (user) => user.roles.map((one) => roleWord(t, one)).join(", ") },
              { title: t("members.mail"), cell: (user) => user.email },
              { title: t("service.acts"), isActs: true, cell: (user) => <PersonActs user={user} /> },
            ]}
          />
        )}
      </Loaded>
    </Panel>
  );
}
