//! Webhooks: events as signed HTTP requests to a URL of the member.
//!
//! ```text
//!  EventLog --> task of each webhook: next event that its user may know of
//!                 | POST, signed (Standard Webhooks: webhook-id, webhook-timestamp, webhook-signature)
//!                 +-- 2xx: next event
//!                 +-- 410: the webhook is disabled, because the receiver is gone
//!                 +-- else: again after 1 s, 2 s, 4 s ... 1 h, for 24 h; then the event is given up
//!                           (429 and 503: not before the time in Retry-After)
//! ```
//! A webhook sends one request at a time, so that events arrive in order. It has the permissions of the user
//! who created it: each event is checked against the permission table before its first request. When the user
//! is deleted, so is the webhook.

pub(crate) mod address;
mod outgoing;
mod retry_after;
mod running;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ix_model::{OperationKind, Timestamp, UserId};
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;

pub(crate) use self::outgoing::{Outgoing, agent};
pub(crate) use self::running::{Delivery, Webhooks};
use self::running::{Running, WebhookState};
use crate::access::Principal;
use crate::app::{App, actor_of};
use crate::events::Logged;
use crate::session::CredentialError;
use crate::v2::records::Record;

/// The delay before the first retry of a delivery.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// The longest delay between two tries.
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// The time after which a delivery is given up.
const TRIED_FOR: Duration = Duration::from_secs(86_400);
/// The status of a receiver that wants no events any more (RFC 9110, section 15.5.11; Standard Webhooks 1.0.0, "Deliverability").
const GONE: u16 = 410;
/// The number of past deliveries that are kept for each webhook.
const REMEMBERED: usize = 50;

/// A webhook as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Webhook {
    /// The user whose permissions the webhook has.
    pub(crate) user: UserId,
    pub(crate) url: String,
    /// The sealed secret.
    pub(crate) sealed: Vec<u8>,
    /// The time of its creation.
    pub(crate) created: Timestamp,
    /// The reason why nothing is sent any more; `None` for a webhook that works.
    #[serde(default)]
    pub(crate) disabled: Option<String>,
}

impl Record for Webhook {
    const PREFIX: &'static str = "wh";
}

/// The purpose under which the secret of a webhook is sealed.
pub(crate) const PURPOSE: &str = "webhook secret";

impl Webhooks {
    /// Starts a webhook with the events after a serial number. A running webhook is restarted from that
    /// number.
    pub(crate) fn start(&self, app: &App, id: &str, webhook: Webhook, after: u64) {
        let kept = self.running().remove(id).map(|old| old.kept.clone());
        let kept = kept.unwrap_or_else(|| WebhookState {
            deliveries: Arc::default(),
            turn: Arc::new(Semaphore::new(1)),
        });
        let sender = Sender {
            app: app.clone(),
            id: id.to_owned(),
            webhook,
            kept: kept.clone(),
        };
        let task = tokio::spawn(sender.run(after));
        self.running().insert(id.to_owned(), Running { task, kept });
    }
}

/// Returns the reason of a failed request for the member who named the URL. The answers of the exchange's resolver stay secret:
/// a name that does not exist and a name with a private address get the same reason.
const fn reason_for_members(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "there is no complete answer within 10 s",
        ureq::Error::HostNotFound => "the host of the URL has no address of the Internet",
        ureq::Error::Io(_) | ureq::Error::ConnectionFailed => "there is no connection to the host of the URL",
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => {
            "TLS fails: expected a valid certificate for the host of the URL"
        }
        ureq::Error::Protocol(_) | ureq::Error::Http(_) => "the answer violates HTTP",
        _ => "the request failed",
    }
}

/// Returns the header `webhook-signature` of a request (Standard Webhooks 1.0.0, "Signature scheme").
pub(crate) fn sign(secret: &[u8], id: &str, timestamp: u64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(tag))
}

/// A running webhook.
struct Sender {
    app: App,
    id: String,
    webhook: Webhook,
    kept: WebhookState,
}

impl Sender {
    async fn run(self, mut last: u64) {
        let mut watch = self.app.events.watch();
        loop {
            if self.is_orphaned() {
                return self.delete().await;
            }
            match self.app.events.after(last) {
                Some(events) if !events.is_empty() => {
                    for event in events {
                        if self.is_orphaned() {
                            break;
                        }
                        last = event.serial;
                        let Some(body) = self.body(&event) else {
                            continue;
                        };
                        if self.deliver(&event, &body).await.is_break() {
                            return self.disable().await;
                        }
                    }
                }
                Some(_) => {
                    if watch.changed().await.is_err() {
                        return;
                    }
                }
                // Events were missed: the receiver must read all objects again.
                None => {
                    last = self.app.events.newest();
                    let body = json!({ "kind": "reset", "serial": last }).to_string();
                    let sent = self.send(&self.app.events.id(last), last, &body).await;
                    if sent.is_break() {
                        return self.disable().await;
                    }
                }
            }
        }
    }

    /// Returns true if the user of the webhook no longer exists.
    fn is_orphaned(&self) -> bool {
        let snapshot = self.app.snapshot();
        !snapshot.exchange.users.contains_key(&self.webhook.user)
    }

    /// Deletes the webhook.
    async fn delete(&self) {
        let detail = json!({ "user": self.webhook.user.to_string() });
        let recorded = self
            .app
            .record("system", "delete_webhook", &self.id, detail)
            .await;
        let deleted = match recorded {
            Ok(()) => self
                .app
                .records
                .delete(&self.id)
                .await
                .map_err(|error| error.to_string()),
            Err(problem) => Err(problem.detail.into()),
        };
        match deleted {
            // Ends this task.
            Ok(()) => self.app.webhooks.stop(&self.id),
            Err(error) => {
                let id = &self.id;
                tracing::warn!(id, error, "a webhook without a user stays until the next start");
            }
        }
    }

    /// Ends the webhook, whose receiver does not want events any more, until somebody sends events again.
    async fn disable(&self) {
        let (id, status) = (&self.id, GONE);
        let recorded = self
            .app
            .record("system", "disable_webhook", id, json!({ "status": status }))
            .await;
        if let Err(problem) = recorded {
            let reason = problem.detail;
            tracing::warn!(id, %reason, "a webhook whose receiver is gone is tried again after the next start");
            return;
        }
        let changed = self
            .app
            .records
            .change::<Webhook, CredentialError>(id, |webhook| {
                webhook.disabled = Some(format!("the receiver answered {status} (Gone)"));
                Ok(())
            });
        if let Err(error) = changed.await {
            tracing::warn!(id, %error, "a webhook whose receiver is gone is tried again after the next start");
        }
    }

    /// Returns the body for an event; `None` if the user may not know of it.
    fn body(&self, event: &Logged) -> Option<String> {
        let snapshot = self.app.snapshot();
        let actor = actor_of(&snapshot, self.webhook.user)?;
        let principal = Principal {
            actor,
            name: String::new(),
            snapshot,
        };
        if !principal.may_somewhere(OperationKind::ReadWebhook) {
            return None;
        }
        let objects = event.visible_to(&principal);
        if objects.is_empty() {
            return None;
        }
        let body = json!({
            "kind": event.kind,
            "serial": event.serial,
            "time": event.at.to_string(),
            "objects": objects.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "change": event.change.map(|change| format!("ch-{change}")),
        });
        Some(body.to_string())
    }

    async fn deliver(&self, event: &Logged, body: &str) -> ControlFlow<()> {
        self.send(&self.app.events.id(event.serial), event.serial, body)
            .await
    }

    /// Sends a request, and repeats it until it succeeds or is given up. Breaks if the receiver is gone.
    async fn send(&self, event: &str, serial: u64, body: &str) -> ControlFlow<()> {
        let began = tokio::time::Instant::now();
        let mut pause = RETRY_FIRST;
        for tries in 1.. {
            let answer = self.post(event, body).await;
            let (status, wait, error) = match answer {
                Ok((status, _)) if (200..300).contains(&status) => (Some(status), None, None),
                Ok((status, wait)) => (Some(status), wait, Some(format!("the answer is {status}"))),
                Err(error) => (None, None, Some(error)),
            };
            let is_gone = status == Some(GONE);
            let is_late = is_gone || began.elapsed() >= TRIED_FOR;
            let is_done = error.is_none();
            self.remember(Delivery {
                event: event.to_owned(),
                serial,
                state: match (is_done, is_late) {
                    (true, _) => "delivered",
                    (false, true) => "given_up",
                    (false, false) => "retrying",
                },
                tries,
                at: self.app.now().to_string(),
                status,
                error,
            });
            if is_gone {
                return ControlFlow::Break(());
            }
            if is_done || is_late {
                return ControlFlow::Continue(());
            }
            tokio::time::sleep(wait.unwrap_or_default().max(pause).min(TRIED_FOR)).await;
            if self.is_orphaned() {
                return ControlFlow::Continue(());
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
        ControlFlow::Continue(())
    }

    fn remember(&self, delivery: Delivery) {
        let deliveries = &self.kept.deliveries;
        let mut deliveries = deliveries.lock();
        deliveries.retain(|other| other.event != delivery.event);
        deliveries.push_back(delivery);
        if deliveries.len() > REMEMBERED {
            deliveries.pop_front();
        }
    }

    /// Sends one request and returns the status of its answer, with the time for which the receiver wants no other. The timestamp is the time of this try, because
    /// a receiver refuses old timestamps.
    async fn post(&self, event: &str, body: &str) -> Result<(u16, Option<Duration>), String> {
        let secret = self
            .app
            .sealer
            .open(PURPOSE, &self.webhook.sealed)
            .map_err(|error| error.to_string())?;
        let closed = |error: tokio::sync::AcquireError| error.to_string();
        let turn = Arc::clone(&self.kept.turn)
            .acquire_owned()
            .await
            .map_err(closed)?;
        let permit = Arc::clone(&self.app.outgoing.permits).acquire_owned().await;
        let permit = permit.map_err(closed)?;
        let timestamp = self.app.wall().millis() / 1000;
        let request = self
            .app
            .outgoing
            .agent
            .post(&self.webhook.url)
            .header("content-type", "application/json")
            .header("webhook-id", event)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", sign(&secret, event, timestamp, body));
        let (body, id) = (body.to_owned(), self.id.clone());
        // The thread holds the permits, because it continues if a restart of the webhook aborts this task.
        let sent = tokio::task::spawn_blocking(move || {
            let _permits = (turn, permit);
            request.send(body)
        });
        let sent = sent.await;
        match sent {
            Ok(Ok(answer)) => {
                let status = answer.status().as_u16();
                let wait = retry_after::of(status, answer.headers(), self.app.wall());
                Ok((status, wait))
            }
            Ok(Err(error)) => {
                tracing::debug!(webhook = id, %error, "a webhook was not delivered");
                Err(reason_for_members(&error).to_owned())
            }
            Err(error) => {
                tracing::error!(webhook = id, %error, "a webhook was not delivered");
                Err("an error of this exchange".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_standard_webhooks_specification() {
        // The example of the specification's reference libraries.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = sign(
            &secret,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
