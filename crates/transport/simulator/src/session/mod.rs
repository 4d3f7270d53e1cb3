//! A session with bytes: one group, its receivers, and their failures.
//!
//! Packets are sealed, have heads with MACs, and cross the emulated paths as bytes. Corruption inverts bits
//! of them. The control channel is a reliable stream with a delay of half a second. It carries digests,
//! have-maps, and the verified and durable extents. A receiver that crashes loses the extents that are not
//! durable, and returns on a new connection.
//!
//! [`Session::check`] checks these conditions: unwritten bytes stay within the pool; a receiver has at most
//! as many open groups as fill its pool, and [`OPEN_GROUPS_SPARE`] more; every packet that was offered to a
//! path was dropped or arrived.

mod site;

use crate::HEADERS;
use crate::network::{AuditError, Link, LinkSpec};
use crate::queue::EventQueue;
use millrace_transport::congestion::bbr::{Bbr, BbrConfig};
use millrace_transport::extent::Layout;
use millrace_transport::flow::{FlowConfig, Outgoing, Piece};
use millrace_transport::random::Random;
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Discard, Receiver, ReceiverConfig, ReceiverStats};
use millrace_transport::seal::{Algorithm, ContentKey, PairwiseKey, SealError};
use millrace_transport::sender::{
    Connection, FeedbackError, Group, MemberId, SealPieceError, SealRequest, Sealer, SlabCache,
};
use millrace_types::{BitRate, Duration, Time};
use millrace_wan_emulator::{ConfigError, PathConfig};
use std::collections::BTreeMap;

/// The delay of the control channel.
const CONTROL: Duration = Duration::from_millis(500);
/// Bytes of a packet besides its payload: IPv4, UDP, and the protocol's.
const PACKET_OVERHEAD: u64 = 72;
/// The number of open groups of a receiver beyond those that fill its pool. They are at the beginning and the
/// end of a range of addresses.
const OPEN_GROUPS_SPARE: u64 = 4;
/// The interval at which disks write.
const DISK: Duration = Duration::from_millis(10);

/// One receiver.
#[derive(Clone, Debug)]
pub struct Site {
    /// The path to the receiver.
    pub forward: PathConfig,
    /// The path from the receiver to the sender, on which feedback travels.
    pub return_path: PathConfig,
    /// The round-trip time of the control channel's handshake, if it is known.
    pub handshake_rtt: Option<Duration>,
    /// The time at which the receiver joins.
    pub joins: Time,
    /// The size of its pool: the number of received bytes that may wait to be written.
    pub pool: u64,
    /// The rate of its disk in bytes a second.
    pub disk: u64,
    /// The time at which the receiver crashes, and the duration of its absence.
    pub crashes: Option<(Time, Duration)>,
    /// The time from which the receiver acknowledges packets that were never sent.
    pub forges_acks_from: Option<Time>,
}

/// A change of the path to a site.
#[derive(Clone, Debug)]
pub struct Change {
    /// The time of the change.
    pub at: Time,
    /// The index of the site.
    pub site: usize,
    /// The new path.
    pub forward: PathConfig,
}

/// The specification of a session.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The seed of all random draws.
    pub seed: u64,
    /// The address space.
    pub layout: Layout,
    /// Bytes of payload of a full packet at the start.
    pub payload: u16,
    /// The MTU of the sender's interface.
    pub mtu: u16,
    /// The size of the slab cache in bytes.
    pub cache: usize,
    /// The maximum rate to all receivers together.
    pub uplink: Option<BitRate>,
    /// The receivers.
    pub sites: Vec<Site>,
    /// Changes of paths.
    pub changes: Vec<Change>,
}

struct SiteState {
    site: Site,
    link: Link,
    return_path: Link,
    member: Option<MemberId>,
    receiver: Option<Receiver>,
    connection: u32,
    keys: [PairwiseKey; 2],
    content: ContentKey,
    file: Vec<u8>,
    /// Bytes of complete groups that are not written. The disk writes only complete groups.
    unwritten: u64,
    /// The number of bytes that arrived, for each open group.
    open_groups: BTreeMap<u64, u64>,
    wake_at: Option<Time>,
    done: Option<Time>,
    ended: Option<String>,
    discarded: ReceiverStats,
    path_mtu: u64,
    mtu_probes_lost: u64,
}

enum Event {
    Join(usize),
    Crash(usize),
    Change(usize),
    Wake,
    SiteWake(usize),
    Disk(usize),
    Datagram {
        site: usize,
        connection: u32,
        bytes: Vec<u8>,
    },
    Feedback {
        site: usize,
        bytes: Vec<u8>,
    },
    Verified {
        site: usize,
        connection: u32,
        extent: u64,
        right: bool,
    },
}

/// A running session.
pub struct Session {
    spec: SessionSpec,
    queue: EventQueue<Event>,
    group: Group,
    cache: SlabCache,
    sealer: Sealer<ContentKey>,
    sites: Vec<SiteState>,
    random: Random,
    wake_at: Option<Time>,
    problem: Option<String>,
}

/// Returns the source bytes of a range. Each random number gives eight bytes.
fn source(seed: u64, address: u64, len: u64) -> Vec<u8> {
    let words = address / 8..(address + len).div_ceil(8);
    let bytes = words.flat_map(|word| {
        Random::new(seed ^ word.wrapping_mul(0x9e37_79b9))
            .next()
            .to_le_bytes()
    });
    let (skip, take) = (
        usize::try_from(address % 8).unwrap_or(0),
        usize::try_from(len).unwrap_or(0),
    );
    bytes.skip(skip).take(take).collect()
}

fn content(seed: u64) -> Result<ContentKey, SealError> {
    let secret: Vec<u8> = seed.to_le_bytes().repeat(4);
    ContentKey::new(Algorithm::Aes128Gcm, &secret)
}

impl Session {
    /// Returns a session that has not started.
    ///
    /// # Errors
    /// If a path's configuration is not valid.
    pub fn new(spec: SessionSpec) -> Result<Session, ConfigError> {
        let mut random = Random::new(spec.seed);
        let key = |seed: u64| match content(seed) {
            Ok(key) => key,
            Err(_) => unreachable!("the secret has 32 bytes"),
        };
        let mut sites = Vec::new();
        let mut queue = EventQueue::new();
        for (index, site) in spec.sites.iter().enumerate() {
            let link = |path: &PathConfig| LinkSpec {
                path: path.clone(),
                policer: None,
            };
            sites.push(SiteState {
                link: Link::new(&link(&site.forward), &mut random)?,
                return_path: Link::new(&link(&site.return_path), &mut random)?,
                member: None,
                receiver: None,
                connection: 0,
                keys: [PairwiseKey::new([0; 16]), PairwiseKey::new([0; 16])],
                content: key(spec.seed),
                file: vec![0; usize::try_from(spec.layout.bytes()).unwrap_or(0)],
                unwritten: 0,
                open_groups: BTreeMap::new(),
                wake_at: None,
                done: None,
                ended: None,
                discarded: ReceiverStats::default(),
                path_mtu: 0,
                mtu_probes_lost: 0,
                site: site.clone(),
            });
            queue.schedule(site.joins, Event::Join(index));
            if let Some((at, _)) = site.crashes {
                queue.schedule(at, Event::Crash(index));
            }
            queue.schedule(site.joins, Event::Disk(index));
        }
        for (index, change) in spec.changes.iter().enumerate() {
            queue.schedule(change.at, Event::Change(index));
        }
        let mut group = Group::new(spec.layout);
        group.set_uplink(spec.uplink, u64::from(spec.payload) + PACKET_OVERHEAD, Time::ZERO);
        Ok(Session {
            group,
            cache: SlabCache::new(spec.layout, spec.cache),
            sealer: Sealer::new(spec.layout, key(spec.seed)),
            spec,
            queue,
            sites,
            random,
            wake_at: None,
            problem: None,
        })
    }

    /// Runs until every site is complete or has failed, or until `end`. Returns true if no site is still
    /// running.
    pub fn run_until(&mut self, end: Time) -> bool {
        while let Some(event) = self.queue.next(end) {
            self.happen(event);
            if self.problem.is_some() {
                return false;
            }
            if self
                .sites
                .iter()
                .all(|site| site.done.is_some() || site.ended.is_some())
            {
                return true;
            }
        }
        false
    }

    /// Returns the time at which a site had all bytes, and the reason if the site failed.
    pub fn outcome(&self, site: usize) -> (Option<Time>, Option<&str>) {
        (self.sites[site].done, self.sites[site].ended.as_deref())
    }

    /// Returns the size of a full IP packet to a site at the last feedback in bytes, and the number of lost
    /// probes of its path MTU.
    pub fn path_mtu(&self, site: usize) -> (u64, u64) {
        (self.sites[site].path_mtu, self.sites[site].mtu_probes_lost)
    }

    /// Returns the number of sealed packets.
    pub fn seals(&self) -> u64 {
        self.sealer.sealed()
    }

    /// Returns the counters of a site's receivers, including those before a crash.
    pub fn stats(&self, site: usize) -> ReceiverStats {
        self.sites[site].discarded
    }

    /// Returns the number of packets offered to all paths.
    pub fn packets(&self) -> u64 {
        self.sites
            .iter()
            .map(|site| site.link.counters.offered + site.return_path.counters.offered)
            .sum()
    }

    /// Checks the session for a broken bound, a packet unaccounted for, or a file that differs.
    ///
    /// # Errors
    /// A description of the first problem.
    pub fn check(&self) -> Result<(), String> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        self.audit().map_err(|error| error.to_string())?;
        for (index, site) in self.sites.iter().enumerate() {
            if site.done.is_some() && site.file != source(self.spec.seed, 0, self.spec.layout.bytes()) {
                return Err(format!("site {index}: the file differs from the source"));
            }
            if site.done.is_none() && site.ended.is_none() {
                let member = site.member.and_then(|member| self.group.flow(member));
                return Err(format!(
                    "site {index}: not complete, and not ended: {:?} {:?}",
                    member.map(|flow| (flow.stats(), flow.limit(), flow.in_flight())),
                    site.receiver.as_ref().map(|receiver| (
                        receiver.stats(),
                        receiver.extents_in_progress(),
                        receiver.ranges_in_memory()
                    ))
                ));
            }
        }
        Ok(())
    }

    /// Checks that every packet arrived, was dropped by reason, or is in flight, and that no sender exceeds
    /// its credit.
    fn audit(&self) -> Result<(), AuditError> {
        for (index, site) in self.sites.iter().enumerate() {
            let pending = |wanted: &dyn Fn(&Event) -> bool| {
                self.queue.pending().filter(|event| wanted(event)).count() as u64
            };
            let forward = |event: &Event| matches!(event, Event::Datagram { site, .. } if *site == index);
            let returns = |event: &Event| matches!(event, Event::Feedback { site, .. } if *site == index);
            site.link
                .audit(&format!("way to site {index}"), pending(&forward))?;
            site.return_path
                .audit(&format!("return path of site {index}"), pending(&returns))?;
            let packets = site.discarded.discarded[Discard::Credit as usize];
            if packets > 0 {
                let place = format!("site {index}");
                return Err(AuditError::Credit { place, packets });
            }
        }
        Ok(())
    }

    fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    fn happen(&mut self, event: Event) {
        let now = self.queue.now();
        match event {
            Event::Join(site) => self.join(site),
            Event::Crash(site) => self.crash(site),
            Event::Change(index) => {
                let change = self.spec.changes[index].clone();
                if let Err(error) = self.sites[change.site].link.reconfigure(&change.forward) {
                    self.fail(error.to_string());
                }
            }
            Event::Wake => {
                if self.wake_at.is_some_and(|at| at <= now) {
                    self.wake_at = None;
                    self.group.on_timeout(now);
                    self.serve();
                }
            }
            Event::SiteWake(site) => {
                if self.sites[site].wake_at.is_some_and(|at| at <= now) {
                    self.sites[site].wake_at = None;
                    self.serve_site(site);
                }
            }
            Event::Disk(site) => self.write(site),
            Event::Datagram {
                site,
                connection,
                bytes,
            } => self.arrive(site, connection, bytes),
            Event::Feedback { site, bytes } => self.feedback(site, &bytes),
            Event::Verified {
                site,
                connection,
                extent,
                right,
            } => {
                self.verified(site, connection, extent, right);
            }
        }
    }

    /// Connects a site. Its have-map contains the durable extents.
    fn join(&mut self, index: usize) {
        let now = self.queue.now();
        let connection = u32::try_from(self.random.next() >> 32).unwrap_or(0);
        let keys = [self.random.next(), self.random.next()].map(|seed| {
            let bytes: Vec<u8> = seed.to_le_bytes().repeat(2);
            PairwiseKey::new(std::array::from_fn(|at| bytes[at]))
        });
        let site = &mut self.sites[index];
        let have = site
            .receiver
            .take()
            .map_or_else(RangeSet::new, |receiver| receiver.durable_extents().clone());
        let packet_size = u64::from(self.spec.payload) + PACKET_OVERHEAD;
        let start = (0..self.spec.layout.extents()).find(|extent| !have.contains(*extent));
        let config = FlowConfig {
            layout: self.spec.layout,
            have: have.clone(),
            start: start.unwrap_or(0),
            payload: self.spec.payload,
            mtu: self.spec.mtu,
            initial_rtt: site.site.handshake_rtt,
            headers: HEADERS,
            credit: site.site.pool,
            controller: Box::new(Bbr::new(BbrConfig::new(packet_size, self.random.next()), now)),
            seed: self.random.next(),
        };
        let ends = Connection {
            id: connection,
            to_receiver: keys[0].clone(),
            to_sender: keys[1].clone(),
        };
        site.member = Some(self.group.join(config, ends, now));
        site.keys = keys;
        site.connection = connection;
        site.unwritten = 0;
        site.open_groups.clear();
        site.receiver = Some(Receiver::new(ReceiverConfig {
            layout: self.spec.layout,
            have,
            connection,
            pool: site.site.pool,
            pool_max: site.site.pool,
        }));
        self.serve();
    }

    /// Ends a site's process. The bytes of extents that are not durable are lost.
    fn crash(&mut self, index: usize) {
        let layout = self.spec.layout;
        let site = &mut self.sites[index];
        let Some((at, away)) = site.site.crashes.take() else {
            return;
        };
        let (Some(receiver), None, None) = (&site.receiver, site.done, &site.ended) else {
            return;
        };
        let durable = receiver.durable_extents().clone();
        for extent in (0..layout.extents()).filter(|extent| !durable.contains(*extent)) {
            let (start, end) = layout.bounds(extent);
            site.file[start as usize..end as usize].fill(0xdd);
        }
        if let Some(member) = site.member.take() {
            self.group.leave(member);
        }
        site.connection = 0;
        self.queue.schedule(at + away, Event::Join(index));
    }

    /// Sends the packets that the sender may send now.
    fn serve(&mut self) {
        let now = self.queue.now();
        let mut outgoing = Vec::new();
        while let Some(member) = self.next_member(now, &mut outgoing) {
            for packet in outgoing.drain(..) {
                if let Err(problem) = self.depart(member, packet) {
                    self.fail(problem);
                }
            }
        }
        for (member, bytes) in self.group.poll_reports(now) {
            self.transmit(member, &bytes);
        }
        if let Some(at) = self.group.next_timeout() {
            let at = at.max(now + Duration::from_nanos(1));
            if self.wake_at.is_none_or(|other| at < other) {
                self.wake_at = Some(at);
                self.queue.schedule(at, Event::Wake);
            }
        }
    }

    /// Returns the next member in the round, with the packets of one quantum. Pieces that the member waits
    /// for are sealed at once.
    fn next_member(&mut self, now: Time, outgoing: &mut Vec<Outgoing>) -> Option<MemberId> {
        let mut wanted = Vec::new();
        self.group.wanted(&self.cache, 1, &mut wanted);
        for request in wanted {
            // Two members may request the same slab.
            let Some(request) = self.cache.missing_of(request) else {
                continue;
            };
            if let Err(problem) = self.seal(request) {
                self.fail(problem);
            }
        }
        self.group.poll(now, &self.cache, outgoing)
    }

    fn seal(&mut self, request: SealRequest) -> Result<(), String> {
        let seed = self.spec.seed;
        let read = |piece: Piece, bytes: &mut Vec<u8>| -> Result<(), SealPieceError> {
            bytes.extend(source(seed, piece.address, u64::from(piece.len)));
            Ok(())
        };
        let slab = self
            .sealer
            .seal(request, None, read)
            .map_err(|error| error.to_string())?;
        self.cache.insert(slab);
        Ok(())
    }

    fn depart(&mut self, member: MemberId, packet: Outgoing) -> Result<(), String> {
        let Outgoing { number, piece } = packet;
        let shared = self.cache.get(piece).ok_or("a sealed piece is not cached")?;
        let head = self
            .group
            .head(member, number, shared)
            .ok_or("a member without a head")?;
        let datagram = [&head[..], shared.bytes()].concat();
        self.transmit(member, &datagram);
        Ok(())
    }

    /// Offers a datagram to the path to a member.
    fn transmit(&mut self, member: MemberId, datagram: &[u8]) {
        let now = self.queue.now();
        let Some(index) = self.sites.iter().position(|site| site.member == Some(member)) else {
            return;
        };
        let site = &mut self.sites[index];
        let connection = site.connection;
        for (at, bytes) in site.link.offer_bytes(now, HEADERS, datagram) {
            let event = Event::Datagram {
                site: index,
                connection,
                bytes,
            };
            self.queue.schedule(at, event);
        }
    }

    /// Handles a receiver's message about an extent's digest at the sender. An extent with the right digest
    /// becomes durable now: in this model the disk's sync takes as long as the message.
    fn verified(&mut self, index: usize, connection: u32, extent: u64, right: bool) {
        let now = self.queue.now();
        let site = &mut self.sites[index];
        if site.connection != connection {
            return;
        }
        if let (true, Some(receiver)) = (right, &mut site.receiver) {
            receiver.durable(extent);
        }
        let Some(flow) = site.member.and_then(|member| self.group.flow_mut(member)) else {
            return;
        };
        if right {
            flow.verified(extent);
        } else {
            flow.rejected(extent);
        }
        if flow.is_complete() {
            site.done.get_or_insert(now);
            if let Some(member) = site.member.take() {
                self.group.leave(member);
            }
        }
        self.serve();
    }

    /// Handles a packet of feedback that arrives at the sender.
    fn feedback(&mut self, index: usize, bytes: &[u8]) {
        let now = self.queue.now();
        self.sites[index].return_path.arrived += 1;
        // Packets that the path corrupted or repeated are dropped.
        if let Err(FeedbackError::Violation(violation)) = self.group.handle_feedback(now, bytes) {
            self.sites[index].ended = Some(violation.to_string());
            self.sites[index].member = None;
        }
        let site = &mut self.sites[index];
        if let Some(flow) = site.member.and_then(|member| self.group.flow(member)) {
            (site.path_mtu, site.mtu_probes_lost) = (flow.path_mtu(), flow.stats().mtu_probes_lost);
        }
        self.serve();
    }
}
