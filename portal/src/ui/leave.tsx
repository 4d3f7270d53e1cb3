import { order, useOrder } from "../api/orders";
import type { End, Service } from "../api/types";
import { useText } from "../i18n/text";
import { ConfirmedAct, useAsOpened } from "./dialog";

/**
 * Returns true if an account leaves a service by its own end: a LAN, or a path of another account, which alone can
 * delete it.
 */
function isLeft(end: End, service: Service): boolean {
  return (
    end.own && end.can.includes("delete_end") && (service.kind !== "p2p_vc" || end.account.id !== service.account.id)
  );
}

/** The act by which an account leaves a LAN or a path that it has accepted. */
export function Leave({ end: live, service }: { end: End; service: Service }) {
  const t = useText();
  const [end, hold] = useAsOpened(live);
  const leave = useOrder(order.leave);
  if (!isLeft(live, service)) return null;
  const isPath = service.kind === "p2p_vc";
  const connection = end.connection?.name ?? end.site;
  return (
    <ConfirmedAct
      label={t("leave.act")}
      title={t("leave.title", { service: service.name })}
      sentence={isPath ? t("leave.pathAbout", { account: service.account.name }) : t("leave.lanAbout", { connection })}
      kind="danger"
      hold={hold}
      act={() => leave.mutateAsync([end.id, end.revision])}
    />
  );
}
