//! The texts of letters in the three languages of the page.

use millrace_ix_model::Timestamp;
use serde::{Deserialize, Serialize};

/// A language of pages and mails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    Japanese,
    Korean,
}

impl Language {
    /// All languages.
    pub(crate) const ALL: [Language; 3] = [Language::English, Language::Japanese, Language::Korean];

    /// Returns the language with a code, or `otherwise` if there is no code or no such language.
    pub(crate) fn of(code: Option<&str>, otherwise: Language) -> Language {
        code.and_then(Language::with_code).unwrap_or(otherwise)
    }

    /// Returns the language with a code.
    pub(crate) fn with_code(code: &str) -> Option<Language> {
        Language::ALL.into_iter().find(|language| language.code() == code)
    }

    /// Returns the code: `en`, `ja` or `ko`.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Japanese => "ja",
            Language::Korean => "ko",
        }
    }
}

/// Subject and text of a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Text {
    pub(crate) subject: String,
    pub(crate) body: String,
}

/// The act that a link in a letter permits, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkKind {
    /// A new person chooses a password, and a second factor if the roles need one.
    Invitation,
    /// A person who has lost the password chooses a new one.
    Password,
    /// A person who has lost the second factor gets a new one, and needs the password for it.
    SecondFactor,
}

impl LinkKind {
    /// The time in hours for which the link is valid.
    pub(crate) const fn hours(self) -> u64 {
        match self {
            LinkKind::Invitation => 7 * 24,
            LinkKind::Password | LinkKind::SecondFactor => 1,
        }
    }
}

/// Returns the letter with a link.
pub(crate) fn link(language: Language, kind: LinkKind, exchange: &str, login: &str, url: &str) -> Text {
    let hours = kind.hours();
    let days = hours / 24;
    let (subject, body) = match (language, kind) {
        (Language::English, LinkKind::Invitation) => (
            format!("Your access to {exchange}"),
            format!(
                "You have a user at {exchange}: {login}\n\nOpen this link within {days} days, and choose a password:\n\n{url}\n\n\
                 The link works once."
            ),
        ),
        (Language::English, LinkKind::Password) => (
            format!("A new password for {exchange}"),
            format!(
                "Somebody asked for a new password of {login} at {exchange}.\n\nOpen this link within {hours} hour to choose one:\n\n\
                 {url}\n\nIf you did not expect this letter, ignore it: your password stays."
            ),
        ),
        (Language::English, LinkKind::SecondFactor) => (
            format!("A new second factor for {exchange}"),
            format!(
                "An administrator resets the second factor of {login} at {exchange}.\n\nOpen this link within {hours} hour. You need your \
                 password and an authenticator:\n\n{url}\n\nIf you did not expect this letter, tell your administrator."
            ),
        ),
        (Language::Japanese, LinkKind::Invitation) => (
            format!("{exchange} へのご招待"),
            format!(
                "{exchange} にあなたのユーザー {login} が作成されました。\n\n{days} 日以内に次のリンクを開き、パスワードを設定してください。\n\n{url}\n\n\
                 このリンクは一度だけ使えます。"
            ),
        ),
        (Language::Japanese, LinkKind::Password) => (
            format!("{exchange} の新しいパスワード"),
            format!(
                "{exchange} のユーザー {login} の新しいパスワードが求められました。\n\n{hours} 時間以内に次のリンクを開いて設定してください。\n\n{url}\n\n\
                 心当たりがない場合はこのメールを無視してください。パスワードは変わりません。"
            ),
        ),
        (Language::Japanese, LinkKind::SecondFactor) => (
            format!("{exchange} の新しい二要素認証"),
            format!(
                "管理者が {exchange} のユーザー {login} の二要素認証をリセットします。\n\n{hours} 時間以内に次のリンクを開いてください。パスワードと認証アプリが必要です。\n\n{url}\n\n\
                 心当たりがない場合は管理者にお知らせください。"
            ),
        ),
        (Language::Korean, LinkKind::Invitation) => (
            format!("{exchange} 초대"),
            format!(
                "{exchange}에 사용자 {login}이(가) 만들어졌습니다.\n\n{days}일 안에 다음 링크를 열어 비밀번호를 정하십시오.\n\n{url}\n\n\
                 이 링크는 한 번만 쓸 수 있습니다."
            ),
        ),
        (Language::Korean, LinkKind::Password) => (
            format!("{exchange} 새 비밀번호"),
            format!(
                "{exchange} 사용자 {login}의 새 비밀번호 요청이 있었습니다.\n\n{hours}시간 안에 다음 링크를 열어 정하십시오.\n\n{url}\n\n\
                 요청한 적이 없으면 이 메일을 무시하십시오. 비밀번호는 그대로입니다."
            ),
        ),
        (Language::Korean, LinkKind::SecondFactor) => (
            format!("{exchange} 새 2단계 인증"),
            format!(
                "관리자가 {exchange} 사용자 {login}의 2단계 인증을 초기화합니다.\n\n{hours}시간 안에 다음 링크를 여십시오. 비밀번호와 인증 앱이 필요합니다.\n\n{url}\n\n\
                 예상하지 못한 메일이면 관리자에게 알리십시오."
            ),
        ),
    };
    Text {
        subject,
        body: format!("{body}\n"),
    }
}

/// Returns the letter that tells a person that somebody used a link.
pub(crate) fn used(language: Language, exchange: &str, login: &str) -> Text {
    let (subject, body) = match language {
        Language::English => (
            format!("Your access to {exchange} has changed"),
            format!(
                "The password or the second factor of {login} at {exchange} was set by a link from a letter to this address. API keys \
                 stay: look through them on the page.\n\nIf that was not you, tell the exchange's staff at once."
            ),
        ),
        Language::Japanese => (
            format!("{exchange} のサインイン情報が変更されました"),
            format!(
                "{exchange} のユーザー {login} のパスワードまたは二要素認証が、このアドレス宛のリンクから設定されました。API キーはそのままです。ページで確認してください。\n\n\
                 心当たりがない場合は、すぐに運用担当者にお知らせください。"
            ),
        ),
        Language::Korean => (
            format!("{exchange} 로그인 정보가 바뀌었습니다"),
            format!(
                "{exchange} 사용자 {login}의 비밀번호 또는 2단계 인증이 이 주소로 보낸 링크로 설정되었습니다. API 키는 그대로이니 페이지에서 확인하십시오.\n\n\
                 본인이 아니면 바로 운영자에게 알리십시오."
            ),
        ),
    };
    Text {
        subject,
        body: format!("{body}\n"),
    }
}

/// Returns the letter that tells a person, at the former address, that letters go to another address from now on.
pub(crate) fn address_changed(language: Language, exchange: &str, login: &str) -> Text {
    let (subject, body) = match language {
        Language::English => (
            format!("Your mail address at {exchange} has changed"),
            format!(
                "Letters to {login} at {exchange} go to another address from now on, also those with links for a new password.\n\n\
                 If you did not expect this letter, tell the exchange's staff at once."
            ),
        ),
        Language::Japanese => (
            format!("{exchange} のメールアドレスが変更されました"),
            format!(
                "{exchange} のユーザー {login} 宛のメールは、新しいパスワードのリンクも含めて、今後は別のアドレスに送られます。\n\n\
                 心当たりがない場合は、すぐに運用担当者にお知らせください。"
            ),
        ),
        Language::Korean => (
            format!("{exchange} 메일 주소가 바뀌었습니다"),
            format!(
                "{exchange} 사용자 {login}에게 보내는 메일은 새 비밀번호 링크를 포함해 앞으로 다른 주소로 갑니다.\n\n\
                 예상하지 못한 메일이면 바로 운영자에게 알리십시오."
            ),
        ),
    };
    Text {
        subject,
        body: format!("{body}\n"),
    }
}

/// The version of a notice that a letter tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    New,
    Changed,
    Cancelled,
}

/// A notice as a letter tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) exchange: &'a str,
    /// True for maintenance, false for an incident.
    pub(crate) is_maintenance: bool,
    pub(crate) version: Version,
    pub(crate) title: &'a str,
    pub(crate) about: &'a str,
    pub(crate) begins: Timestamp,
    pub(crate) ends: Option<Timestamp>,
    /// The names of the recipient's connections and services that it can interrupt.
    pub(crate) touches: &'a [String],
}

/// Returns a time in UTC to the minute: `2026-11-24 01:02 UTC`.
fn minute(time: Timestamp) -> String {
    let text = time.to_string();
    format!("{} UTC", text.get(..16).unwrap_or_default().replace('T', " "))
}

/// Returns the letter about a notice.
pub(crate) fn notice(language: Language, told: &Told<'_>) -> Text {
    let (kind, version, when, hits, nothing, open) = match language {
        Language::English => (
            if told.is_maintenance {
                "Maintenance"
            } else {
                "Incident"
            },
            match told.version {
                Version::New => "",
                Version::Changed => " (changed)",
                Version::Cancelled => " (cancelled)",
            },
            "Time",
            "Yours that it can interrupt",
            "nothing of yours",
            "the end is not known yet",
        ),
        Language::Japanese => (
            if told.is_maintenance {
                "メンテナンス"
            } else {
                "障害"
            },
            match told.version {
                Version::New => "",
                Version::Changed => "（変更）",
                Version::Cancelled => "（中止）",
            },
            "日時",
            "影響を受ける可能性のある接続とサービス",
            "なし",
            "終了時刻は未定",
        ),
        Language::Korean => (
            if told.is_maintenance { "점검" } else { "장애" },
            match told.version {
                Version::New => "",
                Version::Changed => " (변경)",
                Version::Cancelled => " (취소)",
            },
            "시간",
            "영향을 받을 수 있는 연결과 서비스",
            "없음",
            "종료 시각 미정",
        ),
    };
    let ends = told.ends.map_or_else(|| open.to_owned(), minute);
    let touches = if told.touches.is_empty() {
        nothing.to_owned()
    } else {
        told.touches.join(", ")
    };
    Text {
        subject: format!("{}: {kind}{version}: {}", told.exchange, told.title),
        body: format!(
            "{kind}{version}: {}\n\n{}\n\n{when}: {} - {ends}\n{hits}: {touches}\n",
            told.title,
            told.about.trim(),
            minute(told.begins)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_letter_with_a_link_names_exchange_and_user_and_has_the_link_on_a_line_of_its_own() {
        for language in Language::ALL {
            for kind in [LinkKind::Invitation, LinkKind::Password, LinkKind::SecondFactor] {
                let text = link(language, kind, "Test IX", "ann", "https://ix.example/link#t");
                assert!(text.subject.contains("Test IX"), "{text:?}");
                assert!(text.body.contains("ann"), "{text:?}");
                assert!(
                    text.body.lines().any(|line| line == "https://ix.example/link#t"),
                    "{text:?}"
                );
            }
        }
        for language in Language::ALL {
            for text in [
                used(language, "Test IX", "ann"),
                address_changed(language, "Test IX", "ann"),
            ] {
                assert!(
                    text.subject.contains("Test IX") && text.body.contains("ann"),
                    "{text:?}"
                );
            }
        }
        assert_eq!(Language::of(Some("fr"), Language::Korean), Language::Korean);
    }

    #[test]
    fn a_notice_says_when_and_what_of_the_recipient_it_can_interrupt() {
        let touches = ["aoba-tokyo".to_owned(), "transit".to_owned()];
        let told = Told {
            exchange: "Test IX",
            is_maintenance: true,
            version: Version::Changed,
            title: "Card swap",
            about: "A line card is replaced.",
            begins: "2026-12-01T00:00:00.000Z".parse().unwrap(),
            ends: None,
            touches: &touches,
        };
        let text = notice(Language::English, &told);
        assert_eq!(text.subject, "Test IX: Maintenance (changed): Card swap");
        assert!(
            text.body
                .contains("Time: 2026-12-01 00:00 UTC - the end is not known yet\n"),
            "{text:?}"
        );
        assert!(
            text.body
                .contains("Yours that it can interrupt: aoba-tokyo, transit\n"),
            "{text:?}"
        );
        for language in Language::ALL {
            assert!(notice(language, &told).body.contains("aoba-tokyo, transit"));
        }
    }
}
