//! Figures that are not rates of packets: each experiment lists its quantities, their units and their bounds
//! (`experiments/*/quantities.rs`), and this module finds them.

pub(crate) mod quantity;

use crate::experiments::{bridge, grow, guests, install, latency, qos, rate, updates, veth};
pub use quantity::{Bound, Quantity};

/// Returns all quantities, in the order of the table.
pub fn all() -> impl Iterator<Item = &'static Quantity> {
    [
        install::quantities::QUANTITIES,
        grow::quantities::QUANTITIES,
        updates::quantities::QUANTITIES,
        guests::quantities::QUANTITIES,
        veth::quantities::QUANTITIES,
        rate::quantities::QUANTITIES,
        bridge::quantities::QUANTITIES,
        latency::quantities::QUANTITIES,
        qos::quantities::QUANTITIES,
    ]
    .into_iter()
    .flatten()
}

/// Returns the quantity of that name in a case.
pub fn find(case: &str, name: &str) -> Option<&'static Quantity> {
    all().find(|quantity| quantity.case == case && quantity.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::install::quantities::INSTALL;
    use crate::experiments::updates::quantities::UPDATES;

    #[test]
    fn a_bound_determines_the_verdict_on_a_value() {
        let install = find(INSTALL, "install").unwrap();
        assert_eq!((install.met(6.0), install.met(6.1)), (Some(true), Some(false)));
        assert_eq!(install.target().as_deref(), Some("at most 6 s"));
        let throughput = find(UPDATES, "throughput").unwrap();
        assert_eq!(
            (throughput.met(0.95), throughput.met(0.8)),
            (Some(true), Some(false))
        );
        assert_eq!(throughput.target().as_deref(), Some("at least 0.9"));
        assert_eq!(find(INSTALL, "expire").unwrap().met(1.0), None);
    }

    #[test]
    fn a_quantity_that_must_be_zero_is_judged_by_its_worst_round() {
        let lost = find(UPDATES, "lost").unwrap();
        let rounds = [0.0, 0.0, 0.0, 7.0, 0.0];
        assert_eq!(lost.aggregate(&rounds), Some(7.0));
        assert_eq!(lost.met(7.0), Some(false));
        assert_eq!(lost.target().as_deref(), Some("no packets in any round"));
        assert_eq!(find(UPDATES, "throughput").unwrap().aggregate(&rounds), Some(0.0));
        assert_eq!(lost.aggregate(&[]), None);
    }

    #[test]
    fn a_case_has_each_quantity_once() {
        for (index, quantity) in all().enumerate() {
            let same = |other: &Quantity| (other.case, other.name) == (quantity.case, quantity.name);
            assert_eq!(all().position(same), Some(index));
        }
    }
}
