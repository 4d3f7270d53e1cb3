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
mod letter;
mod message;
mod pace;
mod queue;
mod settings;
mod smtp;
pub(crate) mod words;

use std::collections::HashMap;
use std::time::Duration;

use millrace_ix_model::{is_mail_address, reason};
use millrace_types::Time;

pub(crate) use letter::Letter;
pub(crate) use queue::Mail;
pub use settings::{MailError, MailSettings};

use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use queue::PREFIX;
use smtp::Outcome;

/// The purpose string of sealed letters.
const PURPOSE: &str = "mail";
/// The delay before the first retry.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest delay between two tries of a letter that the relay does not take now.
const RETRY_MAX: Duration = Duration::from_secs(300);
/// The longest delay between two tries to reach the relay, which is on this machine.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// The largest number of letters that wait. A notice to 1,000 members with four contacts each fits.
const WAITING_MAX: usize = 10_000;

impl Mail {
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
    smtp::send(settings.relay, &settings.from, &letter.to, &message).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
