import { useEffect, useState } from "react";

import { useText } from "../i18n/text";
import { explain } from "./loaded";
import { Button, Notice } from "./parts";

/** An act that was done, and its opposite. */
export type Done = { sentence: string; undo: () => Promise<unknown>; at: number };

const SECONDS = 30;

/** Says what was done, and takes it back on request for 30 s, or for 30 s after a try that failed. */
export function UndoBar({ done, onGone }: { done: Done; onGone: (done: Done) => void }) {
  const t = useText();
  const [left, setLeft] = useState(SECONDS);
  const [since, setSince] = useState(done.at);
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    if (pending) return undefined;
    const tick = () => {
      const rest = SECONDS - Math.floor((Date.now() - since) / 1000);
      setLeft(Math.max(0, rest));
      if (rest <= 0) onGone(done);
    };
    tick();
    const timer = setInterval(tick, 500);
    return () => clearInterval(timer);
  }, [done, since, pending, onGone]);
  const undo = () => {
    setPending(true);
    setError(undefined);
    done.undo().then(
      () => onGone(done),
      (reason: unknown) => {
        setPending(false);
        setSince(Date.now());
        setError(reason);
      },
    );
  };
  return (
    <Notice
      tone={error === undefined ? "ok" : "bad"}
      title={<span role="status">{error === undefined ? done.sentence : explain(t, error)}</span>}
    >
      <Button onPress={undo} isPending={pending}>
        {t("undo.act", { seconds: left })}
      </Button>
    </Notice>
  );
}
