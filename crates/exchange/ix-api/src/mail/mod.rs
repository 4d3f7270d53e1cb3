//! Mail of the exchange to people: links for passwords and second factors, notices of maintenance.
//!
//! ```text
//!  route --> Mail::post: sealed in the store --> task: one try after the other --> SMTP relay
//!                                                  +-- 2xx: removed
//!                                                  +-- 5xx about the letter: removed, with a line in the log
//!                                                  +-- 4xx about the letter: again after 1 s, 2 s, 4 s ... 5 min
//!                                                  +-- no relay, or another answer: all wait, 1 s, 2 s, 4 s ... 1 min
//! ```
//! A letter is in the store before its request is answered, so that no restart loses it; after a crash between the relay's
//! answer and the removal it is sent twice, with the same Message-ID. Letters are sealed, because links are secrets. A letter is given
//! up at its end: 48 hours, or the end of its link.

pub(crate) mod calendar;
mod message;
mod pace;
mod smtp;
pub(crate) mod words;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_ix_model::{AccountId, Timestamp, is_mail_address, reason};
use millrace_types::Time;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::session::{CredentialError, CredentialStore};
use pace::Pace;
use smtp::Outcome;
use words::{Language, Text};

/// The prefix of the store keys of letters that wait. The number of the letter follows, with leading zeros.
const PREFIX: &str = "mail/";
/// The purpose string of sealed letters.
const PURPOSE: &str = "mail";
/// The delay before the first retry.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest delay between two tries of a letter that the relay does not take now.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// The longest delay between two tries to reach the relay, which is on this machine.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// The time after which a letter without another end is given up.
const TRIED_FOR: Duration = Duration::from_secs(48 * 3600);
/// The time for one try.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The largest number of letters that wait. A notice to 1,000 members with four contacts each fits.
const WAITING_MAX: usize = 10_000;

/// The mail of an exchange is not configured correctly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MailError {
    /// The address of the sender is none.
    #[error("api.mail.from {text}: expected a mail address, such as noc@ix.example")]
    From {
        /// The text of the setting.
        text: String,
    },
    /// The relay is none on this machine.
    #[error(
        "api.mail.relay {relay}: expected a loopback address; a mail server on this machine speaks TLS to others"
    )]
    Relay {
        /// The value of the setting.
        relay: SocketAddr,
    },
    /// The address of the page is none.
    #[error(
        "api.mail.page {text}: expected the address of the page by HTTPS, such as https://ix.example: links in letters are secrets"
    )]
    Page {
        /// The text of the setting.
        text: String,
    },
    /// There are no letters in this language.
    #[error("api.mail.language {text}: expected en, ja or ko")]
    Language {
        /// The text of the setting.
        text: String,
    },
}

/// Returns true if links with this beginning travel by TLS, or do not leave the machine.
fn is_page(page: &str) -> bool {
    let is_here = |rest: &str| {
        let host = rest.split(['/', ':']).next();
        matches!(host, Some("localhost" | "127.0.0.1")) || rest.starts_with("[::1]")
    };
    let is_plain = !page
        .chars()
        .any(|char| char.is_whitespace() || char.is_control() || char == '#');
    let https = page.strip_prefix("https://");
    let is_safe =
        https.is_some_and(|rest| !rest.is_empty()) || page.strip_prefix("http://").is_some_and(is_here);
    is_plain && is_safe
}

/// The way to the relay, and what letters say of their sender.
#[derive(Debug, Clone)]
pub struct MailSettings {
    relay: SocketAddr,
    from: String,
    /// The address of the page, without a slash at its end.
    page: String,
    language: Language,
}

impl MailSettings {
    /// Returns the settings for a relay on this machine.
    ///
    /// # Errors
    /// [`MailError`].
    pub fn new(relay: SocketAddr, from: &str, page: &str, language: &str) -> Result<MailSettings, MailError> {
        if !relay.ip().to_canonical().is_loopback() {
            return Err(MailError::Relay { relay });
        }
        if !is_mail_address(from) || !from.is_ascii() {
            return Err(MailError::From {
                text: from.to_owned(),
            });
        }
        if !is_page(page) {
            return Err(MailError::Page {
                text: page.to_owned(),
            });
        }
        let language = Language::with_code(language).ok_or_else(|| MailError::Language {
            text: language.to_owned(),
        })?;
        Ok(MailSettings {
            relay,
            from: from.to_owned(),
            page: page.trim_end_matches('/').to_owned(),
            language,
        })
    }

    /// Returns the address of a page, such as `https://ix.example/link`.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("{}{path}", self.page)
    }

    /// Returns the mail address of the sender.
    pub(crate) fn sender(&self) -> &str {
        &self.from
    }

    /// Returns the language of people who have chosen none.
    pub(crate) fn language(&self) -> Language {
        self.language
    }
}

/// A letter that waits for the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The mail address.
    pub(crate) to: String,
    pub(crate) text: Text,
    /// An iCalendar object (RFC 5545) that is attached.
    pub(crate) calendar: Option<String>,
    /// The time at which the letter was posted.
    pub(crate) posted: Timestamp,
    /// The time after which the letter is given up.
    pub(crate) until: Timestamp,
}

impl Letter {
    /// Returns a letter without a calendar, which is tried for 48 hours.
    pub(crate) fn new(to: String, text: Text, posted: Timestamp) -> Letter {
        Letter {
            to,
            text,
            calendar: None,
            posted,
            until: posted.after(TRIED_FOR),
        }
    }
}

/// The letters that wait, and the task that sends them.
#[derive(Default)]
pub(crate) struct Mail {
    wake: Notify,
    queue: Mutex<Queue>,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Queue {
    /// The number of the last letter.
    last: u64,
    /// The keys of the letters that wait, in the order of their posting.
    waiting: BTreeSet<String>,
}

impl Mail {
    /// Returns the letters of a store.
    pub(crate) async fn load(store: &dyn CredentialStore) -> Result<Mail, CredentialError> {
        let stored = store.list(PREFIX).await?.into_iter();
        let waiting: BTreeSet<String> = stored.map(|(key, _)| key).collect();
        let last = waiting.last();
        let last = last.and_then(|key| key.trim_start_matches(PREFIX).parse().ok());
        let queue = Queue {
            last: last.unwrap_or(0),
            waiting,
        };
        Ok(Mail {
            queue: Mutex::new(queue),
            ..Mail::default()
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of letters that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().waiting.len()
    }

    /// Counts a letter with a link to a person of an account, of whom the last letter must be `gap` old.
    ///
    /// # Errors
    /// A problem if there were too many; the letter then does not count.
    pub(crate) fn admit(
        &self,
        address: &str,
        account: AccountId,
        gap: Duration,
        now: Time,
    ) -> Result<(), Problem> {
        self.pace.admit(address, account, gap, now).map_err(|wait| {
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            Problem::because(ProblemKind::Busy, reason::letters_too_many())
                .with_code("too-many-letters")
                .retry_after(seconds)
        })
    }

    /// Checks that there is room for further letters, so that an act whose letters would not be sent is refused before it is done.
    ///
    /// # Errors
    /// A problem if the exchange sends no mail, or too many letters wait.
    pub(crate) fn check_room(&self, app: &App, letters: usize) -> Result<(), Problem> {
        if app.settings.mail.is_none() {
            return Err(off());
        }
        if self.waiting() + letters > WAITING_MAX {
            let detail = "too many letters wait for the mail relay: check its log";
            return Err(Problem::new(ProblemKind::Unavailable, detail).retry_after(60));
        }
        Ok(())
    }

    /// Stores letters, and wakes the task that sends them.
    ///
    /// # Errors
    /// A problem if the exchange sends no mail, or too many letters wait.
    pub(crate) async fn post(&self, app: &App, letters: &[Letter]) -> Result<(), Problem> {
        self.check_room(app, letters.len())?;
        for letter in letters {
            let bytes = serde_json::to_vec(letter)
                .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
            let sealed = app
                .sealer
                .seal(PURPOSE, &bytes)
                .map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
            let number = {
                let mut queue = self.queue();
                queue.last += 1;
                queue.last
            };
            let key = format!("{PREFIX}{number:016}");
            app.credentials.save(&key, Some(&sealed)).await?;
            self.queue().waiting.insert(key);
        }
        self.wake.notify_one();
        Ok(())
    }

    /// Removes a letter. If the store fails, the letter is sent again after a restart, with the same Message-ID.
    async fn forget(&self, app: &App, key: &str) {
        if let Err(error) = app.credentials.save(key, None).await {
            tracing::warn!(%error, letter = key, "a letter that is done stays in the store");
        }
        self.queue().waiting.remove(key);
    }
}

/// Returns the problem of an exchange without mail.
pub(crate) fn off() -> Problem {
    Problem::because(ProblemKind::Conflict, reason::mail_off()).with_code("mail-off")
}

/// Starts the task that sends letters, if the exchange sends mail. The runtime ends it with the process.
pub(crate) fn start(app: &App) {
    let Some(settings) = app.settings.mail.clone() else {
        return;
    };
    let app = app.clone();
    tokio::spawn(async move {
        let mut plan = Plan::default();
        loop {
            let next = round(&app, &settings, &mut plan).await;
            tokio::select! {
                () = app.mail.wake.notified() => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    });
}

/// The time of the next try, and the delay before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Retry {
    due: Time,
    delay: Duration,
}

impl Retry {
    /// Returns the try after a failed one: the delay doubles up to a maximum.
    fn after(last: Option<Retry>, max: Duration, now: Time) -> Retry {
        let delay = last.map_or(RETRY_FIRST, |last| (last.delay * 2).min(max));
        Retry {
            due: now + delay,
            delay,
        }
    }
}

/// The tries to come.
#[derive(Debug, Default)]
struct Plan {
    /// The next try to reach the relay, if the last one failed.
    away: Option<Retry>,
    /// The next tries of letters that the relay did not take, by key.
    deferred: HashMap<String, Retry>,
}

/// Tries each letter that is due once. Returns the time until the next one is due.
async fn round(app: &App, settings: &MailSettings, plan: &mut Plan) -> Duration {
    if let Some(away) = plan.away.filter(|away| app.uptime() < away.due) {
        return away.due.since(app.uptime());
    }
    let waiting = app.mail.queue().waiting.clone();
    plan.deferred.retain(|key, _| waiting.contains(key));
    for key in &waiting {
        let last = plan.deferred.get(key).copied();
        if last.is_some_and(|retry| app.uptime() < retry.due) {
            continue;
        }
        let outcome = attempt(app, settings, key).await;
        let now = app.uptime();
        if !matches!(outcome, Outcome::Away(_)) {
            plan.away = None;
        }
        match outcome {
            Outcome::Sent => app.mail.forget(app, key).await,
            Outcome::Refused(reason) => {
                tracing::warn!(letter = key, reason, "a letter is not sent");
                app.mail.forget(app, key).await;
            }
            Outcome::Deferred(reason) => {
                let retry = Retry::after(last, RETRY_MAX, now);
                tracing::info!(letter = key, reason, delay = ?retry.delay, "a letter waits");
                plan.deferred.insert(key.clone(), retry);
            }
            Outcome::Away(reason) => {
                let away = Retry::after(plan.away, AWAY_MAX, now);
                let relay = settings.relay;
                tracing::warn!(%relay, reason, delay = ?away.delay, "the mail relay takes no letters: they wait");
                plan.away = Some(away);
                return away.delay;
            }
        }
    }
    let now = app.uptime();
    let dues = plan.deferred.values().map(|retry| retry.due.since(now));
    dues.min().unwrap_or(RETRY_MAX).max(Duration::from_millis(50))
}

/// Tries a letter that waits.
async fn attempt(app: &App, settings: &MailSettings, key: &str) -> Outcome {
    let sealed = match app.credentials.load(key).await {
        Ok(Some(sealed)) => sealed,
        Ok(None) => return Outcome::Refused("the letter is not in the store any more".to_owned()),
        Err(error) => return Outcome::Deferred(error.to_string()),
    };
    let opened = app.sealer.open(PURPOSE, &sealed).ok();
    let Some(letter) = opened.and_then(|bytes| serde_json::from_slice::<Letter>(&bytes).ok()) else {
        return Outcome::Refused("the stored letter cannot be read".to_owned());
    };
    if letter.until < app.now() {
        return Outcome::Refused("its time is over".to_owned());
    }
    // The commands of SMTP and the headers contain the address as it is.
    if !letter.to.is_ascii() || !is_mail_address(&letter.to) {
        return Outcome::Refused("the address is no mail address in ASCII".to_owned());
    }
    let number = key.trim_start_matches(PREFIX);
    let message = message::message(&app.settings.name, &settings.from, number, &letter);
    let sent = smtp::send(settings.relay, &settings.from, &letter.to, &message);
    match tokio::time::timeout(TIMEOUT, sent).await {
        Ok(outcome) => outcome,
        Err(_) => Outcome::Away("the relay does not answer in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_are_named_with_what_was_expected() {
        let new = |relay: &str, from: &str, page: &str| {
            MailSettings::new(relay.parse().unwrap(), from, page, "en")
                .unwrap_err()
                .to_string()
        };
        let page = "https://ix.example";
        assert!(new("192.0.2.1:25", "noc@ix.example", page).contains("api.mail.relay 192.0.2.1:25"));
        assert!(new("127.0.0.1:25", "noc", page).contains("api.mail.from noc"));
        for wrong in [
            "ix.example",
            "https://",
            "http://ix.example",
            "http://localhost.example",
            "https://ix.example/#x",
            "https://ix.example\r\nx",
        ] {
            let error = new("127.0.0.1:25", "noc@ix.example", wrong);
            assert!(error.contains("api.mail.page"), "{wrong:?}: {error}");
        }
        let klingon = MailSettings::new("127.0.0.1:25".parse().unwrap(), "noc@ix.example", page, "tlh");
        assert_eq!(
            klingon.unwrap_err().to_string(),
            "api.mail.language tlh: expected en, ja or ko"
        );
        let here = "http://localhost:8080";
        assert!(MailSettings::new("127.0.0.1:25".parse().unwrap(), "noc@ix.example", here, "en").is_ok());
        let good = MailSettings::new(
            "[::1]:25".parse().unwrap(),
            "noc@ix.example",
            "https://ix.example/",
            "ja",
        )
        .unwrap();
        assert_eq!(good.page("/link"), "https://ix.example/link");
        assert_eq!(good.language(), Language::Japanese);
    }

    #[test]
    fn the_delay_between_tries_doubles_up_to_its_maximum() {
        let now = Time::ZERO + Duration::from_secs(10);
        let mut last = None;
        let mut delays = Vec::new();
        for _ in 0..8 {
            let retry = Retry::after(last, AWAY_MAX, now);
            assert_eq!(retry.due, now + retry.delay);
            delays.push(retry.delay.as_secs());
            last = Some(retry);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
