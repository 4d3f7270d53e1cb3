import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { connections, groups, notices, observedConnections, observedOverview, services } from "../api/queries";
import type { Connection, Overview, Service, Task } from "../api/types";
import { useMe } from "../app/shell";
import { Age, Rate, Time } from "../i18n/format";
import type { MessageId } from "../i18n/messages";
import { useLanguage, useText } from "../i18n/text";
import { formatBitRate } from "../i18n/units";
import { ChevronRight } from "../ui/icons";
import { Loaded } from "../ui/loaded";
import { Empty, Panel, ScreenHead, State } from "../ui/parts";
import { StateOf } from "../ui/words";

const TASKS: Record<string, { title: MessageId; act: MessageId }> = {
  accept: { title: "task.accept", act: "task.acceptAct" },
  configure_end: { title: "task.configure", act: "task.configureAct" },
  quarantine: { title: "task.quarantine", act: "task.look" },
  quarantine_failing: { title: "task.quarantineFailing", act: "task.look" },
  mac_ends: { title: "task.macEnds", act: "task.look" },
  degraded: { title: "task.degraded", act: "task.look" },
  refused: { title: "task.refused", act: "task.look" },
  switch_unreachable: { title: "task.switchUnreachable", act: "task.look" },
  switch_drifted: { title: "task.switchDrifted", act: "task.look" },
  switch_differs: { title: "task.switchDiffers", act: "task.look" },
  read_only: { title: "task.readOnly", act: "task.look" },
  database_unwritable: { title: "task.databaseUnwritable", act: "task.look" },
  trunk_down: { title: "task.trunkDown", act: "task.look" },
  attack: { title: "task.attack", act: "task.attackAct" },
  approval: { title: "task.approval", act: "task.look" },
  connection_down: { title: "task.connectionDown", act: "task.look" },
};

/** The number of connections that the first screen shows. */
const SHOWN = 12;

function taskAddress(task: Task): string {
  const kind = task.object.split("-")[0];
  if (task.task === "switch_drifted" || task.task === "switch_differs") return "/drift";
  if (task.task === "attack") return "/attack";
  if (kind === "ap") return "/approvals";
  if (task.task.startsWith("quarantine") || task.task === "mac_ends") return "/lan";
  if (kind === "sv") return `/services/${task.object}`;
  if (kind === "sw" || kind === "tr" || kind === "engine") return "/fabric";
  return "/connections";
}

/** The member's first screen: tasks, connections, services. */
export function Home() {
  const t = useText();
  const me = useMe();
  const data = useQuery(observedOverview);
  // The staff sees connections of all accounts, on many pages, and has a wall of its own.
  const links = useQuery(me.operator ? connections : observedConnections);
  const all = useQuery(services);
  const canOrder = me.can.includes("create_service") && !me.operator;
  return (
    <>
      <ScreenHead
        title={t("home.title")}
        below={t("home.hello", { account: me.account.name })}
        actions={
          canOrder ? (
            <Link to="/order" className="button" data-kind="primary">
              {t("nav.order")}
            </Link>
          ) : null
        }
      />
      <div className="two">
        <div className="stack">
          <Panel title={t("home.needsMe")} flush>
            <Loaded fills="list" query={data}>
              {(data) => <Tasks tasks={data.tasks} />}
            </Loaded>
          </Panel>
          <Panel
            title={t("nav.connections")}
            flush
            actions={
              links.data && links.data.length > SHOWN ? (
                <Link to="/connections">{t("home.allConnections", { count: links.data.length })}</Link>
              ) : null
            }
          >
            <Loaded
              fills="list"
              query={links}
              empty={{
                when: (list) => list.length === 0,
                show: <Empty title={t("connections.empty")}>{t("connections.emptyAbout")}</Empty>,
              }}
            >
              {(list) => (
                <ul className="lines">
                  {list.slice(0, SHOWN).map((connection) => (
                    <ConnectionRow key={connection.id} connection={connection} />
                  ))}
                </ul>
              )}
            </Loaded>
          </Panel>
        </div>
        <div className="stack">
          <Ahead />
          <Panel
            title={t("nav.services")}
            actions={
              <Link to="/services" search={{ q: "", state: "" }}>
                {t("home.allServices")}
              </Link>
            }
          >
            <Loaded query={data} lines={2}>
              {(data) => <Numbers data={data} />}
            </Loaded>
          </Panel>
          {links.data && all.data && !me.operator && !all.data.some((service) => service.state === "production") ? (
            <Panel title={t("steps.title")}>
              <FirstSteps connections={links.data} services={all.data} />
            </Panel>
          ) : null}
        </div>
      </div>
    </>
  );
}

/** The tasks that wait for people of this account, the most severe first. */
export function Tasks({ tasks }: { tasks: Task[] }) {
  const t = useText();
  if (tasks.length === 0) {
    return (
      <div className="panel-body">
        <State tone="ok">{t("home.nothing")}</State>
      </div>
    );
  }
  // Tasks of one object can be alike: several attacks, several MAC addresses.
  const alike: Record<string, number> = {};
  return (
    <ul className="tasks">
      {tasks.map((task) => {
        const known = TASKS[task.task];
        const key = [task.task, task.object, task.name, task.until].join(" ");
        alike[key] = (alike[key] ?? 0) + 1;
        return (
          <li key={`${key} ${alike[key]}`}>
            <Link
              to={taskAddress(task)}
              {...(task.task === "attack" ? { search: { target: task.name } } : {})}
              className="task"
              data-severity={task.severity}
            >
              <State tone={task.severity === "error" ? "bad" : task.severity === "warning" ? "wait" : "off"}>
                <span className="task-title">
                  {known ? t(known.title, { name: task.name, account: task.account?.name ?? "" }) : task.name}
                </span>
              </State>
              <span className="task-about">
                {task.members === null ? null : <span>{t("task.members", { count: task.members })}</span>}
                {task.since ? <Age at={task.since} /> : null}
                {task.task === "connection_down" && task.account ? <span>{task.account.name}</span> : null}
                {task.until ? (
                  <span>
                    {t("task.until")} <Time at={task.until} />
                  </span>
                ) : null}
                <span className="task-act">
                  {t(known?.act ?? "task.look")} <ChevronRight />
                </span>
              </span>
            </Link>
          </li>
        );
      })}
    </ul>
  );
}

function Numbers({ data }: { data: Overview }) {
  const t = useText();
  return (
    <ul className="numbers">
      {data.services.map((count) => (
        <li key={count.state}>
          <Link to="/services" search={{ q: "", state: count.state }} className="number-tile">
            <span className="number-value">{count.count}</span>
            <StateOf state={count.state} />
          </Link>
        </li>
      ))}
      {data.services.length === 0 ? <li className="quiet">{t("home.noServices")}</li> : null}
    </ul>
  );
}

function ConnectionRow({ connection }: { connection: Connection }) {
  const t = useText();
  const { language } = useLanguage();
  const share = connection.speed_mbps === 0 ? 0 : Math.min(1, connection.reserved_mbps / connection.speed_mbps);
  return (
    <li className="line-item">
      <div>
        <Link to="/connections" hash={connection.id}>
          {connection.name}
        </Link>{" "}
        <span className="quiet">
          {connection.site} · {connection.ports.map((port) => `${port.switch}:${port.number}`).join(", ")}
        </span>
        {connection.load ? (
          <div className="quiet small">
            {t("connection.in")} <Rate bits={connection.load.in_bps} /> · {t("connection.out")}{" "}
            <Rate bits={connection.load.out_bps} />
          </div>
        ) : null}
      </div>
      <StateOf state={connection.state} />
      <div className="meter-line">
        <meter min={0} max={1} high={0.9} value={share} aria-label={t("home.reserved")} />
        <span className="quiet">
          {t("home.reservedOf", {
            reserved: formatBitRate(connection.reserved_mbps * 1e6, language),
            speed: formatBitRate(connection.speed_mbps * 1e6, language),
          })}
        </span>
      </div>
    </li>
  );
}

/** The four steps from contract to first frame, with the ones that are done. */
function FirstSteps({ connections, services }: { connections: Connection[]; services: Service[] }) {
  const t = useText();
  const done = [
    true,
    connections.length > 0,
    services.length > 0,
    services.some((service) => service.state === "production"),
  ];
  const steps: MessageId[] = ["steps.contract", "steps.port", "steps.order", "steps.frames"];
  const next = done.indexOf(false);
  return (
    <ol className="steps">
      {steps.map((step, index) => (
        <li key={step} data-state={done[index] ? "done" : index === next ? "next" : "open"}>
          <State tone={done[index] ? "ok" : index === next ? "wait" : "off"}>
            {t(done[index] ? "steps.done" : index === next ? "steps.next" : "steps.later")}
          </State>
          <span>{t(step)}</span>
        </li>
      ))}
    </ol>
  );
}

/** Maintenance and incidents that are planned or under way, and the closed groups that the reader may join. */
function Ahead() {
  const t = useText();
  const announced =
    useQuery(notices).data?.filter((notice) => notice.state === "planned" || notice.state === "running") ?? [];
  const joinable = useQuery(groups).data?.filter((group) => group.joinable) ?? [];
  if (announced.length + joinable.length === 0) return null;
  return (
    <Panel title={t("home.ahead")} flush>
      <ul className="lines">
        {announced.map((notice) => (
          <li key={notice.id}>
            <Link to="/notices">{notice.title}</Link>{" "}
            <span className="quiet">
              <Time at={notice.begins} /> ·{" "}
              {notice.touches.length === 0 ? t("notice.nothing") : notice.touches.join(", ")}
            </span>
          </li>
        ))}
        {joinable.map((group) => (
          <li key={group.id}>
            <Link to="/groups">{group.name}</Link>{" "}
            <span className="quiet">{t("group.owner", { owner: group.owner.name })}</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
