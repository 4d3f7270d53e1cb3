//! Links of senders: their events and messages.

use super::session::Session;
use super::state::{GREETING, Peer, Server, Stage};
use crate::control::{CODE_ERROR, LinkEvent, LinkId};
use crate::event::{Event, Outcome};
use crate::files::FilesError;
use crate::identity::random;
use crate::message::{Message, RefuseCode};
use millrace_transport::seal::{Algorithm, ContentKey};
use std::time::Instant;

/// Bytes of a manifest at most: some ten million files.
const MANIFEST_MAX: usize = 1 << 30;

impl Server<'_> {
    /// Handles an event of a link; the journal of a complete transfer goes when the sender closes the link as done.
    pub(super) fn on_link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Connected => {
                let Some(key) = self.control.peer_key(link) else {
                    self.control.close(Instant::now(), link, CODE_ERROR, "no key");
                    return;
                };
                let now = Instant::now();
                let until = now + GREETING;
                let stage = Stage::Greeting { until };
                self.peers.insert(
                    link,
                    Peer {
                        name: key.to_string(),
                        stage,
                        started: now,
                    },
                );
            }
            LinkEvent::Closed { reason, done } => {
                self.end(link, Outcome::Resumable { reason });
                let peer = self.peers.remove(&link);
                if let Some(Stage::Ended {
                    complete: Some(sink), ..
                }) = peer.map(|peer| peer.stage)
                    && done
                    && let Err(error) = sink.close()
                {
                    tracing::warn!(%error, "the journal was not removed");
                }
            }
            LinkEvent::Message(message) => self.on_message(link, message),
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
            (Stage::Offered { offer, .. }, Message::Offer(given)) => {
                *offer = Some(given);
                self.open(link)
            }
            (Stage::Offered { manifest, .. }, Message::Manifest(bytes)) => {
                manifest.extend_from_slice(&bytes);
                if manifest.len() > MANIFEST_MAX {
                    self.refuse(
                        link,
                        RefuseCode::Manifest,
                        format!("the manifest exceeds {MANIFEST_MAX} bytes"),
                    );
                }
                Ok(())
            }
            (Stage::Offered { manifest_ended, .. }, Message::ManifestEnd) => {
                *manifest_ended = true;
                self.open(link)
            }
            (Stage::Serving(session), Message::Keep(keep)) if session.receiver.is_none() => {
                session.keep(&keep).map(|accept| {
                    (self.events)(Event::Accepted {
                        peer: peer.name.clone(),
                        bytes: session.sink.layout().bytes(),
                        present: session.verified_bytes,
                    });
                    self.by_connection.insert(session.connection, link);
                    self.control.send(link, &accept);
                })
            }
            (Stage::Serving(session), Message::Value { extent, value }) => {
                session.sink.on_value(extent, &value)
            }
            (Stage::Serving(session), Message::GroupValues { extent, values }) => {
                session.sink.on_group_values(extent, &values)
            }
            (Stage::Serving(session), Message::Withdrawn { file, .. }) => session.sink.on_withdrawn(file),
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.abandon(link, &error);
        }
    }

    /// Opens the sink when offer and manifest are complete, and tells the sender which extents are there.
    fn open(&mut self, link: LinkId) -> Result<(), FilesError> {
        let Some(peer) = self.peers.get_mut(&link) else {
            return Ok(());
        };
        let Stage::Offered {
            offer,
            manifest,
            manifest_ended,
        } = &mut peer.stage
        else {
            return Ok(());
        };
        // Offer and manifest come on streams of their own, in either order.
        let (Some(offer), true) = (offer.clone(), *manifest_ended) else {
            return Ok(());
        };
        let manifest = std::mem::take(manifest);
        let mut sink = match self.store.open(&manifest) {
            Ok(sink) => sink,
            Err(error) => {
                self.refuse(link, RefuseCode::Manifest, error.to_string());
                return Ok(());
            }
        };
        let algorithm = if offer.chacha {
            Algorithm::ChaCha20Poly1305
        } else {
            Algorithm::Aes128Gcm
        };
        let content =
            ContentKey::new(algorithm, &offer.secret).map_err(|error| FilesError(error.to_string()))?;
        let Some(keys) = self.control.pairwise_keys(link) else {
            return Err(FilesError("TLS exports no keys".into()));
        };
        while let Some((extent, value)) = sink.poll_have()? {
            self.control.send(link, &Message::Have { extent, value });
        }
        self.control.send(link, &Message::HaveEnd);
        let connection = loop {
            let id = u32::from_be_bytes(random().map_err(|error| FilesError(error.to_string()))?);
            if !self.by_connection.contains_key(&id) {
                break id;
            }
        };
        let session = Session::new(sink, connection, keys, content);
        peer.stage = Stage::Serving(Box::new(session));
        Ok(())
    }
}
