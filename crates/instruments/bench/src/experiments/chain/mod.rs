//! `millrace bench chain`: the rate of a chain of network functions as it grows (E4 in docs/gates.md).
//!
//! ```text
//!  hops:     source (1) ---> chain: function ... function ---> sink (2)        in the worker, or in processes
//!  sites:    iperf3 -> chain of hops ===> emulated path ===> iperf3            two switches (E5)
//!  steered:  source (1) -> port 11 [function] -> port 12 [function] ... -> sink   each in a process, by flow entries
//!  guests:   iperf3 -> port [guest that forwards] ... -> iperf3                virtual machines, by flow entries
//! ```
//!
//! One switch has one worker. Port 1 generates frames without end (`net_null`), flow entries send them through the
//! functions, and a port discards them at the end. Each function swaps the two MAC addresses of each frame. The worker
//! has a core of its own; the processes of functions share another core. The offered load is more than the chain can
//! carry, or a rate that the policer of the switch enforces.
//!
//! Guests ([`crate::experiments::guests`]) are measured by one TCP stream through virtual machines that forward; the
//! rate is the number of 1,518-byte frames that its data need. They are measured only on request, because they boot slowly.
//!
//! Functions are hops of a chain ([`test_bed`]), or processes behind virtual NICs; flow entries steer packets
//! between the NICs ([`steered`]). The processes are also measured with Open vSwitch with DPDK and its
//! vhost-user ports ([`ovs`]), with the same flow entries. Functions with Millrace's virtio driver are
//! compared with the same functions behind Open vSwitch. All other functions are compared with functions
//! behind Open vSwitch that use DPDK's virtio driver, which is the usual driver there.

mod cli;
mod error;
mod ovs;
mod plan;
mod record;
mod results;
pub(crate) mod section;
mod sites;
mod steered;
mod test_bed;

pub use cli::ChainArgs;
pub use error::ChainBenchError;
pub use record::Point;
