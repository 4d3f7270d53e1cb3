//! The receiving sites of a session: packets that arrive, complete extents, the disk, and feedback.

use super::{CONTROL, DISK, Event, OPEN_GROUPS_SPARE, Session, source};
use crate::HEADERS;
use millrace_transport::extent::{GROUP_SIZE, Layout};
use millrace_transport::packet::{Feedback, Head, PacketType};
use millrace_types::Duration;
use std::collections::BTreeMap;
use std::ops::Range;

/// Adds new bytes to their groups. `open` has the number of bytes that arrived for each open group. Returns
/// the bytes of the groups that become complete.
fn add_to_groups(open: &mut BTreeMap<u64, u64>, mut range: Range<u64>, layout: Layout) -> u64 {
    let mut whole = 0;
    while !range.is_empty() {
        let group = range.start / GROUP_SIZE;
        let end = ((group + 1) * GROUP_SIZE).min(layout.bytes());
        let arrived = open.entry(group).or_default();
        *arrived += range.end.min(end) - range.start;
        if *arrived == end - group * GROUP_SIZE {
            whole += *arrived;
            open.remove(&group);
        }
        range.start = range.end.min(end);
    }
    whole
}

impl Session {
    /// Handles a packet that arrives at a site.
    pub(super) fn arrive(&mut self, index: usize, connection: u32, mut bytes: Vec<u8>) {
        let now = self.queue.now();
        let site = &mut self.sites[index];
        site.link.arrived += 1;
        let (Some(receiver), true) = (&mut site.receiver, site.connection == connection) else {
            return;
        };
        let is_report = Head::decode(&bytes).is_ok_and(|head| head.packet_type == PacketType::Report);
        let mut completes = None;
        if is_report {
            let _ = receiver.handle_report(&bytes, &site.keys[0]);
        } else if let Ok(Some(delivery)) =
            receiver.handle_data(now, &mut bytes, &site.keys[0], &mut site.content, false)
        {
            let start = usize::try_from(delivery.address).unwrap_or(usize::MAX);
            for range in &*delivery.new {
                let skip = usize::try_from(range.start - delivery.address).unwrap_or(usize::MAX);
                let len = usize::try_from(range.end - range.start).unwrap_or(0);
                site.file[start + skip..][..len].copy_from_slice(&delivery.bytes[skip..][..len]);
                site.unwritten += add_to_groups(&mut site.open_groups, range.clone(), self.spec.layout);
            }
            completes = delivery.completes;
        }
        site.discarded = receiver.stats();
        let (backlog, open) = (receiver.backlog(), receiver.open_groups());
        let (pool, with_bytes) = (site.site.pool, site.open_groups.len() as u64);
        if backlog > pool + 3 * u64::from(self.spec.mtu) {
            self.fail(format!(
                "site {index}: a backlog of {backlog} bytes exceeds the pool"
            ));
        }
        if open != with_bytes || open > pool / GROUP_SIZE + OPEN_GROUPS_SPARE {
            self.fail(format!(
                "site {index}: {open} groups are open, {with_bytes} have bytes, in a pool of {pool} bytes"
            ));
        }
        if let Some(extent) = completes {
            self.verify(index, extent);
        }
        self.serve_site(index);
    }

    /// Compares an extent with its digest, which arrived by the control channel.
    fn verify(&mut self, index: usize, extent: u64) {
        let now = self.queue.now();
        let (start, end) = self.spec.layout.bounds(extent);
        let site = &mut self.sites[index];
        let expected = source(self.spec.seed, start, end - start);
        let right = site.file[start as usize..end as usize] == expected;
        if let Some(receiver) = &mut site.receiver {
            if right {
                receiver.verified(extent);
            } else {
                receiver.rejected(extent);
            }
        }
        let event = Event::Verified {
            site: index,
            connection: site.connection,
            extent,
            right,
        };
        self.queue.schedule(now + CONTROL, event);
    }

    /// Writes as many bytes as the disk writes in its interval.
    pub(super) fn write(&mut self, index: usize) {
        let now = self.queue.now();
        let site = &mut self.sites[index];
        let most = site.site.disk * DISK.as_millis() as u64 / 1_000;
        let bytes = site.unwritten.min(most);
        site.unwritten -= bytes;
        if let Some(receiver) = &mut site.receiver {
            receiver.written(bytes);
        }
        if site.done.is_none() && site.ended.is_none() {
            self.queue.schedule(now + DISK, Event::Disk(index));
        }
        self.serve_site(index);
    }

    /// Sends the feedback that a receiver owes, and schedules its next wake-up.
    pub(super) fn serve_site(&mut self, index: usize) {
        let now = self.queue.now();
        let site = &mut self.sites[index];
        let (Some(receiver), true) = (&mut site.receiver, site.connection != 0) else {
            return;
        };
        for (number, mut feedback) in receiver.poll_feedback(now) {
            if site.site.forges_acks_from.is_some_and(|at| now >= at) {
                forge_acks(&mut feedback);
            }
            let packet = receiver.encode_feedback(number, &feedback, &site.keys[1]);
            for (at, bytes) in site.return_path.offer_bytes(now, HEADERS, &packet) {
                self.queue.schedule(at, Event::Feedback { site: index, bytes });
            }
        }
        if let Some(at) = receiver.next_timeout() {
            let at = at.max(now + Duration::from_nanos(1));
            if site.wake_at.is_none_or(|other| at < other) {
                site.wake_at = Some(at);
                self.queue.schedule(at, Event::SiteWake(index));
            }
        }
    }
}

/// Forges acknowledgements of all numbers up to five beyond the largest, so that they include lost and
/// skipped numbers.
fn forge_acks(feedback: &mut Feedback) {
    if let Some(newest) = feedback.acknowledged.last() {
        let everything = 0..newest.end + 5;
        feedback.acknowledged = Vec::from([everything]);
    }
}
