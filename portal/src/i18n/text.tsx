import { createContext, useCallback, useContext, useEffect, useState, type ReactNode } from "react";
import { I18nProvider } from "react-aria-components";
import { IntlProvider, useIntl } from "react-intl";

import { LANGUAGES, loadMessages, preferredLanguage, type Language, type MessageId, type Messages } from "./messages";

export type Values = Record<string, string | number | Date>;
export type Translate = (id: MessageId, values?: Values) => string;

/** Returns a function that renders messages in the chosen language. */
export function useText(): Translate {
  const intl = useIntl();
  return useCallback((id, values) => intl.formatMessage({ id }, values), [intl]);
}

const Chosen = createContext<{ language: Language; choose: (language: Language) => void }>({
  language: "en",
  choose: () => {},
});

export function useLanguage() {
  return useContext(Chosen);
}

/** Provides the messages of the chosen language, and remembers the choice. */
export function Language({ children }: { children: ReactNode }) {
  const [language, setLanguage] = useState(() => preferredLanguage(stored("language"), navigator.languages));
  const [loaded, setLoaded] = useState<{ language: Language; messages: Messages }>();
  useEffect(() => {
    let current = true;
    void loadMessages(language).then((messages) => {
      if (!current) return;
      document.documentElement.lang = language;
      setLoaded({ language, messages });
    });
    return () => {
      current = false;
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
export function Localized({ language, messages, children }: { language: Language; messages: Messages; children: ReactNode }) {
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
