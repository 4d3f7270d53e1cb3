import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";

import type { MessageId } from "../i18n/messages";
import { useText } from "../i18n/text";
import { Button } from "../ui/parts";
import { useSingleKeys } from "./singlekeys";

/** The addresses to which `g` and a letter lead. */
export type Jump = { letter: string; to: string; name: MessageId };

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
  );
}

/** Keys that work on every screen: `?` lists them, `/` searches, `g` and a letter jump. */
export function Shortcuts({ jumps, onSearch }: { jumps: Jump[]; onSearch: () => void }) {
  const t = useText();
  const navigate = useNavigate();
  const [listed, setListed] = useState(false);
  const waiting = useRef(0);
  const enabled = useSingleKeys();
  useEffect(() => {
    if (!enabled) return undefined;
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return;
      if (document.querySelector("[role=dialog]")) return;
      if (event.key === "?") {
        event.preventDefault();
        setListed(true);
      } else if (event.key === "/") {
        event.preventDefault();
        onSearch();
      } else if (event.key === "g") {
        waiting.current = Date.now();
      } else if (Date.now() - waiting.current < 1_500) {
        waiting.current = 0;
        const jump = jumps.find((jump) => jump.letter === event.key);
        if (jump) {
          event.preventDefault();
          void navigate({ to: jump.to });
        }
      }
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, [enabled, jumps, navigate, onSearch]);
  return (
    <ModalOverlay className="veil" isOpen={listed} onOpenChange={setListed} isDismissable>
      <Modal className="modal">
        <Dialog className="dialog">
          <Heading slot="title">{t("keys.title")}</Heading>
          <dl className="facts">
            <Keys keys={["?"]} name={t("keys.list")} />
            <Keys keys={["/"]} name={t("keys.search")} />
            {jumps.map((jump) => (
              <Keys key={jump.letter} keys={["g", jump.letter]} name={t(jump.name)} />
            ))}
          </dl>
          <div className="buttons">
            <Button onPress={() => setListed(false)}>{t("act.close")}</Button>
          </div>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

function Keys({ keys, name }: { keys: string[]; name: string }) {
  return (
    <>
      <dt>
        {keys.map((key) => (
          <kbd key={key} className="key">
            {key}
          </kbd>
        ))}
      </dt>
      <dd>{name}</dd>
    </>
  );
}
