import { Link } from "@tanstack/react-router";
import { useEffect, useId, useState, type ReactNode } from "react";
import { Button as AriaButton, type ButtonProps as AriaButtonProps } from "react-aria-components";

import { useText } from "../i18n/text";
import { Check, Info, StateBad, StateOff, StateOk, StateWait, Warning } from "./icons";

export type Tone = "ok" | "wait" | "bad" | "off";

type ButtonProps = AriaButtonProps & { kind?: "primary" | "danger" | "quiet" | "plain" };

/** A button. While it is pending, presses do nothing and assistive technology is told. */
export function Button({ kind = "plain", className, ...props }: ButtonProps) {
  return (
    <AriaButton {...props} data-kind={kind} className={`button ${typeof className === "string" ? className : ""}`} />
  );
}

const MARKS = { ok: StateOk, wait: StateWait, bad: StateBad, off: StateOff };

/** A state as a shape, a colour and a word. */
export function State({ tone, children }: { tone: Tone; children: ReactNode }) {
  const Mark = MARKS[tone];
  return (
    <span className="state" data-tone={tone}>
      <Mark />
      <span>{children}</span>
    </span>
  );
}

/** A message in the flow of the page. */
export function Notice({
  tone,
  title,
  children,
  live = false,
}: {
  tone: Tone;
  title: ReactNode;
  children?: ReactNode;
  live?: boolean;
}) {
  const Mark = tone === "ok" ? Check : tone === "off" ? Info : Warning;
  return (
    <div className="notice" data-tone={tone} {...(live ? { role: tone === "bad" ? "alert" : "status" } : {})}>
      <Mark />
      <div className="notice-title">{title}</div>
      {children ? <div>{children}</div> : null}
    </div>
  );
}

/** A titled part of a screen. */
export function Panel({
  title,
  actions,
  children,
  flush = false,
  level = 2,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  flush?: boolean;
  level?: 2 | 3;
}) {
  const id = useId();
  const Heading = level === 2 ? "h2" : "h3";
  return (
    <section className="panel" {...(title ? { "aria-labelledby": id } : {})}>
      {title ? (
        <div className="panel-head">
          <Heading id={id}>{title}</Heading>
          {actions ? <div className="buttons">{actions}</div> : null}
        </div>
      ) : null}
      <div className={flush ? "panel-body flush" : "panel-body"}>{children}</div>
    </section>
  );
}

/** The head of a screen: where one is, its title, what one can do. Sets the title of the window. */
export function ScreenHead({
  title,
  above,
  below,
  actions,
}: {
  title: string;
  above?: ReactNode;
  below?: ReactNode;
  actions?: ReactNode;
}) {
  const t = useText();
  useEffect(() => {
    document.title = `${title} · ${t("app.name")}`;
  }, [title, t]);
  return (
    <header className="screen-head">
      <div>
        {above ? <div className="above">{above}</div> : null}
        <h1>{title}</h1>
        {below ? <div className="below">{below}</div> : null}
      </div>
      {actions ? <div className="buttons">{actions}</div> : null}
    </header>
  );
}

/** A link to the list above a detail. */
export function Crumb({ to, children }: { to: string; children: ReactNode }) {
  return (
    <Link to={to} className="crumb">
      {children}
    </Link>
  );
}

/** Says what is absent, and gives the first step. */
export function Empty({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="empty">
      <h3>{title}</h3>
      {children ? <p>{children}</p> : null}
      {action}
    </div>
  );
}

/** Placeholder lines of the final size. They appear after 200 ms, so that a quick answer does not flicker. */
export function Skeleton({ lines = 3, height = "1.1rem" }: { lines?: number; height?: string }) {
  const t = useText();
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="stack tight" role="status" aria-busy="true">
      <span className="visually-hidden">{t("load.loading")}</span>
      {Array.from({ length: lines }, (_, line) => (
        <span
          key={line}
          className={shown ? "skeleton" : undefined}
          style={{ blockSize: height, inlineSize: `${92 - ((line * 23) % 41)}%` }}
        />
      ))}
    </div>
  );
}

/** Facts as terms and descriptions. */
export function Facts({ items }: { items: [ReactNode, ReactNode][] }) {
  return (
    <dl className="facts">
      {items.map(([term, description], index) => (
        <FactPair key={index} term={term} description={description} />
      ))}
    </dl>
  );
}

function FactPair({ term, description }: { term: ReactNode; description: ReactNode }) {
  return (
    <>
      <dt>{term}</dt>
      <dd>{description}</dd>
    </>
  );
}
