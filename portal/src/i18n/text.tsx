import { createContext, useCallback, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { I18nProvider } from "react-aria-components";
import { IntlProvider, useIntl } from "react-intl";

import type { Coded } from "../api/types";
import {
  LANGUAGES,
  loadMessages,
  preferredLanguage,
  reasonId,
  type Language,
  type MessageId,
  type Messages,
} from "./messages";

export type Values = Record<string, string | number | Date>;
/**
 * Renders messages; `reason` renders what the engine says, and returns its English text where the language has no words
 * for it.
 */
export type Translate = ((id: MessageId, values?: Values) => string) & {
  reason: (coded: readonly Coded[] | undefined, text: string) => string;
};

/** Returns a function that renders messages in the chosen language. */
export function useText(): Translate {
  const intl = useIntl();
  return useMemo(() => {
    const t = (id: MessageId, values?: Values) => intl.formatMessage({ id }, values);
    const reason = (coded: readonly Coded[] | undefined, text: string) => {
      const isKnown = coded?.length && coded.every(({ code }) => reasonId(code) in intl.messages);
      if (!isKnown) return text;
      const sentences = coded.map(({ code, values }) => intl.formatMessage({ id: reasonId(code) }, values));
      return sentences.reduce((one, other) => t("text.sentences", { one, other }));
    };
    return Object.assign(t, { reason });
  }, [intl]);
}

const Chosen = createContext<{ language: Language; choose: (language: Language) => void }>({
  language: "en",
  choose: () => {},
});

export function useLanguage() {
  return useContext(Chosen);
}

/** The time in ms after which a page without any language loads again. */
const RETRY = 5_000;

/** Provides the messages of the chosen language, and remembers the choice. */
export function Language({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState(() => preferredLanguage(stored("language"), navigator.languages));
  const [loaded, setLoaded] = useState<{ language: Language; messages: Messages }>();
  const shown = useRef<Language>(undefined);
  useEffect(() => {
    let current = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    loadMessages(language).then(
      (messages) => {
        if (!current) return;
        document.documentElement.lang = language;
        shown.current = language;
        setLoaded({ language, messages });
      },
      () => {
        // The network is gone, or an upgrade has removed the files of this page: the former language stays.
        if (!current) return;
        if (shown.current) setLanguage(shown.current);
        else timer = setTimeout(() => location.reload(), RETRY);
      },
    );
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [language]);
  const choose = useCallback((chosen: Language) => {
    try {
      localStorage.setItem("language", chosen);
    } catch {
      // Without storage the choice lasts as long as the page.
    }
    setLanguage(chosen);
  }, []);
  if (!loaded) return null;
  return (
    <Chosen value={{ language: loaded.language, choose }}>
      <Localized {...loaded}>{children}</Localized>
    </Chosen>
  );
}

/** Provides the given messages. */
export function Localized({
  language,
  messages,
  children,
}: {
  language: Language;
  messages: Messages;
  children: ReactNode;
}) {
  return (
    <IntlProvider locale={language} messages={messages} defaultLocale="en">
      <I18nProvider locale={language}>{children}</I18nProvider>
    </IntlProvider>
  );
}

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export { LANGUAGES };
