//! The built-in network functions. Each is one file, and also an example of the API of `millrace-nf`.

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
    lb::KIND,
    macswap::KIND,
    monitor::KIND,
    nat44::KIND,
    ratelimit::KIND,
    tap::KIND,
]);
