//! Flow rules that a device applies (rte_flow): they direct packets to queues, mark them, or drop them.
//!
//! Devices differ in the rules that they accept, and few report it in advance: [`Flows::validate`] asks the
//! driver, and [`Port::flow_offload`] asks for the rules that a switch can use. Drivers take from microseconds to milliseconds
//! for a rule, so a thread that must not wait leaves them to another one: [`Port::flows`].

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use super::Port;
use super::attach::{Device, MarkDelivery};
use crate::Errno;

/// The largest number of headers in a pattern, and the largest number of actions in a rule.
pub const FLOW_LEN_MAX: usize = sys::SHIM_FLOW_LEN_MAX as usize;
/// The bits of an IPv4 header that are zero unless a packet is a fragment: more fragments, and the offset (RFC 791).
const FRAGMENT: [u8; 2] = [0x3f, 0xff];
/// Size of the longest header in bytes: IPv6.
const HEADER_SIZE_MAX: usize = 40;

/// The type of a header in a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowHeader {
    Ethernet,
    Vlan,
    Mpls,
    Ipv4,
    Ipv6,
    Tcp,
    Udp,
    Sctp,
}

impl FlowHeader {
    /// Returns DPDK's number for the header, and the size of the header in bytes. A VLAN header is the TCI and the
    /// EtherType that follows it.
    fn number_and_size(self) -> (u32, usize) {
        match self {
            Self::Ethernet => (sys::SHIM_FLOW_ITEM_ETH, 14),
            Self::Vlan => (sys::SHIM_FLOW_ITEM_VLAN, 4),
            Self::Mpls => (sys::SHIM_FLOW_ITEM_MPLS, 4),
            Self::Ipv4 => (sys::SHIM_FLOW_ITEM_IPV4, 20),
            Self::Ipv6 => (sys::SHIM_FLOW_ITEM_IPV6, 40),
            Self::Tcp => (sys::SHIM_FLOW_ITEM_TCP, 20),
            Self::Udp => (sys::SHIM_FLOW_ITEM_UDP, 8),
            Self::Sctp => (sys::SHIM_FLOW_ITEM_SCTP, 12),
        }
    }

    /// Returns the size of the header in bytes, without options.
    #[must_use]
    pub fn size(self) -> usize {
        self.number_and_size().1
    }
}

/// A header that packets must have. In a pattern, each header follows the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowItem {
    header: FlowHeader,
    has_spec: bool,
    spec: [u8; HEADER_SIZE_MAX],
    mask: [u8; HEADER_SIZE_MAX],
}

impl FlowItem {
    /// Returns an item that matches any header of the type.
    #[must_use]
    pub fn any(header: FlowHeader) -> Self {
        Self {
            header,
            has_spec: false,
            spec: [0; HEADER_SIZE_MAX],
            mask: [0; HEADER_SIZE_MAX],
        }
    }

    /// Returns an item that matches headers that equal `spec` in the bits of `mask`. Both are in network byte
    /// order; missing bytes at the end match anything. Returns `None` if the two have different lengths, or
    /// more bytes than the header.
    #[must_use]
    pub fn new(header: FlowHeader, spec: &[u8], mask: &[u8]) -> Option<Self> {
        if spec.len() != mask.len() || spec.len() > header.size() {
            return None;
        }
        let mut item = Self {
            has_spec: true,
            ..Self::any(header)
        };
        item.spec[..spec.len()].copy_from_slice(spec);
        item.mask[..mask.len()].copy_from_slice(mask);
        Some(item)
    }
}

/// An action of the device on matching packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowAction {
    /// Drop the packet.
    Drop,
    /// Direct the packet to this receive queue.
    Queue(u16),
    /// Spread the packets over this many receive queues, from 0, as the RSS of the port does.
    Rss(u16),
    /// Mark the packet with this number, which is not 0: [`crate::Mbuf::take_mark`].
    Mark(u32),
    /// Count the packet: [`FlowRule::count`].
    Count,
}

impl FlowAction {
    fn raw(self) -> sys::shim_flow_action {
        let (kind, value) = match self {
            Self::Drop => (sys::SHIM_FLOW_ACTION_DROP, 0),
            Self::Queue(queue) => (sys::SHIM_FLOW_ACTION_QUEUE, queue.into()),
            Self::Rss(queues) => (sys::SHIM_FLOW_ACTION_RSS, queues.into()),
            Self::Mark(mark) => (sys::SHIM_FLOW_ACTION_MARK, mark),
            Self::Count => (sys::SHIM_FLOW_ACTION_COUNT, 0),
        };
        sys::shim_flow_action { kind, value }
    }
}

/// A rule for received packets.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FlowSpec {
    /// The group of the rule; a device may look up groups one after the other, from 0.
    pub group: u32,
    /// The priority; 0 is the highest.
    pub priority: u32,
    /// The headers, from the outermost.
    pub items: ArrayVec<FlowItem, FLOW_LEN_MAX>,
    /// The actions; the device applies all of them.
    pub actions: ArrayVec<FlowAction, FLOW_LEN_MAX>,
}

impl FlowSpec {
    /// Returns a rule of group 0 and the highest priority. Items and actions beyond [`FLOW_LEN_MAX`] are left out.
    #[must_use]
    pub fn new(
        items: impl IntoIterator<Item = FlowItem>,
        actions: impl IntoIterator<Item = FlowAction>,
    ) -> Self {
        Self {
            group: 0,
            priority: 0,
            items: items.into_iter().take(FLOW_LEN_MAX).collect(),
            actions: actions.into_iter().take(FLOW_LEN_MAX).collect(),
        }
    }

    fn raw(&self) -> sys::shim_flow_rule {
        let mut raw = sys::shim_flow_rule {
            group: self.group,
            priority: self.priority,
            item_count: self.items.len() as u32,
            action_count: self.actions.len() as u32,
            ..Default::default()
        };
        for (to, item) in raw.items.iter_mut().zip(&self.items) {
            to.kind = item.header.number_and_size().0;
            to.has_spec = item.has_spec.into();
            to.spec = item.spec;
            to.mask = item.mask;
        }
        for (to, action) in raw.actions.iter_mut().zip(&self.actions) {
            *to = action.raw();
        }
        raw
    }
}

/// The error of a flow rule operation.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowError {
    /// The driver does not support flow rules, or not this operation.
    #[error(
        "port {port}: its driver cannot {action}. To fix it: none is needed, packets are sorted in software"
    )]
    NotOffered {
        /// The device.
        port: String,
        /// The operation.
        action: &'static str,
    },
    /// The driver rejects the rule.
    #[error(
        "port {port}: the driver does not {action}: {detail} ({errno}). To fix it: ask for less (fewer headers, whole \
         masks, one action), or leave it to software"
    )]
    Refused {
        /// The device.
        port: String,
        /// The operation.
        action: &'static str,
        /// The error that DPDK returned.
        errno: Errno,
        /// The message of the driver.
        detail: String,
    },
}

fn outcome(
    device: &Device,
    action: &'static str,
    code: i32,
    flow_error: &sys::shim_flow_error,
) -> Result<(), FlowError> {
    use nix::errno::Errno as E;
    let Err(errno) = Errno::check(code) else {
        return Ok(());
    };
    let port = device.name().to_owned();
    if errno.is(E::ENOSYS) {
        return Err(FlowError::NotOffered { port, action });
    }
    let text: Vec<u8> = flow_error
        .message
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    let detail = match String::from_utf8_lossy(&text) {
        text if text.is_empty() => "it gives no reason".to_owned(),
        text => text.into_owned(),
    };
    Err(FlowError::Refused {
        port,
        action,
        errno,
        detail,
    })
}

/// A rule that the device applies. Dropping this value removes the rule.
///
/// As with a queue, the port cannot stop while the rule exists.
pub struct FlowRule {
    /// `None` after the rule was destroyed.
    raw: Option<NonNull<sys::rte_flow>>,
    device: Arc<Device>,
}

// SAFETY: rte_flow functions take a lock where the driver needs one, so any thread may destroy a rule or read its
// count.
unsafe impl Send for FlowRule {}

impl FlowRule {
    fn new(raw: Option<NonNull<sys::rte_flow>>, device: &Arc<Device>) -> Self {
        device.add_flow_rule();
        Self {
            raw,
            device: Arc::clone(device),
        }
    }

    /// Returns the packets and bytes that matched a rule with [`FlowAction::Count`]; values that the device does not
    /// count are 0.
    ///
    /// # Errors
    /// [`FlowError`]
    pub fn count(&self) -> Result<(u64, u64), FlowError> {
        let (mut packets, mut bytes) = (0, 0);
        let mut flow_error = sys::shim_flow_error::default();
        let raw = self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the rule belongs to the device, which is attached while self lives; the other pointers are
        // writable.
        let code = unsafe {
            sys::shim_flow_count(
                self.device.id().0,
                raw,
                &raw mut packets,
                &raw mut bytes,
                &raw mut flow_error,
            )
        };
        outcome(&self.device, "count a rule", code, &flow_error).map(|()| (packets, bytes))
    }

    /// Removes the rule, and returns a failure. Dropping the rule does the same, and logs a failure.
    ///
    /// # Errors
    /// [`FlowError`]; the rule then stays until the device is detached.
    pub fn destroy(mut self) -> Result<(), FlowError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), FlowError> {
        let Some(raw) = self.raw.take() else {
            return Ok(());
        };
        let mut flow_error = sys::shim_flow_error::default();
        // SAFETY: the rule belongs to the device and was not destroyed before; this handle is the only one.
        let code = unsafe { sys::shim_flow_destroy(self.device.id().0, raw.as_ptr(), &raw mut flow_error) };
        outcome(&self.device, "take a rule away", code, &flow_error)
    }
}

impl Drop for FlowRule {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "the rule stays");
        }
        self.device.remove_flow_rule();
    }
}

impl fmt::Debug for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowRule")
            .field("port", &self.device.name())
            .finish_non_exhaustive()
    }
}

/// The kinds of rules that a switch can use and that a device accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowOffload {
    /// True if the device directs an exact IPv4 5-tuple to a queue.
    pub steer: bool,
    /// True if the device marks an exact IPv4 5-tuple of packets that are no fragments.
    pub no_fragment: bool,
    /// Number of bits of the widest marks that the device puts on an exact IPv4 5-tuple; `None` if it takes no marks, or
    /// does not deliver them.
    pub mark: Option<u8>,
    /// True if the device directs a VLAN to a queue.
    pub steer_vlan: bool,
    /// True if the device directs an MPLS label, under a mask, to a queue.
    pub steer_mpls: bool,
}

/// Widths of marks in bits that devices have, the widest first.
const MARK_WIDTHS: [u8; 4] = [32, 24, 20, 16];

/// Returns the width of the widest marks that a device accepts. `accepts` tries a mark of a width.
fn widest_mark(mut accepts: impl FnMut(u32) -> bool) -> Option<u8> {
    MARK_WIDTHS.into_iter().find(|bits| accepts(1 << (bits - 1)))
}

impl FlowOffload {
    /// Returns true if the device accepts any of these rules.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

/// The rules of a device, for any thread. As with a queue, the port cannot stop while this value exists.
#[derive(Clone, Debug)]
pub struct Flows {
    device: Arc<Device>,
}

impl Flows {
    /// Checks that the device would accept a rule. The port should be running, because some drivers cannot answer
    /// before the start.
    ///
    /// # Errors
    /// [`FlowError`]
    pub fn validate(&self, spec: &FlowSpec) -> Result<(), FlowError> {
        let raw = spec.raw();
        let mut flow_error = sys::shim_flow_error::default();
        // SAFETY: the number is that of the attached device, or one that DPDK refuses; the
        // rule is readable and `flow_error` is writable.
        let code =
            unsafe { sys::shim_flow_validate(self.device.id().0, &raw const raw, &raw mut flow_error) };
        outcome(&self.device, "take the rule", code, &flow_error)
    }

    /// Adds a rule to the device.
    ///
    /// # Errors
    /// [`FlowError`]
    pub fn create(&self, spec: &FlowSpec) -> Result<FlowRule, FlowError> {
        let raw = spec.raw();
        let mut flow_error = sys::shim_flow_error::default();
        // SAFETY: as in `validate`.
        let flow = unsafe { sys::shim_flow_create(self.device.id().0, &raw const raw, &raw mut flow_error) };
        match NonNull::new(flow) {
            Some(raw) => Ok(FlowRule::new(Some(raw), &self.device)),
            None => {
                let code = match Errno::last().number() {
                    // Some drivers do not set the error number.
                    0 => -nix::libc::EIO,
                    number => -number,
                };
                Err(outcome(&self.device, "take the rule", code, &flow_error)
                    .err()
                    .unwrap_or_else(|| FlowError::NotOffered {
                        port: self.device.name().to_owned(),
                        action: "take the rule",
                    }))
            }
        }
    }

    /// Removes all rules of the device, also those of an earlier process, which some drivers keep. The caller has no rule of the
    /// device: handles of removed rules would be invalid.
    ///
    /// # Errors
    /// [`FlowError`]; nothing is removed if the caller has a rule.
    pub fn flush(&self) -> Result<(), FlowError> {
        let action = "remove all rules";
        if self.device.flow_rules() != 0 {
            let port = self.device.name().to_owned();
            return Err(FlowError::NotOffered { port, action });
        }
        let mut flow_error = sys::shim_flow_error::default();
        // SAFETY: the number is that of the attached device, or one that DPDK refuses; no handle of a rule exists.
        let code = unsafe { sys::shim_flow_flush(self.device.id().0, &raw mut flow_error) };
        outcome(&self.device, action, code, &flow_error)
    }
}

impl FlowError {
    /// Returns the error that DPDK returned, as far as it is one of the driver for this rule.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            FlowError::NotOffered { .. } => None,
            FlowError::Refused { errno, .. } => Some(*errno),
        }
    }
}

impl Port {
    /// Returns the rules of the device.
    #[must_use]
    pub fn flows(&self) -> Flows {
        Flows {
            device: Arc::clone(&self.device),
        }
    }

    /// Returns the kinds of rules that the device would accept now.
    #[must_use]
    pub fn flow_offload(&self) -> FlowOffload {
        let flows = self.flows();
        let five_tuple = |fragment: [u8; 2]| {
            let mut address = [0; 20];
            let mut mask = [0; 20];
            // Flags and offset (RFC 791).
            mask[6..8].copy_from_slice(&fragment);
            // UDP, and both addresses (RFC 791).
            address[9] = 17;
            address[12..].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
            mask[9] = 0xff;
            mask[12..].fill(0xff);
            [
                Some(FlowItem::any(FlowHeader::Ethernet)),
                FlowItem::new(FlowHeader::Ipv4, &address, &mask),
                FlowItem::new(FlowHeader::Udp, &[0, 53, 0, 53], &[0xff; 4]),
            ]
        };
        let vlan = || {
            let ethernet = FlowItem::any(FlowHeader::Ethernet);
            [
                Some(ethernet),
                FlowItem::new(FlowHeader::Vlan, &[0, 5], &[0x0f, 0xff]),
            ]
        };
        let mpls = || {
            let ethernet = FlowItem::any(FlowHeader::Ethernet);
            [
                Some(ethernet),
                FlowItem::new(FlowHeader::Mpls, &[0, 0, 0x10], &[0, 0, 0x10]),
            ]
        };
        let takes = |items: &[Option<FlowItem>], actions: &[FlowAction]| {
            let spec = FlowSpec::new(items.iter().copied().flatten(), actions.iter().copied());
            flows.validate(&spec).is_ok()
        };
        let queue = FlowAction::Queue(0);
        let any = five_tuple([0; 2]);
        let mark = widest_mark(|mark| takes(&any, &[FlowAction::Mark(mark), queue]));
        FlowOffload {
            steer: takes(&any, &[queue]),
            no_fragment: takes(&five_tuple(FRAGMENT), &[FlowAction::Mark(1), queue]),
            mark: mark.filter(|_| self.device.mark_delivery() != MarkDelivery::No),
            steer_vlan: takes(&vlan(), &[queue]),
            steer_mpls: takes(&mpls(), &[queue]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eal::tests::small_eal;
    use crate::{Mempool, MempoolConfig, PortConfig, PortError, StartError};

    #[test]
    fn the_widest_marks_that_a_device_accepts_are_found_by_trial_and_never_0() {
        for (limit, found) in [
            (u64::from(u32::MAX), Some(32)),
            (0xff_ffff, Some(24)),
            (0xf_ffff, Some(20)),
            (0xffff, Some(16)),
            (0xff, None),
        ] {
            let accepts = |mark: u32| {
                assert_ne!(mark, 0);
                u64::from(mark) <= limit
            };
            assert_eq!(widest_mark(accepts), found, "{limit:#x}");
        }
    }

    #[test]
    fn a_port_that_a_flow_rule_keeps_from_its_start_names_the_rule() {
        // EAL starts once in a process.
        millrace_testing::own_process!();
        let eal = small_eal();
        let pool = Mempool::new(eal, &MempoolConfig::new("rules", 1023)).unwrap();
        let mut port = Port::attach(eal, &"net_null0".parse().unwrap()).unwrap();
        let start = |port: &mut Port| port.start(&PortConfig::default(), pool);
        // No software driver accepts rules on every kernel, so this one stands for a rule without a driver.
        let rule = FlowRule::new(None, &port.device);
        let error = start(&mut port).unwrap_err();
        assert!(matches!(error, StartError::FlowRules { .. }), "{error}");
        assert!(matches!(port.stop(), Err(PortError::FlowRules { .. })));
        rule.destroy().unwrap();
        let queues = start(&mut port).unwrap();
        let rule = FlowRule::new(None, &port.device);
        assert!(matches!(start(&mut port), Err(StartError::Running { .. })));
        assert!(matches!(port.stop(), Err(PortError::QueuesInUse { .. })));
        drop(queues);
        assert!(matches!(port.detach(), Err(PortError::FlowRules { .. })));
        drop(rule);
    }
}
