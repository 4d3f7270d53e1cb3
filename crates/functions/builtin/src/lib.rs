//! The built-in network functions. Each is one file, and also an example of the API of `millrace-nf`; `ips` and `ids` are in
//! `millrace-inspection`.

#![forbid(unsafe_code)]

mod firewall;
mod ipfix;
mod lb;
mod macswap;
mod monitor;
mod nat44;
mod ratelimit;
mod rules;
mod sketch;
mod tap;

use millrace_nf::Catalogue;

pub use firewall::KIND as FIREWALL;
pub use macswap::KIND as MACSWAP;

/// The built-in functions.
pub const CATALOGUE: Catalogue = Catalogue::new(&[
    firewall::KIND,
    #[cfg(not(target_arch = "wasm32"))]
    millrace_inspection::IDS,
    #[cfg(not(target_arch = "wasm32"))]
    millrace_inspection::IPS,
    lb::KIND,
    macswap::KIND,
    monitor::KIND,
    nat44::KIND,
    ratelimit::KIND,
    tap::KIND,
]);
