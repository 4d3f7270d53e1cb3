//! Numbers of `other_config`, which are texts.

use millrace_model as model;
use millrace_types::BitRate;

/// Returns a number, brought into its range as Open vSwitch does.
///
/// # Errors
/// The expected form.
pub(crate) fn number(text: &str, min: u32, max: u32, expected: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(value) => Ok(u32::try_from(value.clamp(min.into(), max.into())).unwrap_or(max)),
        Err(_) => Err(format!("expected {expected}")),
    }
}

/// Returns a rate in bit/s as one of the model; a lower one becomes the lowest.
///
/// # Errors
/// The range.
pub(crate) fn rate(bps: u64) -> Result<model::Rate, String> {
    model::Rate::new(BitRate::from_bps(bps.max(1000))).map_err(|error| error.to_string())
}
