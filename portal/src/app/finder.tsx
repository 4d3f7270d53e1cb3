import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import {
  Autocomplete,
  Dialog,
  Heading,
  Input,
  Label,
  ListBox,
  ListBoxItem,
  Modal,
  ModalOverlay,
  SearchField,
  Text,
} from "react-aria-components";

import { accounts, connections, services } from "../api/queries";
import type { Account, Connection, Service } from "../api/types";
import { useText } from "../i18n/text";
import { holdDuringComposition } from "../ui/fields";
import { Ident } from "../ui/ident";
import { explain } from "../ui/loaded";
import { useMe } from "./shell";

type Found = {
  id: string;
  name: string;
  kind: "search.service" | "search.connection" | "search.account";
  words: string;
  to: string;
};

/**
 * Returns everything that can be found, with the words by which it is found: ids, names, VLANs, MAC addresses, ASNs.
 */
export function searchIndex(services: Service[], connections: Connection[], accounts: Account[]): Found[] {
  const found: Found[] = [];
  for (const service of services) {
    const words = [service.id, service.name, service.account.name, service.peer?.name ?? ""];
    for (const end of service.ends) {
      words.push(
        end.id,
        end.vlan_text ?? "",
        end.account.name,
        ...end.account.asns.map((asn) => `AS${asn}`),
        ...end.macs.map((mac) => mac.address),
        ...end.ips.map((ip) => ip.address),
      );
    }
    found.push({
      id: service.id,
      name: service.name,
      kind: "search.service",
      words: words.join(" "),
      to: `/services/${service.id}`,
    });
  }
  for (const connection of connections) {
    const words = [
      connection.id,
      connection.name,
      connection.account.name,
      connection.site,
      ...connection.ports.map((port) => port.id),
    ];
    found.push({
      id: connection.id,
      name: connection.name,
      kind: "search.connection",
      words: words.join(" "),
      to: `/connections#${connection.id}`,
    });
  }
  for (const account of accounts) {
    const words = [account.id, account.name, ...account.asns.map((asn) => `AS${asn}`)];
    found.push({
      id: account.id,
      name: account.name,
      kind: "search.account",
      words: words.join(" "),
      to: `/members#${account.id}`,
    });
  }
  return found;
}

/** Returns true if `words` contains every word of `text`, in upper or lower case. */
export function matches(words: string, text: string): boolean {
  const lower = words.toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((part) => lower.includes(part));
}

/** The search over everything, which `/` opens. */
export function Finder({ open, onOpenChange }: { open: boolean; onOpenChange: (open: boolean) => void }) {
  return (
    <ModalOverlay className="veil finder-veil" isOpen={open} onOpenChange={onOpenChange} isDismissable>
      <Modal className="modal">
        <Dialog className="dialog">
          <Found close={() => onOpenChange(false)} />
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}

export function Found({ close }: { close: () => void }) {
  const t = useText();
  const me = useMe();
  const navigate = useNavigate();
  const [text, setText] = useState("");
  const [all, links, members] = [
    useQuery(services),
    useQuery(connections),
    useQuery({ ...accounts, enabled: me.operator }),
  ];
  const index = useMemo(
    () => searchIndex(all.data ?? [], links.data ?? [], members.data ?? []),
    [all.data, links.data, members.data],
  );
  // The search says that nothing matches only after all lists were read.
  const reads = [all, links, members];
  const failed = reads.find((read) => read.isError && read.data === undefined);
  const none = failed
    ? explain(t, failed.error)
    : t(reads.some((read) => read.isLoading) ? "load.loading" : "search.none");
  const items = useMemo(
    () => (text.trim() === "" ? [] : index.filter((item) => matches(item.words, text.trim())).slice(0, 30)),
    [index, text],
  );
  return (
    <>
      <Heading slot="title">{t("search.title")}</Heading>
      <Autocomplete inputValue={text} onInputChange={setText}>
        <SearchField className="field" autoFocus>
          <Label className="visually-hidden">{t("search.title")}</Label>
          <Input className="input" placeholder={t("search.hint")} onKeyDownCapture={holdDuringComposition} />
        </SearchField>
        <ListBox
          className="options"
          aria-label={t("search.results")}
          items={items}
          selectionMode="none"
          onAction={(key) => {
            const item = items.find((item) => item.id === key);
            if (!item) return;
            close();
            const [path, hash] = item.to.split("#");
            void navigate({ to: path ?? "/", ...(hash ? { hash } : {}) });
          }}
          renderEmptyState={() => <p className="option quiet">{text.trim() === "" ? t("search.begin") : none}</p>}
        >
          {(item) => (
            <ListBoxItem id={item.id} textValue={item.name} className="option">
              <Text slot="label">{item.name}</Text>
              <Text slot="description" className="hint">
                {t(item.kind)} <Ident id={item.id} />
              </Text>
            </ListBoxItem>
          )}
        </ListBox>
      </Autocomplete>
    </>
  );
}
