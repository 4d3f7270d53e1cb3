//! Values of keys, with their positions.

use std::ops::Range;
use std::str::FromStr;

use millrace_types::BitRate;
use toml::Spanned;

use crate::problem::{LocatedProblem, Problem};

pub(super) fn parsed<T: FromStr>(text: &str, span: &Range<usize>) -> Result<T, LocatedProblem>
where
    Problem: From<T::Err>,
{
    text.parse()
        .map_err(|error: T::Err| (span.clone(), Problem::from(error)))
}

pub(super) fn mtu(value: &Spanned<i64>) -> Result<u32, LocatedProblem> {
    // 9600 bytes of frame minus the Ethernet header, one VLAN tag and the frame check sequence.
    let valid = u32::try_from(*value.get_ref())
        .ok()
        .filter(|mtu| (68..=9578).contains(mtu));
    valid.ok_or((
        value.span(),
        Problem::BadMtu {
            value: *value.get_ref(),
        },
    ))
}

pub(super) fn rate(value: &Spanned<String>) -> Result<BitRate, LocatedProblem> {
    let rate: BitRate = parsed(value.get_ref(), &value.span())?;
    if rate.bps() < 8_000 {
        return Err((
            value.span(),
            Problem::RateTooLow {
                text: value.get_ref().clone(),
            },
        ));
    }
    Ok(rate)
}
