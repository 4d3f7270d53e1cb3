//! The control side's handle of a DPDK port: its properties, its counters, and the rules that the device
//! applies: rules that choose queues, installed when the port opens, and rules that mark packets.

use core::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_dpdk::{FlowAction, FlowHeader, FlowItem, FlowRule, FlowSpec, Flows, Port, PortInfo};
use millrace_offload::Refusal;
use millrace_types::Mac;
use nix::errno::Errno;

use super::flow_entries::{FlowEntries, RuleAbilities, RuleTable};
use super::link_watch::LinkWatch;
use super::owner::Owned;
use super::steer::{Header, HeaderMatch, RuleId, SteerAction, SteerError, SteerRule, Steering, Steers};
use super::{ChangeReporter, Device, DeviceInfo, DeviceStats, PortModes, kernel};
use crate::offload::fences::Fences;
use crate::offload::{DeviceOperation, DeviceOutcome, Offload, OffloadCapabilities};

/// The MTU of Ethernet in bytes.
pub(super) const DEFAULT_MTU: u16 = 1500;

pub(super) struct DpdkDevice {
    /// Declared before the port, and so dropped before it: a port with rules cannot be closed.
    rules: BTreeMap<RuleId, FlowRule>,
    rules_made: u64,
    entries: MarkRules,
    port: Port,
    info: PortInfo,
    rx_queues: u16,
    steers: Steers,
    /// The last known state of the kernel interface under the port, if there is one: link up, rate in Mbit/s, modes.
    /// Rate and modes are read again when the link changes.
    interface: Cell<Option<(bool, Option<u32>, PortModes)>>,
    /// Reports changes of that interface until it is dropped.
    watch: Option<LinkWatch>,
    /// The ownership of that interface. It ends after the port.
    _owned: Owned,
}

impl DpdkDevice {
    /// Returns the handle of a running port. `fences` are those of its receive queues.
    pub(super) fn new(
        port: Port,
        info: PortInfo,
        rx_queues: u16,
        owned: Owned,
        fences: &Arc<Fences>,
    ) -> DpdkDevice {
        let offload = port.flow_offload();
        let flows = port.flows();
        // Some drivers keep rules of an earlier process, whose marks would be taken for ours.
        if offload.is_any()
            && let Err(error) = flows.flush()
        {
            tracing::debug!(%error, "rules of an earlier user of the device may stay");
        }
        let entries = offload.mark.and_then(|mark_bits| {
            let abilities = RuleAbilities {
                mark_bits,
                no_fragment: offload.no_fragment,
                queues: rx_queues,
            };
            let table = DeviceRules { flows, rx_queues };
            let started = FlowEntries::start(table, fences, abilities);
            started
                .inspect_err(|error| tracing::warn!(%error, port = %port.name(), "no thread for mark rules: marks are not used"))
                .ok()
        });
        DpdkDevice {
            rules: BTreeMap::new(),
            rules_made: 0,
            entries: MarkRules(entries),
            info,
            rx_queues,
            interface: Cell::new(None),
            watch: None,
            _owned: owned,
            steers: Steers {
                flows: offload.steer,
                marks: offload.mark.is_some(),
                vlans: offload.steer_vlan,
                labels: offload.steer_mpls,
            },
            port,
        }
    }
}

impl DpdkDevice {
    /// Returns true if the link is up, the rate in Mbit/s, and the link modes.
    fn connection(&self) -> (bool, Option<u32>, PortModes) {
        if let Some(interface) = self.port.kernel_interface() {
            // Most drivers on top of a kernel interface do not know its link, and none knows of a lost carrier before the
            // kernel announces it.
            let is_up = self.port.driver_link().is_ok_and(|link| link.up)
                && kernel::state(interface).is_ok_and(|state| state.is_running);
            let known = self.interface.get().filter(|(was_up, ..)| *was_up == is_up);
            let connection = known.unwrap_or_else(|| {
                let settings = kernel::link_settings(interface).unwrap_or_default();
                (is_up, settings.speed, PortModes::of_settings(&settings))
            });
            self.interface.set(Some(connection));
            return connection;
        }
        let Ok(link) = self.port.link() else {
            return (false, None, PortModes::default());
        };
        let modes = PortModes::of_rates(link.speed, link.full_duplex, link.autoneg, &self.info.speeds);
        (link.up, link.speed, modes)
    }
}

impl Device for DpdkDevice {
    fn info(&self) -> DeviceInfo {
        let (link_up, speed_mbps, modes) = self.connection();
        let spreads = self.rx_queues > 1 && !self.info.rss_by.is_empty();
        DeviceInfo {
            driver: self.info.driver.clone(),
            mac: Mac(self.info.mac),
            speed_mbps,
            link_up,
            modes,
            mtu: self.port.mtu().unwrap_or(DEFAULT_MTU),
            numa_node: self.info.socket.map(u32::from),
            rx_queues: self.rx_queues,
            rss: spreads.then(|| self.info.rss_by.join(",")),
            offload: self.steers.names(),
        }
    }

    fn stats(&self) -> DeviceStats {
        let stats = self.port.stats().unwrap_or_default();
        DeviceStats {
            rx_missed: stats.rx_missed,
            rx_errors: stats.rx_errors,
            rx_no_buffer: stats.rx_no_mbuf,
            tx_errors: stats.tx_errors,
        }
    }

    /// Reports changes of the kernel interface under the port, if there is one. The link of a NIC is looked at instead.
    fn report_changes(&mut self, reporter: &ChangeReporter) -> bool {
        let reporter = reporter.clone();
        self.watch = self.port.kernel_interface().and_then(|interface| {
            let started = LinkWatch::start(interface, move || reporter.report());
            started
                .inspect_err(|error| tracing::debug!(%error, interface, "its link is looked at regularly"))
                .ok()
        });
        self.watch.is_some()
    }

    fn set_link(&mut self, up: bool) {
        // Many virtual devices cannot set the link; the pipeline's handling of the port does not depend on
        // it.
        if let Err(error) = self.port.set_link(up) {
            tracing::debug!(%error, up, "the device's link stays as it is");
        }
    }

    fn offload(&mut self) -> Option<&mut dyn Offload> {
        Some(&mut self.entries)
    }

    fn steering(&mut self) -> Option<&mut dyn Steering> {
        (self.steers != Steers::default()).then_some(self as &mut dyn Steering)
    }
}

impl Steering for DpdkDevice {
    fn install(&mut self, rule: &SteerRule) -> Result<RuleId, SteerError> {
        let spec = spec(rule, self.rx_queues).ok_or(SteerError::Header)?;
        let created = self.port.flows().create(&spec);
        let rule = created.map_err(|error| SteerError::Refused(Box::new(error)))?;
        self.rules_made += 1;
        let id = RuleId(self.rules_made);
        self.rules.insert(id, rule);
        Ok(id)
    }

    fn remove(&mut self, rule: RuleId) -> bool {
        self.rules.remove(&rule).is_some()
    }
}

/// The mark rules of a device; none if it takes none, or does not deliver the marks.
struct MarkRules(Option<FlowEntries>);

impl Offload for MarkRules {
    fn capabilities(&self) -> Option<OffloadCapabilities> {
        self.0.as_ref()?.capabilities()
    }

    fn submit(&mut self, operation: DeviceOperation) -> bool {
        self.0.as_mut().is_some_and(|entries| entries.submit(operation))
    }

    fn poll(&mut self) -> Option<DeviceOutcome> {
        self.0.as_mut()?.poll()
    }
}

/// The rules of a device, for the thread that installs mark rules.
struct DeviceRules {
    flows: Flows,
    rx_queues: u16,
}

impl RuleTable for DeviceRules {
    type Rule = FlowRule;

    fn create(&mut self, rule: &SteerRule) -> Result<FlowRule, Refusal> {
        let spec = spec(rule, self.rx_queues).ok_or(Refusal::Shape)?;
        self.flows.create(&spec).map_err(|error| {
            tracing::debug!(%error, "the device refuses a mark rule");
            refusal(error.errno().map(millrace_dpdk::Errno::number))
        })
    }

    fn destroy(&mut self, rule: FlowRule) -> bool {
        rule.destroy()
            .inspect_err(|error| tracing::warn!(%error, "the rule stays"))
            .is_ok()
    }
}

/// Returns the kind of a refusal, by the error number of the driver.
fn refusal(errno: Option<i32>) -> Refusal {
    let is = |all: &[Errno]| all.iter().any(|one| errno == Some(*one as i32));
    if is(&[Errno::ENOSPC, Errno::ENOMEM]) {
        Refusal::Capacity
    } else if is(&[Errno::EBUSY, Errno::EAGAIN, Errno::EINTR]) {
        Refusal::Transient
    } else {
        Refusal::Shape
    }
}

/// Returns a rule in the form of the driver; `None` if a header has fewer bytes than its match.
fn spec(rule: &SteerRule, rx_queues: u16) -> Option<FlowSpec> {
    let items: Option<Vec<FlowItem>> = rule.headers.iter().map(item).collect();
    Some(FlowSpec::new(items?, actions(rule.action, rx_queues)))
}

/// Returns the actions of the driver for an action of a rule, on a port with this many receive queues. Most drivers require
/// an action that decides about the packet ("fate" in rte_flow) in addition to its mark; a mark changes no queue, so RSS chooses it as for other packets.
fn actions(action: SteerAction, rx_queues: u16) -> ArrayVec<FlowAction, 2> {
    match action {
        SteerAction::Queue(queue) => ArrayVec::from_iter([FlowAction::Queue(queue)]),
        SteerAction::Mark(mark) => {
            let queue = match rx_queues {
                ..=1 => FlowAction::Queue(0),
                queues => FlowAction::Rss(queues),
            };
            ArrayVec::from([FlowAction::Mark(mark.get()), queue])
        }
    }
}

fn item(part: &HeaderMatch) -> Option<FlowItem> {
    let header = match part.header {
        Header::Ethernet => FlowHeader::Ethernet,
        Header::Vlan => FlowHeader::Vlan,
        Header::Mpls => FlowHeader::Mpls,
        Header::Ipv4 => FlowHeader::Ipv4,
        Header::Ipv6 => FlowHeader::Ipv6,
        Header::Tcp => FlowHeader::Tcp,
        Header::Udp => FlowHeader::Udp,
        Header::Sctp => FlowHeader::Sctp,
    };
    if part.bytes.is_empty() {
        return Some(FlowItem::any(header));
    }
    FlowItem::new(header, &part.bytes, &part.mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::Mark;

    #[test]
    fn a_mark_leaves_the_queue_of_its_packets_to_rss() {
        let mark = Mark::new(5).unwrap();
        let of = |action, queues| actions(action, queues).to_vec();
        assert_eq!(
            of(SteerAction::Mark(mark), 4),
            [FlowAction::Mark(5), FlowAction::Rss(4)]
        );
        assert_eq!(
            of(SteerAction::Mark(mark), 1),
            [FlowAction::Mark(5), FlowAction::Queue(0)]
        );
        assert_eq!(of(SteerAction::Queue(3), 4), [FlowAction::Queue(3)]);
    }

    #[test]
    fn a_full_device_is_no_wrong_rule_and_a_busy_one_is_asked_again() {
        for (errno, kind) in [
            (Errno::ENOSPC, Refusal::Capacity),
            (Errno::ENOMEM, Refusal::Capacity),
            (Errno::EBUSY, Refusal::Transient),
            (Errno::EINVAL, Refusal::Shape),
            (Errno::ENOTSUP, Refusal::Shape),
        ] {
            assert_eq!(refusal(Some(errno as i32)), kind, "{errno}");
        }
    }
}
