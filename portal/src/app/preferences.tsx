import { Header, Menu as AriaMenu, MenuItem, MenuSection, MenuTrigger, Popover } from "react-aria-components";

import { isLanguage } from "../i18n/messages";
import { LANGUAGES, useLanguage, useText } from "../i18n/text";
import { Check } from "../ui/icons";
import { Button } from "../ui/parts";
import { setSingleKeys, useSingleKeys } from "./singlekeys";
import { setTheme, THEMES, useTheme, type Theme } from "./theme";

/** The menu of languages and colour schemes; with a session also the sign-out. */
export function Preferences({ onSignOut, label }: { onSignOut?: () => void; label?: string }) {
  const t = useText();
  const { language, choose } = useLanguage();
  const theme = useTheme();
  const singleKeys = useSingleKeys();
  return (
    <MenuTrigger>
      <Button kind="quiet">{label ?? `${LANGUAGES[language]}`}</Button>
      <Popover className="popover" placement="bottom end">
        <AriaMenu
          className="menu"
          aria-label={t("prefs.title")}
          onAction={(key) => {
            if (key === "signout") onSignOut?.();
          }}
        >
          <MenuSection
            selectionMode="single"
            selectedKeys={[language]}
            onSelectionChange={(keys) => [...keys].forEach((key) => isLanguage(key) && choose(key))}
          >
            <Header className="menu-title">{t("prefs.language")}</Header>
            {Object.entries(LANGUAGES).map(([id, name]) => (
              <MenuItem key={id} id={id} textValue={name} className="menu-item">
                <span lang={id}>{name}</span>
                <Check />
              </MenuItem>
            ))}
          </MenuSection>
          <MenuSection
            selectionMode="single"
            selectedKeys={[theme]}
            onSelectionChange={(keys) => [...keys].forEach((key) => setTheme(key as Theme))}
          >
            <Header className="menu-title">{t("prefs.theme")}</Header>
            {THEMES.map((id) => (
              <MenuItem key={id} id={id} textValue={t(`prefs.theme.${id}`)} className="menu-item">
                <span>{t(`prefs.theme.${id}`)}</span>
                <Check />
              </MenuItem>
            ))}
          </MenuSection>
          {onSignOut ? (
            <MenuSection
              selectionMode="multiple"
              selectedKeys={singleKeys ? ["keys"] : []}
              onSelectionChange={(keys) => setSingleKeys(keys === "all" || keys.has("keys"))}
            >
              <Header className="menu-title">{t("prefs.keyboard")}</Header>
              <MenuItem id="keys" textValue={t("prefs.singleKeys")} className="menu-item">
                <span>{t("prefs.singleKeys")}</span>
                <Check />
              </MenuItem>
            </MenuSection>
          ) : null}
          {onSignOut ? (
            <MenuSection>
              <Header className="menu-title">{t("prefs.session")}</Header>
              <MenuItem id="signout" className="menu-item">
                {t("act.signOut")}
              </MenuItem>
            </MenuSection>
          ) : null}
        </AriaMenu>
      </Popover>
    </MenuTrigger>
  );
}
