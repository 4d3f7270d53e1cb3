import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";

import { RequestError } from "../api/problem";
import { change as changeQuery, changesAfter, services as servicesQuery } from "../api/queries";
import type { Change as ChangeView } from "../api/types";
import { useIsStaff } from "../app/shell";
import { Age, Time } from "../i18n/format";
import { useText } from "../i18n/text";
import { ChangeLink } from "../ui/changelink";
import { AwaitsConfirmation } from "../ui/confirmation";
import { Ident } from "../ui/ident";
import { Loaded } from "../ui/loaded";
import { OlderPages } from "../ui/older";
import { operationWord } from "../ui/operations";
import { Crumb, Empty, Facts, Notice, Panel, ScreenHead } from "../ui/parts";
import { Table } from "../ui/table";
import { StateOf, stateWord } from "../ui/words";

const PHASES = ["accepted", "planned", "staged", "flipped", "drained", "cleaned"];

/** The changes, newest first: their phase, who ordered them, and what they wait for. */
export function Changes() {
  const t = useText();
  const isStaff = useIsStaff();
  const [after, setAfter] = useState<string>();
  const query = useQuery(changesAfter(after));
  return (
    <>
      <ScreenHead title={t("nav.changes")} below={t("changes.about")} />
      <Panel flush>
        <Loaded
          fills="table"
          query={query}
          lines={8}
          empty={{
            when: (page) => page.items.length === 0,
            show: <Empty title={t("changes.none")}>{t("changes.noneAbout")}</Empty>,
          }}
        >
          {(page) => (
            <Table
              rows={page.items}
              keyOf={(change) => change.id}
              columns={[
                {
                  title: t("changes.change"),
                  cell: (change) => <ChangeLink change={change} />,
                },
                {
                  title: t("changes.phase"),
                  cell: (change) => (
                    <span className="stack tight">
                      <StateOf
                        state={change.state}
                        {...(change.error && change.state !== "cleaned" ? { tone: "bad" as const } : {})}
                      />
                      {change.error ? <small className="reason">{change.error}</small> : null}
                      {change.confirm_until ? <small className="quiet"> {t("confirm.open")}</small> : null}
                      {change.waiting_for.length > 0 ? (
                        <small className="quiet">
                          {" "}
                          {t("changes.waitsFor", { names: change.waiting_for.join(", ") })}
                        </small>
                      ) : null}
                    </span>
                  ),
                },
                ...(isStaff
                  ? [
                      {
                        title: t("changes.objects"),
                        cell: (change: ChangeView) => change.objects.slice(0, 4).join(", "),
                      },
                    ]
                  : []),
                { title: t("changes.who"), cell: (change) => change.actor },
                { title: t("changes.when"), cell: (change) => <Age at={change.accepted_at} /> },
              ]}
            />
          )}
        </Loaded>
      </Panel>
      <OlderPages after={after} next={query.data?.next} onChange={setAfter} />
    </>
  );
}

/** One change with its steps. */
export function Change() {
  const t = useText();
  const { id } = useParams({ strict: false }) as { id: string };
  const query = useQuery(changeQuery(id));
  const isStaff = useIsStaff();
  // Members know their services by name, and the staff knows all objects by identifier.
  const own = useQuery({ ...servicesQuery, enabled: !isStaff }).data;
  if (query.error instanceof RequestError && query.error.status === 404) {
    return (
      <>
        <ScreenHead title={t("changes.change")} above={<Crumb to="/changes">{t("nav.changes")}</Crumb>} />
        <Empty title={t("changes.absent")}>{t("changes.absentAbout")}</Empty>
      </>
    );
  }
  return (
    <>
      <ScreenHead
        title={query.data ? operationWord(t, query.data.operation) : t("changes.change")}
        above={<Crumb to="/changes">{t("nav.changes")}</Crumb>}
        below={<Ident id={id} />}
      />
      <Loaded query={query} lines={6}>
        {(change) => (
          <div className="stack">
            <AwaitsConfirmation change={change} />
            {change.error ? <Notice tone="bad" title={change.error} /> : null}
            {change.waiting_for.length > 0 ? (
              <Notice tone="wait" title={t("changes.waitsFor", { names: change.waiting_for.join(", ") })} />
            ) : null}
            <Panel title={t("changes.phase")}>
              <Phases change={change} />
            </Panel>
            <div className="two">
              <Panel title={t("changes.steps")}>
                <ol className="stack tight">
                  {(change.steps ?? []).map((step, index) => (
                    <li key={index} className="row">
                      <StateOf state={step.state} />
                      <Time at={step.at} />
                      {step.detail ? <span className="quiet">{step.detail}</span> : null}
                    </li>
                  ))}
                </ol>
              </Panel>
              <Panel title={t("changes.order")}>
                <Facts
                  items={[
                    [t("changes.who"), change.actor],
                    [t("changes.when"), <Time key="at" at={change.accepted_at} />],
                    [
                      t("changes.objects"),
                      <span key="objects" className="row">
                        {change.objects.map((object) => {
                          const name = isStaff ? object : own?.find((service) => service.id === object)?.name;
                          return name === undefined || !object.startsWith("sv-") ? (
                            <Ident key={object} id={object} />
                          ) : (
                            <Link key={object} to="/services/$id" params={{ id: object }}>
                              {name}
                            </Link>
                          );
                        })}
                      </span>,
                    ],
                  ]}
                />
              </Panel>
            </div>
          </div>
        )}
      </Loaded>
    </>
  );
}

/** How far a change has come, as a bar with words. */
function Phases({ change }: { change: ChangeView }) {
  const t = useText();
  const reached = PHASES.indexOf(change.state);
  return (
    <ol className="phases" aria-label={t("changes.phases")}>
      {PHASES.map((phase, index) => (
        <li
          key={phase}
          data-state={
            change.state === "rolled_back"
              ? "failed"
              : index < reached || change.state === "cleaned"
                ? "done"
                : index === reached
                  ? "current"
                  : "open"
          }
          {...(index === reached ? { "aria-current": "step" as const } : {})}
        >
          {stateWord(t, phase)}
        </li>
      ))}
    </ol>
  );
}
