import { useEffect, useState } from "react";

import { useText } from "../i18n/text";
import { explain } from "./loaded";
import { Button, Notice } from "./parts";

/** An act that was done, and its opposite. */
export type Done = { sentence: string; undo: () => Promise<unknown>; at: number };

const SECONDS = 30;

/** Says what was done, and takes it back on request for 30 s. */
export function UndoBar({ done, onGone }: { done: Done; onGone: () => void }) {
  const t = useText();
  const [left, setLeft] = useState(SECONDS);
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const tick = () => {
      const rest = SECONDS - Math.floor((Date.now() - done.at) / 1000);
      setLeft(Math.max(0, rest));
      if (rest <= 0) onGone();
    };
    tick();
    const timer = setInterval(tick, 500);
    return () => clearInterval(timer);
  }, [done, onGone]);
  const undo = () => {
    setPending(true);
    done.undo().then(onGone, (reason: unknown) => {
      setPending(false);
      setError(reason);
    });
  };
  return (
    <Notice tone={error === undefined ? "ok" : "bad"} title={<span role="status">{error === undefined ? done.sentence : explain(t, error)}</span>}>
      <Button onPress={undo} isPending={pending}>
        {t("undo.act", { seconds: left })}
      </Button>
    </Notice>
  );
}
