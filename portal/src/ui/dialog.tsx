import { useRef, useState, type ReactNode } from "react";
import { Dialog as AriaDialog, DialogTrigger, Heading, Modal, ModalOverlay } from "react-aria-components";

import { idempotencyKey } from "../api/client";
import { useText } from "../i18n/text";
import { Form } from "./fields";
import { explain } from "./loaded";
import { Button, Notice } from "./parts";

type Act = {
  /** The text of the button that opens the dialog and of the one that confirms. */
  label: string;
  /** The title of the dialog: a question or an act in words. */
  title: string;
  /** One sentence that says what happens. */
  sentence: ReactNode;
  kind?: "primary" | "danger" | "plain";
  children?: ReactNode;
  /**
   * Performs the act. The dialog closes if it succeeds, and shows the error if it does not. `keyOf` returns the
   * idempotency key of an order: the same one for the same order while the dialog is open, so that an order whose
   * answer was lost is done once.
   */
  act: (keyOf: (order: unknown) => string) => Promise<unknown>;
  isDisabled?: boolean;
  /** True while the dialog does not yet say what the act does: it cannot be confirmed. */
  isUnready?: boolean;
  onOpen?: () => void;
  /** Called with true when the dialog opens, and with false when it closes; see `useAsOpened`. */
  hold?: (open: boolean) => void;
};

/**
 * Returns a value that a live update does not change while a dialog is open: the dialog keeps the act that the reader
 * has opened, and its order names the revision that the reader has seen. The second value is the `hold` of the dialogs.
 */
export function useAsOpened<T>(live: T): [T, (open: boolean) => void] {
  const [opened, setOpened] = useState<{ value: T }>();
  return [opened ? opened.value : live, (open) => setOpened(open ? { value: live } : undefined)];
}

/** A button whose act is confirmed in a sentence before it is done. */
export function ConfirmedAct({
  label,
  title,
  sentence,
  kind = "plain",
  children,
  act,
  isDisabled = false,
  isUnready = false,
  onOpen,
  hold,
}: Act) {
  const t = useText();
  const [open, setOpen] = useState(false);
  const [pending, setPending] = useState(false);
  const [error, setError] = useState<unknown>();
  const keys = useRef(new Map<string, string>());
  const keyOf = (order: unknown) => {
    const text = JSON.stringify(order);
    const key = keys.current.get(text) ?? idempotencyKey();
    keys.current.set(text, key);
    return key;
  };
  const perform = () => {
    if (isUnready) return;
    setPending(true);
    setError(undefined);
    act(keyOf).then(
      () => {
        setPending(false);
        setOpen(false);
        hold?.(false);
      },
      (reason: unknown) => {
        setPending(false);
        setError(reason);
      },
    );
  };
  const change = (next: boolean) => {
    if (pending) return;
    setError(undefined);
    setOpen(next);
    keys.current.clear();
    hold?.(next);
    if (next) onOpen?.();
  };
  return (
    <DialogTrigger isOpen={open} onOpenChange={change}>
      <Button kind={kind} isDisabled={isDisabled}>
        {label}
      </Button>
      <ModalOverlay className="veil" isDismissable={!pending}>
        <Modal className="modal">
          <AriaDialog className="dialog">
            <Heading slot="title">{title}</Heading>
            <Form onSubmit={perform} pending={pending}>
              <p>{sentence}</p>
              {children}
              {error === undefined ? null : <Notice tone="bad" title={explain(t, error)} live />}
              <div className="buttons">
                <Button kind="quiet" onPress={() => change(false)} isDisabled={pending}>
                  {t("act.cancel")}
                </Button>
                <Button
                  type="submit"
                  kind={kind === "plain" ? "primary" : kind}
                  isPending={pending}
                  isDisabled={isUnready}
                >
                  {label}
                </Button>
              </div>
            </Form>
          </AriaDialog>
        </Modal>
      </ModalOverlay>
    </DialogTrigger>
  );
}
