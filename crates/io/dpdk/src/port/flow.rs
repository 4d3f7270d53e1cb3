//! Rules that a device applies by itself (rte_flow): which packets go to which queue, which get a mark, which are
//! dropped before anybody sees them.
//!
//! Every device has its own idea of which rules it takes, and few say so in advance: [`Port::validate_flow`] asks, and
//! [`Port::flow_offload`] asks for the rules that a switch has use for.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use super::Port;
use super::attach::Device;
use crate::Errno;

/// Headers in a pattern, and actions in a rule, at most.
pub const FLOW_LEN_MAX: usize = sys::SHIM_FLOW_LEN_MAX as usize;
/// Bytes of the longest header: IPv6.
const HEADER_SIZE_MAX: usize = 40;

/// A kind of header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the protocols'")]
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
    /// DPDK's number for it, and its bytes on the wire. A VLAN tag begins after its EtherType.
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

    /// Bytes of it on the wire, without options.
    #[must_use]
    pub fn size(self) -> usize {
        self.number_and_size().1
    }
}

/// A header that packets must have, one inside the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowItem {
    header: FlowHeader,
    has_spec: bool,
    spec: [u8; HEADER_SIZE_MAX],
    mask: [u8; HEADER_SIZE_MAX],
}

impl FlowItem {
    /// Any header of the kind.
    #[must_use]
    pub fn any(header: FlowHeader) -> Self {
        Self {
            header,
            has_spec: false,
            spec: [0; HEADER_SIZE_MAX],
            mask: [0; HEADER_SIZE_MAX],
        }
    }

    /// A header whose bits under the mask are these, written as on the wire; what is missing at the end is not looked at.
    /// `None` where there are more bytes than the header has, or fewer than the mask.
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

/// What the device does with a packet that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowAction {
    /// Nobody gets it.
    Drop,
    /// It goes to this receive queue.
    Queue(u16),
    /// It carries this number: [`crate::Mbuf::mark`].
    Mark(u32),
    /// It is counted: [`FlowRule::count`].
    Count,
}

impl FlowAction {
    fn raw(self) -> sys::shim_flow_action {
        let (kind, value) = match self {
            Self::Drop => (sys::SHIM_FLOW_ACTION_DROP, 0),
            Self::Queue(queue) => (sys::SHIM_FLOW_ACTION_QUEUE, queue.into()),
            Self::Mark(mark) => (sys::SHIM_FLOW_ACTION_MARK, mark),
            Self::Count => (sys::SHIM_FLOW_ACTION_COUNT, 0),
        };
        sys::shim_flow_action { kind, value }
    }
}

/// A rule for packets that come in.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FlowSpec {
    /// Rules are in groups, some of which a device may look at one after the other; 0 is the first.
    pub group: u32,
    /// The lower, the sooner; 0 is the first.
    pub priority: u32,
    /// From the outermost header in.
    pub items: ArrayVec<FlowItem, FLOW_LEN_MAX>,
    /// All of them are done.
    pub actions: ArrayVec<FlowAction, FLOW_LEN_MAX>,
}

impl FlowSpec {
    /// A rule of group 0, of the highest priority. What is beyond [`FLOW_LEN_MAX`] is left out of both lists.
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

/// Why a device does not do what it was asked about a rule.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowError {
    /// The driver has no rules, or not this function.
    #[error(
        "port {port}: its driver cannot {action}. Remedy: none is needed, packets are sorted in software"
    )]
    NotOffered {
        /// The device.
        port: String,
        /// What was asked.
        action: &'static str,
    },
    /// The driver refuses this one.
    #[error(
        "port {port}: the driver does not {action}: {detail} ({errno}). Remedy: ask for less (fewer headers, whole \
         masks, one action), or leave it to software"
    )]
    Refused {
        /// The device.
        port: String,
        /// What was asked.
        action: &'static str,
        /// What DPDK said.
        errno: Errno,
        /// What the driver said.
        detail: String,
    },
}

fn outcome(
    device: &Device,
    action: &'static str,
    code: i32,
    said: &sys::shim_flow_error,
) -> Result<(), FlowError> {
    use nix::errno::Errno as E;
    let Err(errno) = Errno::check(code) else {
        return Ok(());
    };
    let port = device.name().to_owned();
    if errno.is(E::ENOSYS) {
        return Err(FlowError::NotOffered { port, action });
    }
    let text: Vec<u8> = said
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

/// A rule that the device applies. Dropping it takes it away.
///
/// It keeps its port from stopping, as a queue does.
pub struct FlowRule {
    /// Until it is destroyed.
    raw: Option<NonNull<sys::rte_flow>>,
    device: Arc<Device>,
}

// SAFETY: rte_flow functions take a lock where the driver needs one, so any thread may destroy a rule or ask for its
// count.
unsafe impl Send for FlowRule {}

impl FlowRule {
    /// Packets and bytes that met a rule with [`FlowAction::Count`]; zero what the device does not count.
    ///
    /// # Errors
    /// [`FlowError`]
    pub fn count(&self) -> Result<(u64, u64), FlowError> {
        let (mut packets, mut bytes) = (0, 0);
        let mut said = sys::shim_flow_error::default();
        let raw = self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: the rule is the device's, which is attached as long as self lives; the rest is there to be written.
        let code = unsafe {
            sys::shim_flow_count(
                self.device.id().0,
                raw,
                &raw mut packets,
                &raw mut bytes,
                &raw mut said,
            )
        };
        outcome(&self.device, "count a rule", code, &said).map(|()| (packets, bytes))
    }

    /// Takes it away. (Dropping it does the same, and logs.)
    ///
    /// # Errors
    /// [`FlowError`]; it stays as long as the device then.
    pub fn destroy(mut self) -> Result<(), FlowError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), FlowError> {
        let Some(raw) = self.raw.take() else {
            return Ok(());
        };
        let mut said = sys::shim_flow_error::default();
        // SAFETY: the rule is the device's, was not destroyed before, and nobody has it again.
        let code = unsafe { sys::shim_flow_destroy(self.device.id().0, raw.as_ptr(), &raw mut said) };
        outcome(&self.device, "take a rule away", code, &said)
    }
}

impl Drop for FlowRule {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "the rule stays");
        }
    }
}

impl fmt::Debug for FlowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowRule")
            .field("port", &self.device.name())
            .finish_non_exhaustive()
    }
}

/// Which rules a device takes, of those that a switch has use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowOffload {
    /// An exact IPv4 5-tuple to a queue.
    pub steer: bool,
    /// A mark on an exact IPv4 5-tuple.
    pub mark: bool,
    /// A VLAN to a queue.
    pub steer_vlan: bool,
    /// An MPLS label, under a mask, to a queue.
    pub steer_mpls: bool,
}

impl FlowOffload {
    /// Whether it takes any.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }
}

impl Port {
    /// Asks the device whether it would take a rule. The port should be running, as some drivers do not know before.
    ///
    /// # Errors
    /// [`FlowError`]
    pub fn validate_flow(&self, spec: &FlowSpec) -> Result<(), FlowError> {
        let raw = spec.raw();
        let mut said = sys::shim_flow_error::default();
        // SAFETY: the port is attached as long as `device` lives; the rule is there to be read, `said` to be written.
        let code = unsafe { sys::shim_flow_validate(self.id().0, &raw const raw, &raw mut said) };
        outcome(&self.device, "take the rule", code, &said)
    }

    /// Gives the device a rule.
    ///
    /// # Errors
    /// [`FlowError`]
    pub fn create_flow(&self, spec: &FlowSpec) -> Result<FlowRule, FlowError> {
        let raw = spec.raw();
        let mut said = sys::shim_flow_error::default();
        // SAFETY: as in `validate_flow`.
        let flow = unsafe { sys::shim_flow_create(self.id().0, &raw const raw, &raw mut said) };
        match NonNull::new(flow) {
            Some(raw) => Ok(FlowRule {
                raw: Some(raw),
                device: Arc::clone(&self.device),
            }),
            None => {
                let code = match Errno::last().number() {
                    // Some drivers leave the number out.
                    0 => -nix::libc::EIO,
                    number => -number,
                };
                Err(outcome(&self.device, "take the rule", code, &said)
                    .err()
                    .unwrap_or_else(|| FlowError::NotOffered {
                        port: self.name().to_owned(),
                        action: "take the rule",
                    }))
            }
        }
    }

    /// Which rules the device would take now.
    #[must_use]
    pub fn flow_offload(&self) -> FlowOffload {
        let five_tuple = || {
            let mut address = [0; 20];
            let mut mask = [0; 20];
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
            self.validate_flow(&spec).is_ok()
        };
        let queue = FlowAction::Queue(0);
        FlowOffload {
            steer: takes(&five_tuple(), &[queue]),
            mark: takes(&five_tuple(), &[FlowAction::Mark(1), queue]),
            steer_vlan: takes(&vlan(), &[queue]),
            steer_mpls: takes(&mpls(), &[queue]),
        }
    }
}
