//! Requests of peers to a daemon: for files, which a separate session sends, and for listings.
//!
//! ```text
//!  FETCH ── thread: Access::read, a scan ──> FETCHING ── thread: a session that dials the peer's address, and sends
//!  LIST  ── thread: Access::list ──────────> ENTRY … ENTRIES END
//! ```
//!
//! The sending session has a separate socket with the daemon's port, connected to the peer. The peer may be
//! behind address translation, because its datagrams to that port opened the path back.

use super::options::ReceiveError;
use super::requests::{Job, JobReply};
use super::state::{FileDestination, GREETING, Server, Stage};
use crate::access::{ReadAccess, Refusal};
use crate::control::LinkId;
use crate::event::{Event, Outcome};
use crate::identity::PublicKey;
use crate::inbox::Inbox;
use crate::message::Message;
use crate::refusal::RefuseCode;
use crate::sender::{SendOptions, SenderSpec, Target};
use std::time::Instant;

/// Requests that are worked on at once.
const JOBS_MAX: usize = 64;
/// Requests of one key that are worked on at once.
const JOBS_OF_KEY_MAX: usize = 8;

impl<'scope> Server<'_, 'scope, '_> {
    /// Answers a request for files.
    pub(super) fn on_fetch(&mut self, link: LinkId, path: Vec<u8>) {
        self.start_job(link, move |destination, key| match destination {
            FileDestination::Access(access) => match access.read(key, &path) {
                Ok(granted) => JobReply::Source(link, Box::new(granted)),
                Err(refusal) => JobReply::Refused(link, refusal),
            },
            FileDestination::Store(_) => not_a_daemon(link),
        });
    }

    /// Answers a request for the entries of a directory.
    pub(super) fn on_list(&mut self, link: LinkId, path: Vec<u8>) {
        self.start_job(link, move |destination, key| match destination {
            FileDestination::Access(access) => match access.list(key, &path) {
                Ok(entries) => JobReply::Listed(link, entries),
                Err(refusal) => JobReply::Refused(link, refusal),
            },
            FileDestination::Store(_) => not_a_daemon(link),
        });
    }

    fn start_job(
        &mut self,
        link: LinkId,
        work: impl FnOnce(FileDestination<'scope>, PublicKey) -> JobReply + Send + 'scope,
    ) {
        let Some(peer) = self.peers.get_mut(&link) else {
            return;
        };
        let key = peer.key;
        peer.stage = Stage::Requested;
        self.jobs.is_idle();
        let of_key = self.jobs.running.iter().filter(|job| job.key == key).count();
        if self.jobs.running.len() >= JOBS_MAX || of_key >= JOBS_OF_KEY_MAX {
            let reason = format!(
                "the receiver works on {} requests, {of_key} of them yours; try again later",
                self.jobs.running.len()
            );
            return self.refuse_request(link, RefuseCode::Busy, reason);
        }
        let (destination, replies, waker) =
            (self.destination, self.jobs.replies.0.clone(), self.waker.clone());
        let thread = self.scope.spawn(move || {
            let _ = replies.send(work(destination, key));
            waker.wake();
        });
        self.jobs.running.push(Job {
            key,
            thread,
            outbox: None,
        });
    }

    fn refuse_request(&mut self, link: LinkId, code: RefuseCode, text: String) {
        self.control.send(link, &Message::Refuse { code, text });
        self.close_request(link);
    }

    /// Gives the peer time to close the link; the receiver closes it after [`GREETING`].
    fn close_request(&mut self, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.stage = Stage::Ended {
                until: Instant::now() + GREETING,
                complete: None,
            };
        }
    }

    /// Passes the replies of the threads to the peers.
    pub(super) fn on_job_replies(&mut self) -> Result<(), ReceiveError> {
        while let Ok(reply) = self.jobs.replies.1.try_recv() {
            match reply {
                JobReply::Refused(link, Refusal { code, reason }) => self.refuse_request(link, code, reason),
                JobReply::Listed(link, entries) => {
                    for entry in entries {
                        self.control.send(link, &Message::Entry(entry));
                    }
                    self.control.send(link, &Message::EntriesEnd);
                    self.close_request(link);
                }
                JobReply::Source(link, granted) => self.send_back(link, *granted)?,
                JobReply::Event(event) => (self.events)(event),
            }
        }
        Ok(())
    }

    /// Sends files to the peer that asked for them.
    fn send_back(&mut self, link: LinkId, granted: ReadAccess) -> Result<(), ReceiveError> {
        let (Some(remote), Some(peer)) = (self.control.remote(link), self.peers.get(&link)) else {
            return Ok(());
        };
        let (key, name) = (peer.key, peer.name.clone());
        let io = match self.io.connect(remote) {
            Ok(io) => io,
            Err(error) => {
                self.refuse_request(link, RefuseCode::Files, error.to_string());
                return Ok(());
            }
        };
        self.control.send(link, &Message::Fetching);
        self.close_request(link);
        let (outbox, inbox) = Inbox::new()?;
        let options = SendOptions {
            silence: self.options.silence,
            patience: self.options.patience,
            ..SendOptions::default()
        };
        let target = Target {
            name,
            addresses: vec![remote],
            key,
            secret: None,
            into: Vec::new(),
        };
        let spec = SenderSpec {
            io,
            identity: self.identity,
            targets: vec![target],
            options,
            shared_rate: Some(granted.rate),
        };
        let (replies, waker) = (self.jobs.replies.0.clone(), self.waker.clone());
        let (mut source, mut observer) = (granted.source, granted.observer);
        let thread = self.scope.spawn(move || {
            let mut sent = 0;
            let result = spec.run(&mut *source, None, &inbox, &mut |event| {
                match &event {
                    Event::Accepted { present, .. } => observer.on_accept(*present),
                    Event::Progress {
                        verified,
                        bytes,
                        rate_bps,
                        ..
                    } => {
                        sent = *verified;
                        observer.on_progress(*verified, *bytes, *rate_bps);
                    }
                    _ => {}
                }
                let _ = replies.send(JobReply::Event(event));
                waker.wake();
            });
            let resumable = |reason| Outcome::Resumable { reason };
            let outcome = match result {
                Ok(outcomes) => outcomes.into_iter().next(),
                Err(error) => Some(resumable(error.to_string())),
            };
            let outcome = outcome.unwrap_or_else(|| resumable("stopped".into()));
            if outcome == Outcome::Delivered {
                sent = source.layout().bytes();
            }
            observer.on_end(&outcome, sent);
        });
        self.jobs.running.push(Job {
            key,
            thread,
            outbox: Some(outbox),
        });
        Ok(())
    }
}

fn not_a_daemon(link: LinkId) -> JobReply {
    JobReply::Refused(
        link,
        Refusal::not_admitted(
            "this receiver takes files and gives none; start `millrace courier serve` there to read from it",
        ),
    )
}
