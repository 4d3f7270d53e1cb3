//! LAGs: several devices as one port of a bridge.
//!
//! ```text
//!  queue of member 11 --+-- LACPDUs, LLDPDUs --> events, with the number of the member
//!  queue of member 12 --+                                                        [member]
//!                       +-- packets --> policer, spreader, tables: in_port is the LAG
//!
//!  output to the LAG --> flow hash --> bucket (256) --> transmit buffer of a member    [distributor]
//! ```
//!
//! The tables know the LAG and no members. The control side decides which members collect and distribute
//! ([`Bridge::set_lag`](crate::Bridge::set_lag)), and workers follow between two rounds.
//!
//! # Order
//! A flow has one bucket, and a bucket has one member. If a member leaves, only its buckets move, at once: what it has not
//! sent is lost with it. If a member joins, it gets buckets of working members. Such a bucket moves when its old member has no
//! packet waiting in this worker, so that no packet of the flow is overtaken inside the switch. Order on the links
//! themselves is not controlled: the marker protocol would do that, and few partners answer markers.

mod distribution;
mod distributor;
mod member;

pub(crate) use distribution::Distribution;
pub(crate) use distributor::Distributor;
pub(crate) use member::LagMember;
pub use member::LagRole;
