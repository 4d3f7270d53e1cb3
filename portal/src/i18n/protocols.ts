import names from "./protocols.json";
import type { Translate } from "./text";

const NAMES: Record<string, string> = names;

/** Returns the name of an IP protocol, such as "UDP", or words with its number if the IANA's registry has no name. */
export function protocolName(t: Translate, protocol: number): string {
  return NAMES[protocol] ?? t("protocol.unnamed", { number: String(protocol) });
}
