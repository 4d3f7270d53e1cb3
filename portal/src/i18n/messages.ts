import type en from "./en.json";

/** The id of a message. A call with an id that en.json lacks does not compile. */
export type MessageId = keyof typeof en;
export type Messages = Record<MessageId, string>;

export const LANGUAGES = { en: "English", ja: "日本語", ko: "한국어" } as const;
export type Language = keyof typeof LANGUAGES;

export function isLanguage(value: unknown): value is Language {
  return typeof value === "string" && value in LANGUAGES;
}

/** Returns the language that was chosen, or else the first of the browser's languages that the page has. */
export function preferredLanguage(chosen: string | null, offered: readonly string[]): Language {
  if (isLanguage(chosen)) return chosen;
  for (const tag of offered) {
    const base = tag.split("-")[0];
    if (isLanguage(base)) return base;
  }
  return "en";
}

/** Returns the id of the words for a code of the engine. */
export function reasonId(code: string): string {
  return `reason.${code}`;
}

/**
 * Returns the messages with the words for the engine's codes. English has none: the engine writes its texts in English.
 */
export function withReasons(messages: Messages, reasons: Record<string, string>): Messages {
  return { ...messages, ...Object.fromEntries(Object.entries(reasons).map(([code, text]) => [reasonId(code), text])) };
}

/** Loads the messages of one language. Each language is a file of its own, so that a browser loads only one. */
export async function loadMessages(language: Language): Promise<Messages> {
  switch (language) {
    case "ja":
      return withReasons((await import("./ja.json")).default, (await import("./reasons.ja.json")).default);
    case "ko":
      return withReasons((await import("./ko.json")).default, (await import("./reasons.ko.json")).default);
    case "en":
      return (await import("./en.json")).default;
  }
}
