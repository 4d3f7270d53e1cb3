import { useQuery } from "@tanstack/react-query";

import { secondPerson, useOrder } from "../api/orders";
import { approvals as approvalsQuery } from "../api/queries";
import type { Approval } from "../api/types";
import { Age } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "../ui/dialog";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead } from "../ui/parts";

const ORDERS: Record<string, MessageId> = {
  delete_fabric: "approval.deleteTrunk",
  delete_service: "approval.deleteLan",
  unlock: "approval.unlock",
};

/** Orders that wait for a second person. */
export function Approvals() {
  const t = useText();
  const query = useQuery(approvalsQuery);
  return (
    <>
      <ScreenHead title={t("nav.approvals")} below={t("approval.about")} />
      <Panel flush>
        <Loaded
          fills="list"
          query={query}
          lines={4}
          empty={{
            when: (list) => list.length === 0,
            show: <Empty title={t("approval.none")}>{t("approval.noneAbout")}</Empty>,
          }}
        >
          {(list) => (
            <ul className="lines">
              {list.map((approval) => (
                <Row key={approval.id} approval={approval} />
              ))}
            </ul>
          )}
        </Loaded>
      </Panel>
    </>
  );
}

function Row({ approval: live }: { approval: Approval }) {
  const t = useText();
  const [approval, hold] = useAsOpened(live);
  const approve = useOrder(secondPerson.approve);
  const withdraw = useOrder(secondPerson.withdraw);
  const known = ORDERS[approval.operation];
  const what = known ? t(known, { name: approval.name }) : `${approval.operation} ${approval.name}`;
  return (
    <li className="line-item approval">
      <div>
        <strong>{what}</strong> <span className="quiet">{approval.object}</span>
        <div className="quiet">
          {t("approval.by", { name: approval.requested_by ?? t("approval.host") })} <Age at={approval.requested_at} />
        </div>
      </div>
      <div className="buttons">
        {approval.own ? (
          <span className="quiet">{t("approval.own")}</span>
        ) : approval.can.includes("approve") ? (
          <ConfirmedAct
            label={t("approval.approve")}
            title={what}
            sentence={t("approval.sentence", { name: approval.requested_by ?? t("approval.host") })}
            kind="danger"
            hold={hold}
            act={() => approve.mutateAsync([approval.id, approval.revision])}
          />
        ) : null}
        {approval.can.includes("approve") ? (
          <ConfirmedAct
            label={t(approval.own ? "approval.withdraw" : "approval.refuse")}
            title={t(approval.own ? "approval.withdraw" : "approval.refuse")}
            sentence={t("approval.withdrawSentence", { what })}
            hold={hold}
            act={() => withdraw.mutateAsync([approval.id, approval.revision])}
          />
        ) : null}
      </div>
    </li>
  );
}
