//! The poll loop: one thread that sends due packets, receives packets, and reports its progress.
//!
//! The loop allocates memory only between runs and once per report. It reads the clock once for each burst: the
//! packets of a burst leave and arrive within a fraction of a microsecond.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use arrayvec::ArrayVec;
use millrace_dpdk::{Mbuf, Mempool, RxQueue, TxQueue, clock, free_burst};

use crate::control::{Rate, Selection};
use crate::messages::{EngineCommand, Progress};
use crate::pace::Pacer;
use crate::report::Counters;
use crate::run::{Phase, Run, SleepTicks, Ticks, stop, ticks};
use crate::settings::Settings;
use crate::stamp::{Stamp, StampLocation, TIME_SHIFT};
use crate::templates::Templates;
use crate::track::Tracker;

/// The largest number of packets in one send or receive call.
pub const BURST: usize = 32;
/// The number of rounds of the loop between two polls of the commands.
const ROUNDS_PER_COMMAND_POLL: u32 = 64;
/// The sleep of an idle loop between two polls of the commands.
const IDLE: Duration = Duration::from_millis(1);

/// The poll loop, with its queues, packets, settings and channels.
pub struct Engine {
    /// The transmit queues; a run uses one of them.
    pub tx: Vec<TxQueue>,
    /// The receive queues, device by device.
    pub rx: Vec<RxQueue>,
    /// The number of receive queues of each device; at least 1.
    pub rx_queues: usize,
    /// The packet pool.
    pub pool: Mempool,
    /// The packets to send.
    pub templates: Arc<Templates>,
    pub settings: Settings,
    /// The frequency of the time-stamp counter in Hz.
    pub hz: u64,
    /// The first run identifier, which differs from the identifiers of other processes.
    pub seed: u16,
    /// The channel of commands.
    pub commands: Receiver<EngineCommand>,
    /// The channel of progress reports. The loop does not wait for its reader: an interim report that does not fit is
    /// skipped, and the next one includes its latencies.
    pub progress: SyncSender<Progress>,
}

impl Engine {
    /// Runs the loop until [`EngineCommand::Quit`].
    pub fn run(mut self) {
        let mut run = Run {
            number: 0,
            id: self.seed,
            rate: Rate::Flat,
            pacer: Pacer::new(0.0, self.hz, 0, 1),
            phase: Phase::Idle,
            start: 0,
            sending: 0,
            next_report: u64::MAX,
            seq: 0,
            index: 0,
            tx: 0,
            first: 0,
            len: self.templates.len(),
            seq_end: u64::MAX,
            counters: Counters::default(),
            unstamped: 0,
            counts_unstamped: false,
            tracker: Tracker::new(self.templates.flows()),
            latencies: Box::default(),
            polled_at: 0,
            resumed_at: 0,
            absent: 0,
            absence_max: 0,
        };
        let mut free = ArrayVec::<Mbuf, BURST>::new();
        let mut out = ArrayVec::<Mbuf, BURST>::new();
        let times = Ticks::new(&self.settings, self.hz);
        let (mut slept_at, mut round) = (clock::rdtsc(), 0_u32);
        loop {
            round = round.wrapping_add(1);
            if round.is_multiple_of(ROUNDS_PER_COMMAND_POLL) || run.phase == Phase::Idle {
                match self.commands.try_recv() {
                    Ok(EngineCommand::Start(rate, length, selection)) => {
                        // These packets belong to the run that the new run replaces.
                        free_burst(&mut out);
                        self.start(&mut run, &times, rate, length, selection);
                    }
                    Ok(EngineCommand::Stop) => stop(&mut run, &times),
                    Ok(EngineCommand::Quit) | Err(TryRecvError::Disconnected) => return,
                    Err(TryRecvError::Empty) => {}
                }
            }
            self.receive(&mut run, &times);
            let now = clock::rdtsc();
            run.record_poll(now, times.absence);
            match run.phase {
                Phase::Idle => {
                    std::thread::sleep(IDLE);
                    run.polled_at = clock::rdtsc();
                }
                Phase::Sending { until } => {
                    let is_through = run.seq >= run.seq_end && out.is_empty();
                    if is_through || until.is_some_and(|until| now >= until) {
                        free_burst(&mut out);
                        stop(&mut run, &times);
                    } else {
                        self.send(&mut run, now, &mut free, &mut out);
                    }
                }
                Phase::Draining { quiet_since, until } => {
                    if now >= until || now.saturating_sub(quiet_since) > times.drain {
                        free_burst(&mut out);
                        self.report(&mut run, &times, now, true);
                        run.phase = Phase::Idle;
                    }
                }
            }
            if now >= run.next_report && run.phase != Phase::Idle {
                self.report(&mut run, &times, now, false);
            }
            if let Some(SleepTicks { every, length }) = times.sleep
                && now.saturating_sub(slept_at) >= every
            {
                std::thread::sleep(length);
                slept_at = clock::rdtsc();
            }
        }
    }

    fn start(
        &mut self,
        run: &mut Run,
        times: &Ticks,
        rate: Rate,
        length: Option<Duration>,
        selection: Selection,
    ) {
        run.tracker.clear();
        run.latencies.all.clear();
        run.latencies.attended.clear();
        run.counters = Counters::default();
        (run.unstamped, run.absent, run.absence_max) = (0, 0, 0);
        run.number += 1;
        run.id = self.seed.wrapping_add(run.number as u16);
        (run.seq, run.index, run.tx) = (0, 0, selection.tx);
        let is_once = length.is_none() && selection.packets.is_some();
        let packets = selection.packets.unwrap_or(0..self.templates.len());
        (run.first, run.len) = (packets.start, packets.len());
        run.counts_unstamped = self.settings.stamp_every > 1 || !self.templates.are_stampable(packets);
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
        (run.start, run.polled_at, run.resumed_at) = (now, now, now);
        run.next_report = times.next_report(now);
    }

    /// Sends the due packets, one burst at most.
    #[inline]
    fn send(
        &mut self,
        run: &mut Run,
        now: u64,
        free: &mut ArrayVec<Mbuf, BURST>,
        out: &mut ArrayVec<Mbuf, BURST>,
    ) {
        let is_flat = run.rate == Rate::Flat;
        if !is_flat || out.is_empty() {
            let due = if is_flat { BURST as u64 } else { run.pacer.due(now) };
            let due = due.min(BURST as u64).min(run.seq_end - run.seq) as usize;
            if due == 0 {
                return;
            }
            self.build_burst(run, due, free, out);
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

    /// Appends the next packets, with their stamps, to `out` until it has `len`.
    #[inline]
    fn build_burst(
        &mut self,
        run: &mut Run,
        len: usize,
        free: &mut ArrayVec<Mbuf, BURST>,
        out: &mut ArrayVec<Mbuf, BURST>,
    ) {
        let mut locations = ArrayVec::<(Option<StampLocation>, u64), BURST>::new();
        while out.len() < len {
            if free.is_empty() && self.pool.alloc_burst(free) == 0 {
                // The pool is too small, or a device holds packets. Packets that are not built count as
                // missed later.
                break;
            }
            let (Some(mut packet), Some((template, bytes))) =
                (free.pop(), self.templates.get(run.first + run.index))
            else {
                break;
            };
            let Some(tail) = packet.append(bytes.len()) else {
                break;
            };
            tail.copy_from_slice(bytes);
            let is_stamped = run.seq.is_multiple_of(self.settings.stamp_every);
            locations.push((template.location.filter(|_| is_stamped), run.seq));
            out.push(packet);
            run.seq += 1;
            run.index += 1;
            if run.index == run.len {
                run.index = 0;
            }
        }
        let time = (clock::rdtsc() >> TIME_SHIFT) as u32;
        for (packet, (location, seq)) in out.iter_mut().zip(locations) {
            if let Some(location) = location {
                let stamp = Stamp {
                    run: run.id,
                    seq: seq as u32,
                    time,
                };
                stamp.write(packet.head_mut(), location);
            }
        }
    }

    /// Receives one burst from every queue.
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

    fn report(&self, run: &mut Run, times: &Ticks, now: u64, is_end: bool) {
        let sending = if let Phase::Sending { .. } = run.phase {
            now - run.start
        } else {
            run.sending
        };
        run.next_report = times.next_report(now);
        let counts = run.tracker.counts;
        run.counters.missed = match run.rate {
            Rate::Flat => 0,
            Rate::Pps(_) => run.pacer.missed(),
        };
        run.counters.received = counts.unique + run.unstamped;
        run.counters.duplicated = counts.duplicated;
        run.counters.reordered = counts.reordered;
        run.counters.absent_ns = times.nanoseconds(run.absent);
        run.counters.absence_max_ns = times.nanoseconds(run.absence_max);
        let progress = Progress {
            run: run.number,
            rate: match run.rate {
                Rate::Flat => None,
                Rate::Pps(rate) => Some(rate),
            },
            seconds: sending as f64 / self.hz as f64,
            counters: run.counters,
            latencies: std::mem::take(&mut run.latencies),
            is_end,
        };
        if is_end {
            // The run is over, so a blocking send does not disturb it. If the reader has ended, the program
            // is ending.
            let _ = self.progress.send(progress);
        } else if let Err(error) = self.progress.try_send(progress) {
            let (std::sync::mpsc::TrySendError::Full(progress)
            | std::sync::mpsc::TrySendError::Disconnected(progress)) = error;
            run.latencies = progress.latencies;
        }
        run.polled_at = clock::rdtsc();
    }
}
