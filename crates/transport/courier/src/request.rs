//! Requests to a daemon that need no session: the entries of a directory.

use crate::access::DirectoryEntry;
use crate::clock::wait;
use crate::control::{CODE_DONE, Control, ControlError, DIAL, LinkEnd, LinkEvent, LinkId};
use crate::event::WRONG_KEY;
use crate::identity::Identity;
use crate::io::{DatagramIo, mapped, probe_ports};
use crate::message::{Message, VERSION};
use crate::sender::{BACKOFF, Target, bind_for};
use std::io;
use std::time::Instant;
use thiserror::Error;

/// The maximum number of entries in a listing.
const ENTRIES_MAX: usize = 1 << 20;

/// A request that was not answered.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The daemon refused.
    #[error("refused ({code}): {reason}")]
    Refused {
        /// The name of the reason.
        code: &'static str,
        reason: String,
    },
    /// The daemon does not answer, or closed the connection.
    #[error("no answer from {name}: {reason}")]
    NoAnswer {
        /// The daemon.
        name: String,
        reason: String,
    },
    /// The socket fails.
    #[error("the UDP socket failed: {0}")]
    Socket(#[from] io::Error),
    /// TLS or an address fails.
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Returns the entries of a directory of a daemon. For the empty path, they are the grants of this identity.
///
/// # Errors
/// If the daemon refuses or does not answer within 20 seconds.
pub fn list(identity: &Identity, from: &Target, path: &[u8]) -> Result<Vec<DirectoryEntry>, RequestError> {
    let mut io = bind_for(std::slice::from_ref(from))?;
    let only_v4 = io.local_address()?.is_ipv4();
    let mut control = Control::new(identity, false, DIAL, None)?;
    let start = Instant::now();
    let dial = |control: &mut Control, now| -> Result<Vec<LinkId>, ControlError> {
        let addresses = from.addresses.iter();
        let links =
            addresses.map(|address| control.connect(now, identity, mapped(*address, only_v4), from.key));
        links.collect()
    };
    let mut links = dial(&mut control, start)?;
    let mut ports = probe_ports(&io, &from.addresses);
    // A daemon that has no room for a moment is dialled again.
    let (mut redial_at, mut pause) = (None, BACKOFF);
    let no_answer = |reason: &str| RequestError::NoAnswer {
        name: from.name.clone(),
        reason: reason.to_owned(),
    };
    let (mut entries, mut asked, mut result) = (Vec::new(), None, None);
    loop {
        while let Some(mut burst) = io.receive()? {
            let from = burst.from;
            for datagram in burst.datagrams() {
                control.handle_datagram(Instant::now(), from, datagram);
            }
        }
        while let Some((link, event)) = control.poll_event() {
            match event {
                LinkEvent::Connected if asked.is_none() => {
                    asked = Some(link);
                    let secret = from.secret.map_or_else(Vec::new, |secret| secret.to_vec());
                    let version = VERSION;
                    control.send(link, &Message::Hello { version, secret });
                    control.send(link, &Message::List(path.to_vec()));
                }
                LinkEvent::Connected => control.close(Instant::now(), link, CODE_DONE, ""),
                LinkEvent::Message(Message::Refuse { code, text }) => {
                    let (code, reason) = (code.name(), text);
                    result = Some(Err(RequestError::Refused { code, reason }));
                }
                LinkEvent::Message(Message::Entry(entry)) if entries.len() < ENTRIES_MAX => {
                    entries.push(entry);
                }
                LinkEvent::Message(Message::EntriesEnd) => result = Some(Ok(std::mem::take(&mut entries))),
                LinkEvent::Message(_) | LinkEvent::Moved(_) => {}
                LinkEvent::Closed {
                    reason,
                    end: LinkEnd::WrongKey,
                } => {
                    links.retain(|other| *other != link);
                    let code = WRONG_KEY;
                    result.get_or_insert(Err(RequestError::Refused { code, reason }));
                }
                LinkEvent::Closed { reason, end } => {
                    links.retain(|other| *other != link);
                    if !links.is_empty() && asked != Some(link) {
                        continue;
                    }
                    if end == LinkEnd::Busy && result.is_none() {
                        (asked, redial_at) = (None, Some(Instant::now() + pause));
                        entries.clear();
                        pause *= 2;
                    } else {
                        result.get_or_insert(Err(no_answer(&reason)));
                    }
                }
            }
        }
        let now = Instant::now();
        if redial_at.is_some_and(|at| at <= now) {
            redial_at = None;
            links = dial(&mut control, now)?;
        }
        if let Some(refusal) = ports.refusal().filter(|_| asked.is_none()) {
            let reason = format!("{refusal}; check that `millrace courier serve` runs there");
            result.get_or_insert(Err(no_answer(&reason)));
        }
        if now.saturating_duration_since(start) >= DIAL {
            result.get_or_insert(Err(no_answer("it is silent; check that UDP passes")));
        }
        if let (Some(_), Some(link)) = (&result, asked) {
            control.close(now, link, CODE_DONE, "");
        }
        if control.next_timeout().is_some_and(|at| at <= now) {
            control.on_timeout(now);
        }
        while let Some((to, datagram)) = control.poll_transmit(Instant::now()) {
            io.send(to, &datagram)?;
        }
        io.flush()?;
        if let Some(result) = result {
            return result;
        }
        let times = [control.next_timeout(), redial_at, Some(start + DIAL)];
        let until = times.into_iter().flatten().min().unwrap_or(now);
        wait(&[Some(io.descriptor()), None, None], until)?;
    }
}
