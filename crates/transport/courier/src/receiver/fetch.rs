//! A receiver that asks a daemon for files: it dials, sends FETCH, and is dialled back at the same port.

use super::options::{ReceiveError, SESSION};
use super::requests::{Fetch, Fetching};
use super::state::{Server, Stage};
use crate::control::{CODE_DONE, ControlError, DIAL, LinkEnd, LinkId};
use crate::event::{Event, Outcome, wrong_key};
use crate::io::{PortProbes, mapped, probe_ports};
use crate::message::{Message, VERSION};
use crate::sender::{BACKOFF, BACKOFF_MAX};
use std::time::Instant;

impl Server<'_, '_, '_> {
    /// Opens a link to each address of the daemon.
    pub(super) fn dial(&mut self, fetch: Fetch, only_v4: bool) -> Result<(), ReceiveError> {
        let now = Instant::now();
        self.fetching = Some(Fetching {
            fetch,
            links: Vec::new(),
            ports: PortProbes::default(),
            only_v4,
            redial_at: None,
            failures: 0,
            asked: false,
            until: None,
            started: now,
        });
        Ok(self.dial_again(now)?)
    }

    /// Opens a link to each address of the daemon whose files are fetched.
    fn dial_again(&mut self, now: Instant) -> Result<(), ControlError> {
        let Some(fetching) = &mut self.fetching else {
            return Ok(());
        };
        let from = &fetching.fetch.from;
        for address in &from.addresses {
            let address = mapped(*address, fetching.only_v4);
            let link = self.control.connect(now, self.identity, address, from.key)?;
            fetching.links.push(link);
        }
        fetching.ports = probe_ports(&*self.io, &from.addresses);
        (fetching.redial_at, fetching.asked) = (None, false);
        fetching.until = Some(now + DIAL);
        Ok(())
    }

    /// Sends the request if the link is one to the daemon; returns true if it is.
    pub(super) fn ask(&mut self, link: LinkId) -> bool {
        let Some(fetching) = &mut self.fetching else {
            return false;
        };
        if !fetching.links.contains(&link) {
            return false;
        }
        if std::mem::replace(&mut fetching.asked, true) {
            // A later link of the daemon may have its number.
            fetching.links.retain(|other| *other != link);
            self.control
                .close(Instant::now(), link, CODE_DONE, "another address answered");
            return true;
        }
        // The daemon scans the files before it answers. A silent link ends by itself.
        fetching.until = None;
        let (secret, path) = (fetching.fetch.from.secret, fetching.fetch.path.clone());
        let secret = secret.map_or_else(Vec::new, |secret| secret.to_vec());
        let hello = Message::Hello {
            version: VERSION,
            secret,
        };
        self.control.admit(Instant::now(), link);
        self.control.send(link, &hello);
        self.control.send(link, &Message::Fetch(path));
        true
    }

    /// Handles an answer to the request.
    pub(super) fn on_answer(&mut self, link: LinkId, message: Message) {
        match message {
            Message::Refuse { code, text } => {
                self.control.close(Instant::now(), link, CODE_DONE, "");
                self.end_fetch(Outcome::refused(code, text));
            }
            Message::Fetching => {
                self.control.close(Instant::now(), link, CODE_DONE, "");
                if let Some(fetching) = &mut self.fetching {
                    fetching.links.retain(|other| *other != link);
                    fetching.until = Some(Instant::now() + SESSION);
                }
            }
            _ => {}
        }
    }

    /// Asks the daemon again, if this receiver has asked one: its session was lost. The daemon dials the address of the
    /// request, and the way back to it may be gone: this end may have another address now, or its translator another
    /// mapping.
    pub(super) fn ask_again(&mut self) {
        if let Some(fetching) = &mut self.fetching {
            (fetching.failures, fetching.until) = (0, None);
            fetching.redial_at = Some(Instant::now());
        }
    }

    /// Dials the daemon again after a pause, which is twice as long each time.
    fn redial_later(&mut self) {
        if let Some(fetching) = &mut self.fetching {
            let pause = BACKOFF
                .saturating_mul(1 << fetching.failures.min(10))
                .min(BACKOFF_MAX);
            fetching.failures += 1;
            fetching.redial_at = Some(Instant::now() + pause);
            (fetching.until, fetching.ports) = (None, PortProbes::default());
        }
    }

    /// Notes that a link closed. A request that waits for the daemon's answer ends with its last link, unless the daemon
    /// has no room for a moment, or its session was lost: then it is dialled again. At other times, [`Self::check_fetch`]
    /// ends it.
    pub(super) fn on_request_closed(&mut self, link: LinkId, reason: &str, end: LinkEnd) {
        let (patience, is_lost) = (self.options.patience, !self.lost.is_empty());
        let Some(fetching) = &mut self.fetching else {
            return;
        };
        let links = fetching.links.len();
        fetching.links.retain(|other| *other != link);
        let was_last = links > 0 && fetching.links.is_empty();
        let has_time = end == LinkEnd::Busy && fetching.started.elapsed() < patience;
        if was_last && (has_time || is_lost) {
            return self.redial_later();
        }
        if was_last && fetching.until.is_none() && !self.is_served() {
            let reason = reason.to_owned();
            self.end_fetch(match end {
                LinkEnd::WrongKey => wrong_key(reason),
                _ => Outcome::Resumable { reason },
            });
        }
    }

    /// Returns true if the daemon's session has begun, or has ended.
    fn is_served(&self) -> bool {
        let serves = |stage: &Stage<'_>| {
            matches!(
                stage,
                Stage::Offered { .. } | Stage::Serving(_) | Stage::Ended { .. }
            )
        };
        !self.outcomes.is_empty()
            || !self.lost.is_empty()
            || self.peers.values().any(|peer| serves(&peer.stage))
    }

    /// Dials a daemon again, and ends a request if the daemon's session does not begin in time. As long as a lost session
    /// waits, the daemon is asked again instead.
    pub(super) fn check_fetch(&mut self, now: Instant) {
        let (is_lost, is_served) = (!self.lost.is_empty(), self.is_served());
        if let Some(fetching) = &mut self.fetching
            && fetching.redial_at.is_some_and(|at| now >= at)
        {
            fetching.redial_at = None;
            // The daemon may have come back by itself meanwhile.
            if (is_lost || !is_served)
                && let Err(error) = self.dial_again(now)
            {
                let reason = error.to_string();
                return self.end_fetch(Outcome::Resumable { reason });
            }
        }
        let dialing = self.fetching.as_mut().filter(|fetching| !fetching.asked);
        if let Some(refusal) = dialing.and_then(|fetching| fetching.ports.refusal()) {
            if is_lost {
                return self.redial_later();
            }
            let reason = format!("{refusal}; check that `millrace courier serve` runs there");
            return self.end_fetch(Outcome::Resumable { reason });
        }
        let due = self.fetching.as_ref().and_then(|fetching| fetching.until);
        let is_due = due.is_some_and(|due| now >= due);
        if is_due && is_lost {
            return self.redial_later();
        }
        if is_due && !is_served {
            let reason =
                "no answer from the daemon; check that `millrace courier serve` runs and that UDP passes";
            self.end_fetch(Outcome::Resumable {
                reason: reason.into(),
            });
        }
    }

    fn end_fetch(&mut self, outcome: Outcome) {
        let Some(fetching) = self.fetching.take() else {
            return;
        };
        // The lost session of the request ends as the request does.
        if !self.lost.is_empty() {
            for session in &mut self.lost {
                (session.until, session.outcome) = (Instant::now(), outcome.clone());
            }
            return;
        }
        self.outcomes.push(outcome.clone());
        (self.events)(Event::Done {
            peer: fetching.fetch.from.name,
            outcome,
            bytes: 0,
            sent: None,
            seconds: fetching.started.elapsed().as_secs_f64(),
        });
    }
}
