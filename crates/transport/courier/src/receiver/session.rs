//! A session: the data path of one sender that was admitted, and the thread that writes its files.

use super::rate_limit::RateLimit;
use crate::clock::Clock;
use crate::control::{Control, LinkId};
use crate::event::{Event, Outcome};
use crate::files::{FilesError, Requests, SinkEvent, Store};
use crate::identity::{Identity, PublicKey};
use crate::message::{Message, fitting};
use crate::pool::Waker;
use crate::pool::assembly::{Assembly, Group};
use crate::pool::writer::{self, Ends, Write, WriteReply};
use crate::progress::RateMeter;
use crate::receipt;
use crate::refusal::RefuseCode;
use crate::shared_rate::SharedRate;
use millrace_transport::extent::Layout;
use millrace_transport::packet::PacketType;
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Receiver, ReceiverConfig};
use millrace_transport::seal::{ContentKey, PairwiseKey};
use millrace_types::Time;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Replies, Sender as Tasks, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// The initial and the smallest pool: the number of bytes that may have arrived and are not written yet.
const POOL: u64 = 24 << 20;
/// The largest pool in bytes.
pub(super) const POOL_MAX: u64 = 1 << 30;
/// The pool grows to this many bandwidth-delay products: one is in flight, one waits for repairs, one for the disk.
const POOL_BDPS: u64 = 3;

/// The shortest and the longest time for which packets gather in the socket.
const GATHERING_MIN: Duration = Duration::from_micros(200);
const GATHERING_MAX: Duration = Duration::from_millis(1);
/// The part of the round-trip time for which packets gather.
const GATHERING_RTTS: u32 = 32;
/// The maximum number of bytes that gather if the time exceeds [`GATHERING_MIN`]: less than the smallest usual
/// buffer of a socket.
const GATHERED_MAX: u64 = 100_000;

/// The time without a packet of the data path after which the control channel probes for the sender; it doubles each time.
const PROBE_AFTER: Duration = Duration::from_millis(500);

/// The number of whole groups at which they go to the writer even before all bursts are read.
const GROUPS_MAX: usize = 64;

/// The size of the smallest entry of a manifest in bytes.
const ENTRY_SIZE_MIN: u64 = 8;

/// The identifier of a set of files: the SHA-256 of its manifest.
pub(super) type SetId = [u8; 32];

/// The data path and the writer of one sender.
pub(super) struct Session<'scope> {
    pub(super) set: SetId,
    pub(super) connection: u32,
    clock: Clock,
    /// Tasks of the writer, until the session ends.
    tasks: Option<Tasks<Write>>,
    replies: Replies<WriteReply>,
    worker: Option<ScopedJoinHandle<'scope, ()>>,
    layout: Option<Layout>,
    /// The state of the data path, from ACCEPT on.
    receiver: Option<Receiver>,
    assembly: Option<Assembly>,
    /// Whole groups that the writer does not have yet.
    groups: Vec<Group>,
    limit: Option<RateLimit>,
    pool_max: u64,
    /// The keys of packets from the sender, and of those to it.
    keys: [PairwiseKey; 2],
    content: ContentKey,
    /// True once KEEP has arrived.
    kept: bool,
    /// Extents whose group values were requested, with the number of answers that are missing.
    asked: HashMap<u64, u64>,
    /// The time of the last valid packet of the data path, or of ACCEPT.
    heard_at: Time,
    /// The time after that at which the control channel probes for the sender next.
    probe_after: Duration,
    /// Messages about values that the writer has not handled.
    queued: u64,
    /// An upper bound of the files in the manifest.
    files_max: u64,
    /// Files that the sender withdrew.
    pub(super) withdrawn: u64,
    pub(super) verified_bytes: u64,
    /// The verified bytes at the last progress event, or at ACCEPT.
    pub(super) progress: RateMeter,
}

/// The parts of a new session.
pub(super) struct SessionSpec<'scope> {
    pub(super) sender: PublicKey,
    pub(super) manifest: Vec<u8>,
    pub(super) requests: Requests,
    pub(super) set: SetId,
    pub(super) connection: u32,
    pub(super) keys: [PairwiseKey; 2],
    pub(super) content: ContentKey,
    /// The store in which the files are written.
    pub(super) store: StoreRef<'scope>,
    /// The rate that the session shares with others.
    pub(super) rate: Option<Arc<SharedRate>>,
    pub(super) pool_max: u64,
    /// The writers of earlier sessions of the same sender. The writer of this session waits until they have ended.
    pub(super) before: Vec<ScopedJoinHandle<'scope, ()>>,
}

/// The store of a session.
pub(super) enum StoreRef<'scope> {
    Common(&'scope dyn Store),
    Own(Arc<dyn Store>),
}

impl StoreRef<'_> {
    fn store(&self) -> &dyn Store {
        match self {
            StoreRef::Common(store) => *store,
            StoreRef::Own(store) => &**store,
        }
    }
}

/// The end of a session.
pub(super) enum End {
    Refused(RefuseCode, FilesError),
    Failed(FilesError),
    Outcome(Outcome),
}

impl<'scope> Session<'scope> {
    /// Starts the writer's thread, and returns the session.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        clock: Clock,
        waker: &Arc<Waker>,
        spec: SessionSpec<'scope>,
    ) -> Session<'scope> {
        let (tasks, todo) = channel();
        let (done, replies) = channel();
        let ends = Ends {
            tasks: todo,
            replies: done,
            waker: Arc::clone(waker),
            clock,
        };
        let SessionSpec {
            sender,
            manifest,
            requests,
            before,
            store,
            ..
        } = spec;
        let files_max = manifest.len() as u64 / ENTRY_SIZE_MIN;
        let worker = scope.spawn(move || {
            for before in before {
                let _ = before.join();
            }
            writer::run(store.store(), sender, &manifest, requests, &ends);
        });
        Session {
            set: spec.set,
            connection: spec.connection,
            clock,
            tasks: Some(tasks),
            replies,
            worker: Some(worker),
            asked: HashMap::new(),
            heard_at: clock.now(),
            probe_after: PROBE_AFTER,
            queued: 0,
            files_max,
            layout: None,
            receiver: None,
            assembly: None,
            groups: Vec::new(),
            limit: spec.rate.map(|rate| RateLimit::new(rate, clock)),
            pool_max: spec.pool_max,
            keys: spec.keys,
            content: spec.content,
            kept: false,
            withdrawn: 0,
            verified_bytes: 0,
            progress: RateMeter::start(clock.now(), 0),
        }
    }

    /// Returns the bytes of the set, once the manifest is read.
    pub(super) fn bytes(&self) -> u64 {
        self.layout.map_or(0, |layout| layout.bytes())
    }

    /// Returns true if the data path is open.
    pub(super) fn is_running(&self) -> bool {
        self.receiver.is_some()
    }

    /// Tells the writer to make all written bytes durable and to end. Returns the handle of its thread, to be
    /// joined.
    pub(super) fn finish(mut self) -> Option<ScopedJoinHandle<'scope, ()>> {
        self.hand_over();
        self.tasks = None;
        self.worker.take()
    }

    /// Sends a task to the writer. A writer that has failed ignores the task; its last reply reports the failure.
    pub(super) fn send_to_writer(&self, task: Write) {
        if let Some(tasks) = &self.tasks {
            let _ = tasks.send(task);
        }
    }

    /// Sends the writer a message about values: VALUE, GROUP VALUES or WITHDRAWN. Messages before ACCEPT, and GROUP
    /// VALUES that were not requested, are ignored: QUIC's flow control does not hold them back while the writer is
    /// busy.
    pub(super) fn on_values(&mut self, message: Write) -> Result<(), FilesError> {
        if !self.is_running() {
            return Ok(());
        }
        if let Write::GroupValues(extent, _) = &message {
            match self.asked.get_mut(extent) {
                None => return Ok(()),
                Some(1) => drop(self.asked.remove(extent)),
                Some(answers) => *answers -= 1,
            }
        }
        // Twice the number that a session without a changed value has.
        let extents = self.layout.map_or(0, |layout| layout.extents());
        if self.queued > 2 * extents + self.files_max {
            return Err(FilesError(format!(
                "the sender violates the protocol: it repeats values, and {} wait to be handled",
                self.queued
            )));
        }
        self.queued += 1;
        self.send_to_writer(message);
        Ok(())
    }

    /// Keeps the extents that the sender confirmed, once.
    pub(super) fn keep(&mut self, keep: &RangeSet) -> Result<(), FilesError> {
        let extents = self.layout.map_or(0, |layout| layout.extents());
        if keep.ranges().last().is_some_and(|last| last.end > extents) {
            return Err(FilesError(
                "the sender confirmed extents that the session does not have".into(),
            ));
        }
        if !std::mem::replace(&mut self.kept, true) {
            // ACCEPT repeats these ranges next to longer fields, so only the ranges that fit there are kept.
            self.send_to_writer(Write::Keep(fitting(keep)));
        }
        Ok(())
    }

    /// Opens the data path; returns the acceptance.
    fn accept(&mut self, have: RangeSet) -> Option<Message> {
        let layout = self.layout?;
        for extent in have.ranges().iter().flat_map(Clone::clone) {
            let (start, end) = layout.bounds(extent);
            self.verified_bytes += end - start;
        }
        self.progress = RateMeter::start(self.clock.now(), self.verified_bytes);
        self.hear(self.clock.now());
        self.assembly = Some(Assembly::new(layout));
        let pool = POOL.min(self.pool_max);
        let pool = match &mut self.limit {
            Some(limit) => {
                let missing = layout.bytes().saturating_sub(self.verified_bytes);
                limit.open(self.clock.now(), missing, pool)
            }
            None => pool,
        };
        self.receiver = Some(Receiver::new(ReceiverConfig {
            layout,
            have: have.clone(),
            connection: self.connection,
            pool,
            pool_max: self.pool_max,
        }));
        Some(Message::Accept {
            connection: self.connection,
            pool,
            have,
        })
    }

    /// Takes a datagram of the data path; an invalid one is dropped and counted.
    pub(super) fn datagram(&mut self, now: Time, packet_type: PacketType, datagram: &mut [u8], marked: bool) {
        let (Some(receiver), Some(assembly)) = (&mut self.receiver, &mut self.assembly) else {
            return;
        };
        match packet_type {
            PacketType::Data => {
                let groups = &mut self.groups;
                let delivery = receiver.handle_data(now, datagram, &self.keys[0], &mut self.content, marked);
                let Ok(delivery) = delivery else { return };
                (self.heard_at, self.probe_after) = (now, PROBE_AFTER);
                let Some(delivery) = delivery else { return };
                for range in &*delivery.new {
                    let skip = usize::try_from(range.start - delivery.address).unwrap_or(usize::MAX);
                    let len = usize::try_from(range.end - range.start).unwrap_or(0);
                    if let Some(bytes) = delivery.bytes.get(skip..).and_then(|bytes| bytes.get(..len)) {
                        assembly.insert(range.start, bytes, |group| groups.push(group));
                    }
                }
                if self.groups.len() >= GROUPS_MAX {
                    self.hand_over();
                }
            }
            PacketType::Report => {
                if receiver.handle_report(datagram, &self.keys[0]).is_ok() {
                    self.hear(now);
                }
            }
            PacketType::Feedback => {}
        }
    }

    fn hear(&mut self, now: Time) {
        (self.heard_at, self.probe_after) = (now, PROBE_AFTER);
    }

    /// Returns true if the control channel should probe for the sender: nothing of the data path has arrived for a while. If
    /// this end has another address than before, the probe tells the sender, which cannot know it otherwise.
    pub(super) fn is_probe_due(&mut self, now: Time) -> bool {
        let is_due = self.is_running() && now.since(self.heard_at) >= self.probe_after;
        if is_due {
            self.probe_after *= 2;
        }
        is_due
    }

    /// Returns the time for which packets may gather before they are read: a small part of the round-trip time, in which no more
    /// arrives than the socket's buffer holds.
    pub(super) fn gathering(&mut self, now: Time) -> Duration {
        let Some(receiver) = &mut self.receiver else {
            return GATHERING_MIN;
        };
        let rate = receiver.rate(now).bps().max(1);
        let filled = Duration::from_nanos(GATHERED_MAX.saturating_mul(8_000_000_000) / rate);
        (receiver.rtt() / GATHERING_RTTS)
            .min(filled)
            .clamp(GATHERING_MIN, GATHERING_MAX)
    }

    /// Gives the writer the groups that are whole: those of all bursts that were read together, so that it is woken once.
    pub(super) fn hand_over(&mut self) {
        if !self.groups.is_empty() {
            let groups = std::mem::take(&mut self.groups);
            self.send_to_writer(Write::Groups(groups));
        }
    }

    /// Grows the pool with the bandwidth-delay product of the path.
    pub(super) fn grow_pool(&mut self, now: Time, rtt: Duration) {
        // The credit of a limited session grows at its rate.
        if self.limit.as_ref().is_some_and(RateLimit::is_limited) {
            return;
        }
        if let Some(receiver) = &mut self.receiver {
            let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
            let bdp = receiver.rate(now).bps().saturating_mul(micros) / 8_000_000;
            receiver.grow_pool(POOL + POOL_BDPS * bdp);
        }
    }

    /// Handles the writer's replies, and sends their results to the sender. Returns the end of the session if it
    /// has ended.
    pub(super) fn replies(
        &mut self,
        link: LinkId,
        name: &str,
        identity: &Identity,
        control: &mut Control,
        events: &mut dyn FnMut(Event),
    ) -> Option<End> {
        while let Ok(reply) = self.replies.try_recv() {
            match reply {
                WriteReply::Opened(layout) => self.layout = Some(layout),
                WriteReply::Refused(error) => return Some(End::Refused(error.code, error.error)),
                WriteReply::Failed(error) => return Some(End::Failed(error)),
                WriteReply::Have(extent, value) => control.send(link, &Message::Have { extent, value }),
                WriteReply::HaveEnd => control.send(link, &Message::HaveEnd),
                WriteReply::Started(have) => {
                    if let Some(accept) = self.accept(have) {
                        control.send(link, &accept);
                        events(Event::Accepted {
                            peer: name.to_owned(),
                            bytes: self.bytes(),
                            present: self.verified_bytes,
                        });
                    }
                }
                WriteReply::Written(bytes, buffers) => {
                    if let (Some(receiver), Some(assembly)) = (&mut self.receiver, &mut self.assembly) {
                        match &mut self.limit {
                            Some(limit) => limit.add(bytes),
                            None => receiver.written(bytes),
                        }
                        assembly.recycle(buffers);
                    }
                }
                WriteReply::Handled(messages) => self.queued = self.queued.saturating_sub(messages),
                WriteReply::Event(event) => self.on_event(link, name, control, events, event),
                WriteReply::Complete(root) => {
                    let signature = identity.sign(&receipt(&root));
                    self.give_back();
                    control.send(link, &Message::Complete { root, signature });
                    return Some(End::Outcome(Outcome::Delivered));
                }
            }
        }
        None
    }

    fn on_event(
        &mut self,
        link: LinkId,
        name: &str,
        control: &mut Control,
        events: &mut dyn FnMut(Event),
        event: SinkEvent,
    ) {
        let (Some(receiver), Some(layout)) = (&mut self.receiver, self.layout) else {
            return;
        };
        let file_event = |file, path, problem| Event::File {
            peer: name.to_owned(),
            file,
            path: Some(path),
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
                if let Some(assembly) = &mut self.assembly {
                    assembly.forget(extent);
                }
                control.send(link, &Message::Rejected(extent));
            }
            SinkEvent::Durable(extent) => {
                receiver.durable(extent);
                control.send(link, &Message::Durable(extent));
            }
            SinkEvent::NeedGroupValues(extent) => {
                *self.asked.entry(extent).or_default() += 1;
                control.send(link, &Message::NeedGroupValues(extent));
            }
            SinkEvent::Committed { file, path } => {
                control.send(link, &Message::Committed { file });
                events(file_event(Some(file), path, None));
            }
            SinkEvent::Withdrawn { file, path } => {
                self.withdrawn += 1;
                let problem = format!("{path}: the sender left it out: it changed while it was read");
                events(file_event(Some(file), path, Some(problem)));
            }
            SinkEvent::Failed { path, reason } => {
                let problem = format!("{path}: {reason}");
                events(file_event(None, path, Some(problem)));
            }
            SinkEvent::Notice(text) => {
                control.send(link, &Message::Notice { text: text.clone() });
                events(Event::Notice {
                    peer: name.to_owned(),
                    text,
                });
            }
            SinkEvent::Complete => {}
        }
    }

    /// Returns the feedback packets that are due.
    pub(super) fn feedback(&mut self, now: Time) -> Vec<Vec<u8>> {
        let Some(receiver) = &mut self.receiver else {
            return Vec::new();
        };
        if let Some(limit) = &mut self.limit {
            limit.release(now, receiver);
        }
        let due = receiver.poll_feedback(now);
        due.iter()
            .map(|(number, feedback)| receiver.encode_feedback(*number, feedback, &self.keys[1]))
            .collect()
    }

    /// Returns the credit that the sender has not used to the shared rate, for other transfers: the session needs
    /// no more.
    fn give_back(&mut self) {
        if let (Some(mut limit), Some(receiver)) = (self.limit.take(), &self.receiver) {
            limit.give_back(receiver.unused_credit());
        }
    }

    /// Returns the time at which feedback or credit is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let feedback = self.receiver.as_ref().and_then(Receiver::next_timeout);
        let credit = self.limit.as_ref().and_then(RateLimit::next_timeout);
        feedback.into_iter().chain(credit).min()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{OpenError, Sink};
    use millrace_transport::extent::ExtentSize;
    use millrace_transport::seal::Algorithm;
    use parking_lot::Mutex;

    /// A store that opens nothing before a channel closes.
    struct Blocked(Mutex<Replies<()>>);

    impl Store for Blocked {
        fn open(&self, _: PublicKey, _: &[u8], _: Requests) -> Result<Box<dyn Sink>, OpenError> {
            let _ = self.0.lock().recv();
            Err(FilesError("no files".into()).into())
        }
    }

    #[test]
    fn messages_about_values_are_kept_only_if_the_session_runs_and_asked_for_them() {
        let (open, wait) = channel();
        let store = Blocked(Mutex::new(wait));
        let spec = SessionSpec {
            sender: PublicKey::new([1; 32]),
            manifest: vec![0; 2 * ENTRY_SIZE_MIN as usize],
            requests: Requests::default(),
            set: [0; 32],
            connection: 1,
            keys: [PairwiseKey::new([1; 16]), PairwiseKey::new([2; 16])],
            content: ContentKey::new(Algorithm::Aes128Gcm, &[3; 32]).unwrap(),
            store: StoreRef::Common(&store),
            rate: None,
            pool_max: POOL_MAX,
            before: Vec::new(),
        };
        std::thread::scope(|scope| {
            let waker = Arc::new(Waker::new().unwrap());
            let mut session = Session::start(scope, Clock::start(), &waker, spec);
            // The thread of the writer ends even if an assertion fails.
            let open = open;
            let groups = |extent| Write::GroupValues(extent, vec![[0; 32]; 64]);
            for message in [groups(0), Write::Value(0, [0; 32]), Write::Withdrawn(0)] {
                session.on_values(message).unwrap();
            }
            assert_eq!(session.queued, 0, "the files are not open");
            session.layout = Some(Layout::new(1 << 20, ExtentSize::Small).unwrap());
            assert!(session.accept(RangeSet::new()).is_some());
            session.on_values(groups(0)).unwrap();
            assert_eq!(session.queued, 0, "not asked for");
            session.asked.insert(0, 1);
            session.on_values(groups(0)).unwrap();
            session.on_values(groups(0)).unwrap();
            assert_eq!(session.queued, 1, "asked for once");
            let mut repeated = (0..10).map(|_| session.on_values(Write::Value(0, [0; 32])));
            let error = repeated.find_map(Result::err).unwrap();
            assert!(error.to_string().contains("repeats values"), "{error}");
            drop(open);
        });
    }
}
