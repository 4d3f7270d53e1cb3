import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { useOrder, webhookOrder } from "../api/orders";
import { deliveries as deliveriesQuery, webhooks as webhooksQuery } from "../api/queries";
import type { Delivery, Webhook } from "../api/types";
import { useMe } from "../app/shell";
import { Age } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { ConfirmedAct } from "../ui/dialog";
import { TextField } from "../ui/fields";
import { Loaded } from "../ui/loaded";
import { Empty, Notice, Panel, State, type Tone } from "../ui/parts";

const STATES: Record<string, { tone: Tone; word: MessageId }> = {
  delivered: { tone: "ok", word: "webhook.delivered" },
  retrying: { tone: "wait", word: "webhook.retrying" },
  given_up: { tone: "bad", word: "webhook.givenUp" },
};

/** The webhooks of the account with their last deliveries. */
export function Webhooks() {
  const t = useText();
  const me = useMe();
  const query = useQuery(webhooksQuery);
  const [url, setUrl] = useState("");
  const [secret, setSecret] = useState<string>();
  const create = useOrder(webhookOrder.create);
  return (
    <Panel
      title={t("webhook.title")}
      flush
      actions={
        me.can.includes("write_webhook") ? (
          <ConfirmedAct
            label={t("webhook.add")}
            title={t("webhook.add")}
            sentence={t("webhook.addAbout")}
            onOpen={() => setUrl("")}
            act={() => create.mutateAsync([url.trim()]).then((made) => setSecret(made.secret))}
          >
            <TextField
              label={t("webhook.url")}
              value={url}
              onChange={setUrl}
              inputProps={{
                type: "url",
                spellCheck: false,
                autoCapitalize: "none",
                placeholder: "https://noc.example.net/millrace",
              }}
            />
          </ConfirmedAct>
        ) : null
      }
    >
      {secret ? (
        <div className="panel-body">
          <Notice tone="ok" title={t("webhook.made")} live>
            <p>{t("webhook.once")}</p>
            <code className="secret">{secret}</code>
          </Notice>
        </div>
      ) : null}
      <Loaded
        fills="list"
        query={query}
        lines={3}
        empty={{
          when: (list) => list.length === 0,
          show: <Empty title={t("webhook.none")}>{t("webhook.noneAbout")}</Empty>,
        }}
      >
        {(list) => (
          <ul className="lines">
            {list.map((hook) => (
              <Hook key={hook.id} hook={hook} />
            ))}
          </ul>
        )}
      </Loaded>
    </Panel>
  );
}

/** One delivery in words: whether it arrived, when, and why not. */
function DeliveryLine({ delivery }: { delivery: Delivery }) {
  const t = useText();
  const known = STATES[delivery.state];
  return (
    <span className="row">
      <State tone={known?.tone ?? "off"}>{known ? t(known.word) : delivery.state}</State>
      <span className="quiet">{t("webhook.tries", { count: delivery.tries, serial: delivery.serial })}</span>
      <Age at={delivery.at} />
      {delivery.error ? <span className="reason">{delivery.error}</span> : null}
    </span>
  );
}

/** The last deliveries of a webhook, read when somebody opens them. */
function Deliveries({ id }: { id: string }) {
  const t = useText();
  const [open, setOpen] = useState(false);
  const query = useQuery(deliveriesQuery(id, open));
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("webhook.deliveries")}</summary>
      {open ? (
        <Loaded
          query={query}
          lines={3}
          empty={{ when: (list) => list.length === 0, show: <p className="quiet">{t("webhook.noDelivery")}</p> }}
        >
          {(list) => (
            <ol className="stack tight">
              {list.map((delivery) => (
                <li key={delivery.event}>
                  <DeliveryLine delivery={delivery} />
                </li>
              ))}
            </ol>
          )}
        </Loaded>
      ) : null}
    </details>
  );
}

function Hook({ hook }: { hook: Webhook }) {
  const t = useText();
  const me = useMe();
  const remove = useOrder(webhookOrder.remove);
  const replay = useOrder(webhookOrder.replay);
  return (
    <li className="line-item">
      <div className="stack tight">
        <code>{hook.url}</code>
        {hook.disabled ? <State tone="bad">{t("webhook.disabled")}</State> : null}
        {hook.last ? <DeliveryLine delivery={hook.last} /> : <span className="quiet">{t("webhook.noDelivery")}</span>}
        <Deliveries id={hook.id} />
      </div>
      {me.can.includes("write_webhook") ? (
        <div className="buttons">
          <ConfirmedAct
            label={t("webhook.replay")}
            title={t("webhook.replay")}
            sentence={t("webhook.replayAbout")}
            act={() => replay.mutateAsync([hook.id])}
          />
          <ConfirmedAct
            label={t("service.delete")}
            title={t("webhook.deleteTitle")}
            sentence={t("webhook.deleteAbout", { url: hook.url })}
            kind="danger"
            act={() => remove.mutateAsync([hook.id])}
          />
        </div>
      ) : null}
    </li>
  );
}
