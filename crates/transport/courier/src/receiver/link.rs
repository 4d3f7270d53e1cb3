//! Links of senders: their events and messages.

use super::session::{POOL_MAX, Session, SessionSpec, StoreRef};
use super::state::{FileDestination, GREETING, LINKS_OF_KEY_MAX, Peer, Server, Stage, finish_writer};
use crate::access::Refusal;
use crate::control::{CODE_BUSY, CODE_ERROR, LinkEnd, LinkEvent, LinkId};
use crate::event::{Outcome, wrong_key};
use crate::files::FilesError;
use crate::identity::random;
use crate::message::{MANIFEST_CHUNK, Message, Offer};
use crate::pool::writer::Write;
use crate::refusal::RefuseCode;
use millrace_transport::seal::{Algorithm, ContentKey};
use std::time::Instant;

/// The maximum size of a manifest, and of all manifests together that one key sends at the same time, in
/// bytes: some ten million files.
const MANIFEST_MAX: usize = 1 << 30;

impl Server<'_, '_, '_> {
    /// Handles an event of a link. The journal of a complete transfer is removed when the sender closes the
    /// link as done.
    pub(super) fn on_link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Connected => {
                let Some(key) = self.control.peer_key(link) else {
                    self.control.close(Instant::now(), link, CODE_ERROR, "no key");
                    return;
                };
                let now = Instant::now();
                let until = now + GREETING;
                let asks = self.ask(link);
                let links = self.links_without_session(key);
                if !asks && links >= LINKS_OF_KEY_MAX && !self.close_answered(now, key) {
                    let reason =
                        format!("{links} connections of this key have no transfer yet; try again later");
                    self.control.close(now, link, CODE_BUSY, &reason);
                    return;
                }
                let stage = if asks {
                    Stage::Asking
                } else {
                    Stage::Greeting { until }
                };
                self.peers.insert(
                    link,
                    Peer {
                        key,
                        name: key.to_string(),
                        stage,
                        started: now,
                        observer: None,
                    },
                );
            }
            LinkEvent::Closed { reason, end } => {
                self.on_request_closed(link, &reason, end);
                match end {
                    LinkEnd::WrongKey => self.end(link, wrong_key(reason)),
                    LinkEnd::Lost => self.lose(link, reason),
                    LinkEnd::Done | LinkEnd::Closed | LinkEnd::Busy => {
                        self.end(link, Outcome::Resumable { reason });
                    }
                }
                if let Some(Peer {
                    key,
                    stage:
                        Stage::Ended {
                            complete: Some(session),
                            ..
                        },
                    ..
                }) = self.peers.remove(&link)
                {
                    if end == LinkEnd::Done {
                        if let Some(kept) = self.options.kept_ticket() {
                            kept.forget();
                        }
                        let owned = self.admissions.iter_mut();
                        for admission in owned.filter(|admission| admission.owner == Some(key)) {
                            admission.delivered = true;
                        }
                        session.send_to_writer(Write::Close);
                    }
                    finish_writer(&mut self.finishing, key, *session);
                }
            }
            LinkEvent::Message(message) => self.on_message(link, message),
            // The daemon dials back wherever it is.
            LinkEvent::Moved(_) => {}
        }
    }

    /// Handles a message; one that does not fit the peer's stage is ignored.
    fn on_message(&mut self, link: LinkId, message: Message) {
        let Some(peer) = self.peers.get_mut(&link) else {
            return;
        };
        let result = match (&mut peer.stage, message) {
            (Stage::Greeting { .. }, Message::Hello { version, secret }) => {
                self.greet(link, version, &secret);
                Ok(())
            }
            (
                Stage::Offered {
                    into, offer: None, ..
                },
                Message::Into(path),
            ) => {
                *into = path;
                Ok(())
            }
            (Stage::Offered { offer: None, .. }, Message::Fetch(path)) => {
                self.on_fetch(link, path);
                Ok(())
            }
            (Stage::Offered { offer: None, .. }, Message::List(path)) => {
                self.on_list(link, path);
                Ok(())
            }
            (Stage::Asking, message) => {
                self.on_answer(link, message);
                Ok(())
            }
            (Stage::Offered { offer: None, .. }, Message::Offer(given)) => {
                self.on_offer(link, given);
                Ok(())
            }
            (Stage::Offered { offer: Some(_), .. }, Message::Manifest(bytes)) => {
                self.on_manifest(link, &bytes);
                Ok(())
            }
            (Stage::Offered { offer: Some(_), .. }, Message::ManifestEnd) => self.open(link),
            (Stage::Serving(session), Message::Keep(keep)) => session.keep(&keep),
            (Stage::Serving(session), Message::Value { extent, value }) => {
                session.on_values(Write::Value(extent, value))
            }
            (Stage::Serving(session), Message::GroupValues { extent, values }) => {
                session.on_values(Write::GroupValues(extent, values))
            }
            (Stage::Serving(session), Message::Withdrawn { file, .. }) => {
                session.on_values(Write::Withdrawn(file))
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.abandon(link, &error);
        }
    }

    /// Stores an offer, and begins to read its manifest. A sender that may not write is refused before that.
    fn on_offer(&mut self, link: LinkId, given: Offer) {
        let until = self.offer_until();
        let Some(peer) = self.peers.get_mut(&link) else {
            return;
        };
        let key = peer.key;
        let Stage::Offered {
            until: held,
            into,
            offer,
            ..
        } = &mut peer.stage
        else {
            return;
        };
        if let FileDestination::Access(access) = self.destination
            && let Err(Refusal { code, reason }) = access.may_write(key, into)
        {
            self.refuse(link, code, reason);
            return;
        }
        (*held, *offer) = (until, Some(given));
        self.control.admit(Instant::now(), link);
    }

    /// Appends a part of a manifest. Only a whole chunk gives the sender more time.
    fn on_manifest(&mut self, link: LinkId, bytes: &[u8]) {
        let until = self.offer_until();
        let Some(peer) = self.peers.get_mut(&link) else {
            return;
        };
        let key = peer.key;
        if let Stage::Offered {
            until: held,
            manifest,
            ..
        } = &mut peer.stage
        {
            let chunks = manifest.len() / MANIFEST_CHUNK;
            manifest.extend_from_slice(bytes);
            if manifest.len() / MANIFEST_CHUNK > chunks {
                *held = until;
            }
            if manifest.len() > MANIFEST_MAX {
                let reason = format!("the manifest exceeds {MANIFEST_MAX} bytes");
                return self.refuse(link, RefuseCode::Manifest, reason);
            }
        }
        let of_key = self.peers.values().filter(|peer| peer.key == key);
        let sizes = of_key.filter_map(|peer| match &peer.stage {
            Stage::Offered { manifest, .. } => Some(manifest.len()),
            _ => None,
        });
        if sizes.sum::<usize>() > MANIFEST_MAX {
            let reason = format!(
                "the manifests of transfers that the key {key} begins exceed {MANIFEST_MAX} bytes together; try again later"
            );
            self.refuse(link, RefuseCode::Busy, reason);
        }
    }

    /// Starts the session's writer when the manifest is complete. The writer opens the files and reports the
    /// extents that are present.
    fn open(&mut self, link: LinkId) -> Result<(), FilesError> {
        let Some(peer) = self.peers.get_mut(&link) else {
            return Ok(());
        };
        let Stage::Offered {
            into,
            offer: Some(offer),
            manifest,
            ..
        } = &mut peer.stage
        else {
            return Ok(());
        };
        let offer = offer.clone();
        let (manifest, into) = (std::mem::take(manifest), std::mem::take(into));
        let key = peer.key;
        let digest = ring::digest::digest(&ring::digest::SHA256, &manifest);
        let set = std::array::from_fn(|at| digest.as_ref()[at]);
        // An earlier session of the same files frees its slot in the grant.
        let mut before = Vec::from_iter(self.supersede(link, key, set));
        before.extend(self.ending_writers(key));
        let granted = match self.destination {
            FileDestination::Store(store) => (StoreRef::Common(store), None, POOL_MAX),
            FileDestination::Access(access) => match access.write(key, &into) {
                Ok(granted) => {
                    if let Some(peer) = self.peers.get_mut(&link) {
                        peer.observer = Some(granted.observer);
                    }
                    (StoreRef::Own(granted.store), Some(granted.rate), granted.pool_max)
                }
                Err(Refusal { code, reason }) => {
                    self.refuse(link, code, reason);
                    return Ok(());
                }
            },
        };
        let (store, rate, pool_max) = granted;
        let algorithm = if offer.chacha {
            Algorithm::ChaCha20Poly1305
        } else {
            Algorithm::Aes128Gcm
        };
        let content =
            ContentKey::new(algorithm, &offer.secret).map_err(|error| FilesError(error.to_string()))?;
        let connection = loop {
            let id = u32::from_be_bytes(random().map_err(|error| FilesError(error.to_string()))?);
            if !self.by_connection.contains_key(&id) {
                break id;
            }
        };
        let logged = (connection, offer.chacha, &offer.secret[..]);
        let Some(keys) = self.control.pairwise_keys(link, Some(logged)) else {
            return Err(FilesError("TLS exports no keys".into()));
        };
        let spec = SessionSpec {
            sender: key,
            manifest,
            requests: offer.requests,
            set,
            connection,
            keys,
            content,
            store,
            rate,
            pool_max,
            before,
        };
        let session = Session::start(self.scope, self.clock, &self.waker, spec);
        self.by_connection.insert(connection, link);
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.stage = Stage::Serving(Box::new(session));
        }
        Ok(())
    }
}
