//! The poll loop: one thread that sends what is due, takes in what came, and says now and then how it goes.
//!
//! It allocates only between runs and once an interval. Time is read once for each burst: packets of a burst
//! leave and arrive together, within a fraction of a microsecond.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use arrayvec::ArrayVec;
use millrace_dpdk::{Mbuf, Mempool, RxQueue, TxQueue, clock, free_burst};

use crate::control::{Portion, Rate};
use crate::latency::Latencies;
use crate::pace::Pacer;
use crate::report::Counters;
use crate::stamp::{self, Place, Stamp, TIME_SHIFT};
use crate::templates::Templates;
use crate::track::Tracker;

/// Packets that are sent or received with one call.
pub const BURST: usize = 32;
/// How many rounds of the loop pass between two looks at the commands.
const ROUNDS_PER_LOOK: u32 = 64;
/// How long to wait for the last packets of a run at most.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// How long the loop sleeps while there is no run.
const IDLE: Duration = Duration::from_millis(1);

/// How the loop behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The most packets that are made up for at once, when the loop was away.
    pub depth: u64,
    /// How often it says how it goes; zero is never.
    pub interval: Duration,
    /// It was absent when it did not look at its queues for so long.
    pub absence: Duration,
    /// A run is over when it has ended and no packet came for so long.
    pub drain: Duration,
    /// It sleeps regularly, so that others have the core.
    pub rest: Option<Rest>,
    /// One of so many packets gets a stamp; at least 1.
    pub stamp_every: u64,
    /// True if payloads and header checksums of what comes are looked at.
    pub verify: bool,
}

/// A regular sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// How often.
    pub every: Duration,
    /// How long.
    pub length: Duration,
}

/// What the loop is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// A new run, of devices and packets that there are.
    Start(Rate, Option<Duration>, Portion),
    /// The run ends.
    Stop,
    /// The loop ends.
    Quit,
}

/// Latencies of a part of a run.
#[derive(Debug, Default)]
pub struct Parts {
    /// Of all packets.
    pub all: Latencies,
    /// Of packets during whose journey the loop was never absent.
    pub attended: Latencies,
}

/// What the loop says.
#[derive(Debug)]
pub struct Note {
    /// Which run, from 1.
    pub run: u64,
    /// Packets a second asked for; none is flat out.
    pub rate: Option<f64>,
    /// How long packets are or were being sent.
    pub seconds: f64,
    /// What was counted since the run began.
    pub counters: Counters,
    /// Latencies since the note before.
    pub parts: Box<Parts>,
    /// True if the run is over.
    pub is_end: bool,
}

/// Everything that the loop owns.
pub struct Engine {
    /// What sends: one of these in each run.
    pub tx: Vec<TxQueue>,
    /// What receives: device after device, of each as many queues.
    pub rx: Vec<RxQueue>,
    /// How many queues each device has, at least one.
    pub rx_queues: usize,
    /// Where packets are made.
    pub pool: Mempool,
    /// What they are.
    pub templates: Arc<Templates>,
    /// How it behaves.
    pub settings: Settings,
    /// Ticks a second.
    pub hz: u64,
    /// Tells runs of this process from those of another.
    pub seed: u16,
    /// What it is told.
    pub orders: Receiver<Order>,
    /// What it says. It does not wait for a reader: a note about a part of a run that finds no room is left
    /// out, and its latencies are in the next one.
    pub notes: SyncSender<Note>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Idle,
    Sending { until: Option<u64> },
    Draining { quiet_since: u64, until: u64 },
}

/// A run and what the loop needs for it.
struct Run {
    number: u64,
    id: u16,
    rate: Rate,
    pacer: Pacer,
    phase: Phase,
    start: u64,
    sending: u64,
    next_note: u64,
    seq: u64,
    index: usize,
    /// Which of the packets are sent, over and over, and by which device.
    tx: usize,
    first: usize,
    len: usize,
    /// How many are sent at most.
    seq_end: u64,
    counters: Counters,
    /// Packets without a stamp that were received as ours.
    plain: u64,
    /// True if not all packets get a stamp, so that one without may be ours.
    plain_is_ours: bool,
    tracker: Tracker,
    parts: Box<Parts>,
    /// When the loop last looked at its queues, and when its last absence ended.
    looked: u64,
    returned: u64,
    absent: u64,
    absence_max: u64,
}

/// The durations of the settings, in ticks.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    ns_per_tick: f64,
    absence: u64,
    drain: u64,
    drain_max: u64,
    interval: u64,
    rest: Option<(u64, Duration)>,
}

impl Ticks {
    fn new(settings: &Settings, hz: u64) -> Ticks {
        Ticks {
            ns_per_tick: 1e9 / hz.max(1) as f64,
            absence: ticks(settings.absence, hz),
            drain: ticks(settings.drain, hz),
            drain_max: ticks(DRAIN_MAX, hz),
            interval: ticks(settings.interval, hz),
            rest: settings.rest.map(|rest| (ticks(rest.every, hz), rest.length)),
        }
    }

    fn next_note(&self, now: u64) -> u64 {
        match self.interval {
            0 => u64::MAX,
            interval => now + interval,
        }
    }

    #[inline]
    fn nanoseconds(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }
}

/// Ticks of a duration.
fn ticks(duration: Duration, hz: u64) -> u64 {
    (duration.as_nanos() * u128::from(hz) / 1_000_000_000) as u64
}

impl Engine {
    /// Runs until it is told to quit.
    pub fn run(mut self) {
        let mut run = Run {
            number: 0,
            id: self.seed,
            rate: Rate::Flat,
            pacer: Pacer::new(0.0, self.hz, 0, 1),
            phase: Phase::Idle,
            start: 0,
            sending: 0,
            next_note: u64::MAX,
            seq: 0,
            index: 0,
            tx: 0,
            first: 0,
            len: self.templates.len(),
            seq_end: u64::MAX,
            counters: Counters::default(),
            plain: 0,
            plain_is_ours: self.settings.stamp_every > 1 || self.templates.stampable() < self.templates.len(),
            tracker: Tracker::new(self.templates.flows()),
            parts: Box::default(),
            looked: 0,
            returned: 0,
            absent: 0,
            absence_max: 0,
        };
        let mut stock = ArrayVec::<Mbuf, BURST>::new();
        let mut out = ArrayVec::<Mbuf, BURST>::new();
        let times = Ticks::new(&self.settings, self.hz);
        let (mut rested, mut round) = (clock::rdtsc(), 0_u32);
        loop {
            round = round.wrapping_add(1);
            if round.is_multiple_of(ROUNDS_PER_LOOK) || run.phase == Phase::Idle {
                match self.orders.try_recv() {
                    Ok(Order::Start(rate, length, portion)) => {
                        self.start(&mut run, &times, rate, length, portion);
                    }
                    Ok(Order::Stop) => stop(&mut run, &times),
                    Ok(Order::Quit) | Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => {}
                }
            }
            self.receive(&mut run, &times);
            let now = clock::rdtsc();
            run.look(now, times.absence);
            match run.phase {
                Phase::Idle => {
                    std::thread::sleep(IDLE);
                    run.looked = clock::rdtsc();
                }
                Phase::Sending { until } => {
                    let is_through = run.seq >= run.seq_end && out.is_empty();
                    if is_through || until.is_some_and(|until| now >= until) {
                        free_burst(&mut out);
                        stop(&mut run, &times);
                    } else {
                        self.send(&mut run, now, &mut stock, &mut out);
                    }
                }
                Phase::Draining { quiet_since, until } => {
                    if now >= until || now.saturating_sub(quiet_since) > times.drain {
                        free_burst(&mut out);
                        self.note(&mut run, &times, now, true);
                        run.phase = Phase::Idle;
                    }
                }
            }
            if now >= run.next_note && run.phase != Phase::Idle {
                self.note(&mut run, &times, now, false);
            }
            if let Some((every, length)) = times.rest
                && now.saturating_sub(rested) >= every
            {
                std::thread::sleep(length);
                rested = clock::rdtsc();
            }
        }
    }

    fn start(
        &mut self,
        run: &mut Run,
        times: &Ticks,
        rate: Rate,
        length: Option<Duration>,
        portion: Portion,
    ) {
        run.tracker.clear();
        run.parts.all.clear();
        run.parts.attended.clear();
        run.counters = Counters::default();
        (run.plain, run.absent, run.absence_max) = (0, 0, 0);
        run.number += 1;
        run.id = self.seed.wrapping_add(run.number as u16);
        (run.seq, run.index, run.tx) = (0, 0, portion.tx);
        let is_once = length.is_none() && portion.packets.is_some();
        let packets = portion.packets.unwrap_or(0..self.templates.len());
        (run.first, run.len) = (packets.start, packets.len());
        run.seq_end = if is_once { run.len as u64 } else { u64::MAX };
        run.rate = rate;
        let now = clock::rdtsc();
        let pps = match rate {
            Rate::Flat => self.hz as f64,
            Rate::Pps(rate) => rate,
        };
        run.pacer = Pacer::new(pps, self.hz, now, self.settings.depth);
        run.phase = Phase::Sending {
            until: length.map(|length| now + ticks(length, self.hz)),
        };
        (run.start, run.looked, run.returned) = (now, now, now);
        run.next_note = times.next_note(now);
    }

    /// Offers what is due, at most a burst.
    #[inline]
    fn send(
        &mut self,
        run: &mut Run,
        now: u64,
        stock: &mut ArrayVec<Mbuf, BURST>,
        out: &mut ArrayVec<Mbuf, BURST>,
    ) {
        let is_flat = run.rate == Rate::Flat;
        if !is_flat || out.is_empty() {
            let due = if is_flat { BURST as u64 } else { run.pacer.due(now) };
            let due = due.min(BURST as u64).min(run.seq_end - run.seq) as usize;
            if due == 0 {
                return;
            }
            self.make(run, due, stock, out);
        }
        let offered = out.len();
        let size: usize = out.iter().map(Mbuf::len).sum();
        let Some(tx) = self.tx.get_mut(run.tx) else {
            return;
        };
        let taken = tx.tx_burst(out);
        let left: usize = out.iter().map(Mbuf::len).sum();
        run.counters.sent += taken as u64;
        run.counters.sent_bytes += (size - left) as u64;
        if !is_flat {
            run.pacer.issue(offered as u64);
            run.counters.refused += (offered - taken) as u64;
            free_burst(out);
        }
    }

    /// The next packets, with their stamps.
    #[inline]
    fn make(
        &mut self,
        run: &mut Run,
        len: usize,
        stock: &mut ArrayVec<Mbuf, BURST>,
        out: &mut ArrayVec<Mbuf, BURST>,
    ) {
        let mut places = ArrayVec::<(Option<Place>, u64), BURST>::new();
        while out.len() < len {
            if stock.is_empty() && self.pool.alloc_burst(stock) == 0 {
                // The pool is small or packets are stuck in a device: what is not made counts as missed, later.
                break;
            }
            let (Some(mut packet), Some((template, bytes))) =
                (stock.pop(), self.templates.get(run.first + run.index))
            else {
                break;
            };
            let Some(room) = packet.append(bytes.len()) else {
                break;
            };
            room.copy_from_slice(bytes);
            let is_stamped = run.seq.is_multiple_of(self.settings.stamp_every);
            places.push((template.place.filter(|_| is_stamped), run.seq));
            out.push(packet);
            run.seq += 1;
            run.index += 1;
            if run.index == run.len {
                run.index = 0;
            }
        }
        let time = (clock::rdtsc() >> TIME_SHIFT) as u32;
        for (packet, (place, seq)) in out.iter_mut().zip(places) {
            if let Some(place) = place {
                let stamp = Stamp {
                    run: run.id,
                    seq: seq as u32,
                    time,
                };
                stamp.write(packet.head_mut(), place);
            }
        }
    }

    /// Takes in what came, from every queue one burst.
    #[inline]
    fn receive(&mut self, run: &mut Run, times: &Ticks) {
        let mut burst = ArrayVec::<Mbuf, BURST>::new();
        let devices = self.rx.chunks_mut(self.rx_queues).enumerate();
        for (device, rx) in devices.flat_map(|(device, queues)| queues.iter_mut().map(move |rx| (device, rx)))
        {
            if rx.rx_burst(&mut burst) == 0 {
                continue;
            }
            let now = clock::rdtsc();
            for packet in &burst {
                packet.prefetch_head();
            }
            if run.phase != Phase::Idle {
                for packet in &burst {
                    run.take(packet, device, now, times, &self.templates, self.settings.verify);
                }
            }
            if let Phase::Draining { quiet_since, .. } = &mut run.phase {
                *quiet_since = now;
            }
            free_burst(&mut burst);
        }
    }

    fn note(&self, run: &mut Run, times: &Ticks, now: u64, is_end: bool) {
        let sending = if let Phase::Sending { .. } = run.phase {
            now - run.start
        } else {
            run.sending
        };
        run.next_note = times.next_note(now);
        let counts = run.tracker.counts;
        run.counters.missed = match run.rate {
            Rate::Flat => 0,
            Rate::Pps(_) => run.pacer.missed(),
        };
        run.counters.received = counts.unique + run.plain;
        run.counters.duplicated = counts.duplicated;
        run.counters.reordered = counts.reordered;
        run.counters.absent_ns = times.nanoseconds(run.absent);
        run.counters.absence_max_ns = times.nanoseconds(run.absence_max);
        let note = Note {
            run: run.number,
            rate: match run.rate {
                Rate::Flat => None,
                Rate::Pps(rate) => Some(rate),
            },
            seconds: sending as f64 / self.hz as f64,
            counters: run.counters,
            parts: std::mem::take(&mut run.parts),
            is_end,
        };
        if is_end {
            // Nothing is under way any more, so waiting does no harm; without a reader the program ends.
            let _ = self.notes.send(note);
        } else if let Err(error) = self.notes.try_send(note) {
            let (std::sync::mpsc::TrySendError::Full(note)
            | std::sync::mpsc::TrySendError::Disconnected(note)) = error;
            run.parts = note.parts;
        }
        run.looked = clock::rdtsc();
    }
}

/// Sends no more; what is under way may still come.
fn stop(run: &mut Run, times: &Ticks) {
    if let Phase::Sending { until } = run.phase {
        let now = clock::rdtsc();
        // A loop that was away at the end of its time has not sent for longer than that.
        let end = until.map_or(now, |until| until.min(now));
        run.sending = end - run.start;
        if run.seq < run.seq_end {
            run.pacer.close(end);
        }
        run.phase = Phase::Draining {
            quiet_since: now,
            until: now + times.drain_max,
        };
    }
}

impl Run {
    /// The loop looks at its queues now; whether it was absent before.
    #[inline]
    fn look(&mut self, now: u64, absence: u64) {
        let away = now.saturating_sub(self.looked);
        self.looked = now;
        if away > absence {
            self.returned = now;
            if self.phase != Phase::Idle {
                self.counters.absences += 1;
                self.absent += away;
                self.absence_max = self.absence_max.max(away);
            }
        }
    }

    #[inline]
    fn take(
        &mut self,
        packet: &Mbuf,
        device: usize,
        now: u64,
        times: &Ticks,
        templates: &Templates,
        verify: bool,
    ) {
        let frame = packet.head();
        let stamped = Place::of(frame).and_then(|place| Some((place, Stamp::read(frame, place)?)));
        let Some((place, stamp)) = stamped else {
            if self.plain_is_ours {
                self.plain += 1;
            } else {
                self.counters.foreign += 1;
            }
            return;
        };
        if stamp.run != self.id {
            self.counters.stale += 1;
            return;
        }
        let seq = stamp::widen(stamp.seq, self.seq);
        let Some((template, sent)) = templates.get(self.first + (seq % self.len as u64) as usize) else {
            return;
        };
        let unique = self.tracker.counts.unique;
        self.tracker.arrive(seq, template.flow);
        if self.tracker.counts.unique == unique {
            return;
        }
        if let Some(count) = self.counters.received_by.get_mut(device) {
            *count += 1;
        }
        // The look at the queues that found this packet has not been noted yet.
        let away = now.saturating_sub(self.looked);
        let then = stamp::widen(stamp.time, now >> TIME_SHIFT) << TIME_SHIFT;
        let ns = times.nanoseconds(now.saturating_sub(then));
        self.parts.all.record(ns);
        if then >= self.returned && away <= times.absence {
            self.parts.attended.record(ns);
        }
        if verify && !is_as_sent(packet, place, sent, template.place) {
            self.counters.corrupted += 1;
        }
    }
}

/// Returns true if a packet has the header checksum and the payload that it should. Tags may have come or gone.
fn is_as_sent(packet: &Mbuf, place: Place, sent: &[u8], sent_place: Option<Place>) -> bool {
    let Some(payload) = sent_place.and_then(|place| sent.get(place.end()..)) else {
        return true;
    };
    let mut offset = place.end();
    if packet.len() != offset + payload.len() {
        return false;
    }
    let mut left = payload;
    for segment in packet.segments() {
        let Some(bytes) = segment.get(offset.min(segment.len())..) else {
            return false;
        };
        offset = offset.saturating_sub(segment.len());
        let (here, rest) = left.split_at(bytes.len().min(left.len()));
        if bytes != here {
            return false;
        }
        left = rest;
    }
    left.is_empty() && stamp::is_header_right(packet.head())
}
