//! A session: the files and the data path of one sender that was admitted.

use crate::control::{Control, LinkId};
use crate::event::{Event, Outcome};
use crate::files::{FilesError, Sink, SinkEvent};
use crate::identity::Identity;
use crate::message::Message;
use crate::receipt;
use millrace_transport::packet::PacketType;
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Receiver, ReceiverConfig};
use millrace_transport::seal::{ContentKey, PairwiseKey};
use millrace_types::Time;

/// Bytes that may have arrived and not be written.
const POOL: u64 = 256 << 20;

/// The files and the data path of one sender.
pub(super) struct Session {
    pub(super) sink: Box<dyn Sink>,
    /// The state of the data path, from KEEP on.
    pub(super) receiver: Option<Receiver>,
    pub(super) connection: u32,
    /// The keys of packets from the sender, and of those to it.
    keys: [PairwiseKey; 2],
    content: ContentKey,
    pub(super) verified_bytes: u64,
    /// The verified bytes at the last progress event.
    pub(super) last_verified: u64,
}

impl Session {
    /// Returns a session that waits for KEEP.
    pub(super) fn new(
        sink: Box<dyn Sink>,
        connection: u32,
        keys: [PairwiseKey; 2],
        content: ContentKey,
    ) -> Self {
        Self {
            sink,
            receiver: None,
            connection,
            keys,
            content,
            verified_bytes: 0,
            last_verified: 0,
        }
    }

    /// Keeps the extents that the sender confirmed; returns the acceptance.
    pub(super) fn keep(&mut self, keep: &RangeSet) -> Result<Message, FilesError> {
        let layout = self.sink.layout();
        for range in keep.ranges() {
            if range.end > layout.extents() {
                return Err(FilesError(
                    "the sender confirmed extents that the session has not".into(),
                ));
            }
            for extent in range.clone() {
                self.sink.keep(extent)?;
            }
        }
        self.sink.start()?;
        let have = self.sink.verified();
        for extent in have.ranges().iter().flat_map(Clone::clone) {
            let (start, end) = layout.bounds(extent);
            self.verified_bytes += end - start;
        }
        self.last_verified = self.verified_bytes;
        self.receiver = Some(Receiver::new(ReceiverConfig {
            layout,
            have: have.clone(),
            connection: self.connection,
            pool: POOL,
        }));
        Ok(Message::Accept {
            connection: self.connection,
            pool: POOL,
            have,
        })
    }

    /// Takes a datagram of the data path; an invalid one is dropped and counted.
    pub(super) fn datagram(
        &mut self,
        now: Time,
        packet_type: PacketType,
        datagram: &mut [u8],
        marked: bool,
    ) -> Result<(), FilesError> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(());
        };
        match packet_type {
            PacketType::Data => {
                let mut written = 0;
                let delivery = receiver.handle_data(now, datagram, &self.keys[0], &mut self.content, marked);
                if let Ok(Some(delivery)) = delivery {
                    for range in &delivery.new {
                        let skip = usize::try_from(range.start - delivery.address).unwrap_or(usize::MAX);
                        let len = usize::try_from(range.end - range.start).unwrap_or(0);
                        if let Some(bytes) = delivery.bytes.get(skip..).and_then(|bytes| bytes.get(..len)) {
                            written += self.sink.write(range.start, bytes)?;
                        }
                    }
                }
                receiver.written(written);
            }
            PacketType::Report => {
                let _ = receiver.handle_report(datagram, &self.keys[0]);
            }
            PacketType::Feedback => {}
        }
        Ok(())
    }

    /// Sends the sink's events to the sender; returns the outcome when everything is in place.
    pub(super) fn answers(
        &mut self,
        link: LinkId,
        name: &str,
        identity: &Identity,
        control: &mut Control,
        events: &mut dyn FnMut(Event),
    ) -> Option<Outcome> {
        let layout = self.sink.layout();
        let mut outcome = None;
        while let Some(event) = self.sink.poll_event() {
            let Some(receiver) = &mut self.receiver else { break };
            let file_event = |file, problem| Event::File {
                peer: name.to_owned(),
                file,
                problem,
            };
            match event {
                SinkEvent::Verified(extent) => {
                    receiver.verified(extent);
                    let (start, end) = layout.bounds(extent);
                    self.verified_bytes += end - start;
                    control.send(link, &Message::Verified(extent));
                }
                SinkEvent::Rejected(extent) => {
                    receiver.rejected(extent);
                    control.send(link, &Message::Rejected(extent));
                }
                SinkEvent::Durable(extent) => {
                    receiver.durable(extent);
                    control.send(link, &Message::Durable(extent));
                }
                SinkEvent::NeedGroupValues(extent) => control.send(link, &Message::NeedGroupValues(extent)),
                SinkEvent::Committed(file) => {
                    control.send(link, &Message::Committed { file });
                    events(file_event(Some(file), None));
                }
                SinkEvent::Failed(file, problem) => events(file_event(file, Some(problem))),
                SinkEvent::Complete => {
                    let root = self.sink.root().unwrap_or_default();
                    let signature = identity.sign(&receipt(&root));
                    control.send(link, &Message::Complete { root, signature });
                    outcome = Some(Outcome::Delivered);
                }
            }
        }
        outcome
    }

    /// Returns the feedback packets that are due.
    pub(super) fn feedback(&mut self, now: Time) -> Vec<Vec<u8>> {
        let Some(receiver) = &mut self.receiver else {
            return Vec::new();
        };
        let due = receiver.poll_feedback(now);
        due.iter()
            .map(|(number, feedback)| receiver.encode_feedback(*number, feedback, &self.keys[1]))
            .collect()
    }
}
