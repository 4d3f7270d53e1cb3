//! The lane's side of a function's process: exchanges packets with it over a window of shared memory, and carries its effects and
//! messages out of the window.

use core::ops::Range;
use core::slice;
use core::sync::atomic::Ordering;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_datapath::io::Burst;
use millrace_flow::classify::BURST;
use millrace_nf::shm::{Answer, BurstKind, PacketLocation, ProtocolViolation, RecordKind, SwitchEnd};
use millrace_nf::{Counters, Effects, Outbox, Setup, ShunnedFlow, Verdict};
use millrace_types::{Duration, Time};
use millrace_wire::Packet;

use super::memory::{MappedRange, merged, shared_memory};
use super::watch::{POLL_INTERVAL, Process, millis};
use crate::hop::{IN_FLIGHT_MAX, Remote};
use crate::in_flight::InFlight;
use crate::plan::Class;

/// Size limit of a packet's first segment, in bytes: the longest frame with tags. Longer packets are dropped.
const PACKET_SIZE: usize = 9728;
/// The name of windows, as /proc/PID/maps shows them.
const NAME: &str = "millrace-window";
/// A process that sends no heartbeat for this time counts as hung.
const SILENCE: Duration = Duration::from_secs(2);
/// Time limit of the first heartbeat. It is longer, because many processes may start at once.
const BEGINNING: Duration = Duration::from_secs(10);
/// Limit of the records of a process that the lane reads at a time.
const RECORDS_AT_A_TIME: usize = 4 * BURST;

/// The lane's side of a process.
pub(crate) struct Isolated<P> {
    end: SwitchEnd,
    process: Arc<Process>,
    /// The packets that the process has.
    held: InFlight<P>,
    counters: Counters,
    /// The queue for messages, and the queue for reports.
    outbox: Outbox,
    report: Outbox,
    /// The number of packets that the process could not send, when the lane read it last.
    refused: u64,
    heartbeat: Heartbeat,
    next_look: Time,
    violation: Option<ProtocolViolation>,
    /// For class `ring`, the address ranges that the process has mapped.
    shared: Option<Vec<Range<u64>>>,
    /// The file of the window, which a process opens by `/proc/PID/fd`.
    _file: OwnedFd,
}

/// The last heartbeat of a process.
#[derive(Default)]
struct Heartbeat {
    number: u64,
    /// [`Process::chances`] when it was seen first.
    since: Option<u64>,
}

/// A window before its process uses it.
pub(super) struct Window {
    pub(super) end: SwitchEnd,
    pub(super) file: OwnedFd,
    /// For class `ring`, the packet memory that the process maps.
    pub(super) shared: Option<Vec<MappedRange>>,
}

impl Window {
    /// Creates a window for a process of this class.
    ///
    /// # Errors
    /// The kernel's error, or a message with the next step if there is no packet memory that a process can map.
    pub(super) fn create<P: Packet>(class: Class) -> io::Result<Window> {
        let shared = match class {
            Class::Ring => Some(shared_memory(&P::shared_memory())?),
            Class::Inline | Class::Isolated => None,
        };
        let (end, file) = match shared {
            Some(_) => SwitchEnd::create_shared(NAME, IN_FLIGHT_MAX)?,
            None => SwitchEnd::create(NAME, IN_FLIGHT_MAX, PACKET_SIZE)?,
        };
        Ok(Window { end, file, shared })
    }
}

impl<P: Packet> Isolated<P> {
    /// Returns the lane's side of a process that maps a window.
    pub(super) fn new(window: Window, process: Arc<Process>, setup: &Setup) -> Isolated<P> {
        Isolated {
            end: window.end,
            process,
            held: InFlight::new(),
            counters: setup.counters.clone(),
            outbox: setup.outbox.clone(),
            report: setup.report.clone(),
            refused: 0,
            heartbeat: Heartbeat::default(),
            next_look: Time::ZERO,
            violation: None,
            shared: window.shared.as_deref().map(merged),
            _file: window.file,
        }
    }

    fn read_counters(&self) {
        for index in 0..self.counters.len() {
            self.counters.set(index, self.end.counter(index));
        }
    }

    /// Takes back packets of one kind, `most` at most. The process has answered all of them.
    fn take_back(
        &mut self,
        kind: BurstKind,
        most: usize,
        burst: &mut Burst<P>,
        verdicts: &mut ArrayVec<Verdict, BURST>,
    ) {
        self.held.take(most, burst);
        let is_shared = self.shared.is_some();
        let same = match is_shared {
            true => self.end.unchanged(burst.len()),
            // The bytes of all copies must be read.
            false => 0,
        };
        verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
        for behind in same..burst.len() {
            let packet = &mut burst[behind];
            let answer = match self.end.answer(behind, packet.head().len()) {
                Ok(answer) => answer,
                Err(violation) => {
                    self.violation = Some(violation);
                    self.held.put_back(kind, burst.drain(behind..).collect());
                    break;
                }
            };
            // A packet whose buffer cannot hold the result is dropped.
            verdicts.push(match apply(&self.end, &answer, packet, is_shared) {
                true => answer.verdict,
                false => Verdict::Drop,
            });
        }
        self.end.take(burst.len());
    }

    /// Gives the packets of a burst that can be described; the others stay in `burst`. The first `described` packets are
    /// described already, and the packet after them cannot be.
    #[cold]
    fn give_some(&mut self, kind: BurstKind, described: usize, burst: &mut Burst<P>) {
        let (mut given, mut refused) = (Burst::new(), Burst::new());
        for (index, packet) in burst.drain(..).enumerate() {
            match index < described || index > described && self.describe(slice::from_ref(&packet), kind) == 1
            {
                true => given.push(packet),
                false => refused.push(packet),
            }
        }
        self.held.push(kind, &mut given);
        *burst = refused;
    }

    /// Writes packets, or their locations, to the window. Returns their number. Stops at the first packet
    /// that does not fit.
    #[inline]
    fn describe(&mut self, packets: &[P], kind: BurstKind) -> usize {
        match &self.shared {
            None => {
                let given = |packet: &&P| self.end.give_packet(*packet, kind);
                packets.iter().take_while(given).count()
            }
            Some(areas) => {
                let mut described = 0;
                while described < packets.len() {
                    let here = packets[described..].iter();
                    let whole = here.map_while(|packet| {
                        location_of(packet, areas).filter(|location| location.head_size == location.size)
                    });
                    described += self.end.give_shared(whole, kind);
                    let Some(packet) = packets.get(described) else {
                        break;
                    };
                    let location = location_of(packet, areas);
                    let segmented = location.filter(|location| location.head_size != location.size);
                    if !segmented.is_some_and(|location| self.end.give_segmented(packet, location, kind)) {
                        break;
                    }
                    described += 1;
                }
                described
            }
        }
    }
}

/// Returns the location of a packet if the process has mapped it. Memory that EAL takes after the process was started is not
/// mapped.
#[inline]
fn location_of<P: Packet>(packet: &P, areas: &[Range<u64>]) -> Option<PacketLocation> {
    let (address, headroom) = packet.shared_address()?;
    let head_size = packet.head().len();
    let (start, end) = (address - headroom as u64, address + head_size as u64);
    let is_within = areas.iter().any(|area| start >= area.start && end <= area.end);
    is_within.then(|| PacketLocation {
        address,
        headroom,
        head_size,
        size: packet.len(),
    })
}

/// Passes a message of a process to a queue of the control side. A message that does not fit is lost.
fn pass_on(queue: &Outbox, size: usize, copy: impl FnOnce(&mut [u8])) {
    if size > queue.size() {
        return;
    }
    let _is_sent = queue.send(|buffer| {
        buffer.resize(size, 0);
        copy(buffer);
        true
    });
}

/// Applies an answer to a packet. Returns false if the packet's buffer cannot hold the result.
fn apply<P: Packet>(end: &SwitchEnd, answer: &Answer, packet: &mut P, shared: bool) -> bool {
    let size = i64::try_from(packet.head().len()).unwrap_or(i64::MAX);
    if size + i64::from(answer.growth) != answer.size as i64 {
        return false;
    }
    match usize::try_from(answer.growth) {
        Ok(growth) => {
            if packet.prepend(growth).is_err() {
                return false;
            }
        }
        Err(_) => packet.trim_front(answer.growth.unsigned_abs() as usize),
    }
    if !shared {
        end.copy(answer, packet.head_mut());
    }
    true
}

impl<P: Packet> Remote<P> for Isolated<P> {
    fn give(&mut self, kind: BurstKind, load: u8, burst: &mut Burst<P>) {
        let described = self.describe(burst, kind);
        if described != burst.len() {
            self.give_some(kind, described, burst);
        } else {
            self.held.push(kind, burst);
        }
        self.end.set_load(load);
        self.end.publish();
    }

    fn copies(&self) -> bool {
        self.shared.is_none()
    }

    fn expect(&self, packets: usize) {
        self.end.expect(packets);
    }

    fn expect_done(&self) {
        self.end.expect_done();
    }

    fn ready(&mut self) -> Option<BurstKind> {
        let kind = self.held.first_kind()?;
        (self.answered() != 0).then_some(kind)
    }

    fn take(&mut self, burst: &mut Burst<P>, verdicts: &mut ArrayVec<Verdict, BURST>) -> Option<BurstKind> {
        let done = match self.end.done() {
            Ok(0) => return None,
            Ok(done) => done,
            Err(violation) => {
                self.violation = Some(violation);
                return None;
            }
        };
        let kind = self.held.first_kind()?;
        self.take_back(kind, done, burst, verdicts);
        (!burst.is_empty()).then_some(kind)
    }

    fn reclaim(&mut self, burst: &mut Burst<P>) -> Option<BurstKind> {
        // A process of class `ring` may write to packets until it has ended.
        if !self.is_gone() {
            return None;
        }
        let kind = self.held.first_kind()?;
        self.held.take(BURST, burst);
        self.end.take(burst.len());
        Some(kind)
    }

    fn hold(&mut self, kind: BurstKind, burst: &mut Burst<P>) {
        // A lane has at most as many packets as one process has room for.
        self.held.push(kind, burst);
    }

    #[inline]
    fn has_effects(&self) -> bool {
        self.end.has_record()
    }

    #[cold]
    fn collect(&mut self, packets: usize, effects: &mut Effects) {
        let _packets_done = self.answered();
        let taken = self.end.taken();
        for _ in 0..RECORDS_AT_A_TIME {
            let record = match self.end.record() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(violation) => {
                    self.violation = Some(violation);
                    break;
                }
            };
            let end = &self.end;
            match record.kind {
                // Both records need a packet of the burst, for the pool of the new packet or for the flow.
                // They wait until there is one.
                RecordKind::Send(_) | RecordKind::Shun(..) if packets == 0 || record.after > taken => break,
                RecordKind::Send(direction) => {
                    effects.send_with(direction, record.size, |to| end.copy_record(&record, to));
                }
                RecordKind::Shun(action, idle) => {
                    // A request is ignored if its packet is not in this burst, because it was taken earlier.
                    let behind = (taken - record.after) as usize;
                    if let Some(packet) = packets.checked_sub(behind + 1) {
                        effects.shun(packet, action, idle);
                    }
                }
                RecordKind::Export => pass_on(&self.outbox, record.size, |to| end.copy_record(&record, to)),
                RecordKind::Report => pass_on(&self.report, record.size, |to| end.copy_record(&record, to)),
            }
            self.end.free_record(&record);
        }
        let refused = self.end.refused();
        effects.refuse(refused.wrapping_sub(self.refused));
        self.refused = refused;
    }

    fn shun_ended(&mut self, flow: &ShunnedFlow) {
        // A function that does not read loses the report.
        let _is_written = self.end.notify(flow);
    }

    fn show(&mut self, kind: BurstKind, load: u8, packets: &[P], which: u64) -> u64 {
        let mut shown = 0;
        for (index, packet) in packets.iter().enumerate() {
            if which & 1 << index != 0 {
                shown |= (self.describe(slice::from_ref(packet), kind) as u64) << index;
            }
        }
        self.end.set_load(load);
        self.end.publish();
        shown
    }

    #[inline]
    fn answered(&mut self) -> usize {
        if self.violation.is_some() {
            return 0;
        }
        self.end.done().unwrap_or_else(|violation| {
            self.violation = Some(violation);
            0
        })
    }

    fn verdicts(&mut self, most: usize, verdicts: &mut ArrayVec<Verdict, BURST>) -> usize {
        let same = self.end.unchanged(most);
        if same == most {
            return most;
        }
        verdicts.extend(core::iter::repeat_n(Verdict::Next, same));
        for behind in same..most {
            match self.end.verdict(behind) {
                Ok(verdict) => verdicts.push(verdict),
                Err(violation) => {
                    self.violation = Some(violation);
                    break;
                }
            }
        }
        verdicts.len()
    }

    fn forget(&mut self, packets: usize) {
        self.end.take(packets);
    }

    fn is_gone(&self) -> bool {
        self.shared.is_none() || self.process.is_dead.load(Ordering::Acquire)
    }

    fn in_flight(&self) -> usize {
        // The group holds the packets that are only shown.
        self.held.len().max(self.end.in_flight())
    }

    fn is_alive(&mut self, now: Time) -> bool {
        let has_ended =
            self.process.is_dead.load(Ordering::Acquire) || self.process.is_closed.load(Ordering::Acquire);
        // Packets that the process answered before its end are taken first.
        if has_ended && self.answered() != 0 {
            return true;
        }
        if self.violation.is_some() || has_ended {
            // The last counters of the process are kept.
            self.read_counters();
            return false;
        }
        if now < self.next_look {
            return true;
        }
        self.next_look = now + POLL_INTERVAL;
        self.read_counters();
        let beats = self.end.heartbeat();
        let chances = self.process.chances.load(Ordering::Relaxed);
        match self.heartbeat {
            Heartbeat {
                number,
                since: Some(since),
            } if beats == number => {
                let silence = if beats == 0 { BEGINNING } else { SILENCE };
                chances - since < millis(silence)
            }
            _ => {
                self.heartbeat = Heartbeat {
                    number: beats,
                    since: Some(chances),
                };
                true
            }
        }
    }

    fn has_begun(&self) -> bool {
        self.heartbeat.number != 0
    }

    fn value(&self) -> [u64; 2] {
        self.end.value()
    }

    fn failure(&self) -> String {
        if let Some(violation) = &self.violation {
            return format!("its process violated the protocol: {violation}");
        }
        if self.process.is_closed.load(Ordering::Acquire) {
            let pid = self.process.pid();
            return format!("the attached process {pid} ended or closed its connection");
        }
        match self.process.status.get() {
            Some(_) if self.process.had_no_memory.load(Ordering::Acquire) => {
                "its process exceeded `memory_mib`, and was killed".to_owned()
            }
            Some(status) => match self.process.words.get().filter(|words| !words.is_empty()) {
                Some(words) => format!("its process ended: {status}: {words}"),
                None => format!("its process ended: {status}"),
            },
            None if self.process.is_dead.load(Ordering::Acquire) => "its process ended".to_owned(),
            None => "its process sent no heartbeat".to_owned(),
        }
    }
}

impl<P> Drop for Isolated<P> {
    /// Ends the process. The control side drops all objects that a lane has replaced.
    fn drop(&mut self) {
        self.end.stop();
        self.process.kill();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use millrace_nf::shm::FunctionEnd;
    use millrace_nf::{Buffer, Context, Direction, Function, Kind, Settings};
    use millrace_wire::Frame;

    use super::*;

    /// Drops all packets.
    struct Drops;

    impl Function for Drops {
        fn process(&mut self, _: &Context, _: &mut [&mut dyn Buffer], verdicts: &mut [Verdict]) {
            verdicts.fill(Verdict::Drop);
        }
    }

    #[test]
    fn the_answers_that_a_process_gave_before_it_closed_its_connection_are_taken() {
        let window = Window::create::<Frame>(Class::Isolated).unwrap();
        let mut function = FunctionEnd::open(&File::from(window.file.try_clone().unwrap())).unwrap();
        let (connection, _other) = UnixStream::pair().unwrap();
        let process = Process::attached(std::process::id(), connection.into(), false);
        let process = Arc::new(process.unwrap());
        let setup = Kind::DEFAULT.setup(&Settings::default(), 1, 0);
        let mut isolated = Isolated::new(window, Arc::clone(&process), &setup);
        let mut burst = Burst::new();
        burst.push(Frame::new(&[7; 60]));
        isolated.give(Direction::Forward.into(), 0, &mut burst);
        assert_eq!(function.serve(&mut Drops, Time::ZERO), 1);
        process.is_closed.store(true, Ordering::Release);
        assert!(isolated.is_alive(Time::ZERO), "its answer was not taken");
        let mut verdicts = ArrayVec::new();
        assert!(isolated.take(&mut burst, &mut verdicts).is_some());
        assert_eq!(verdicts[..], [Verdict::Drop]);
        assert!(!isolated.is_alive(Time::ZERO));
    }
}
