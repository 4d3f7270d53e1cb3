//! The level of DPDK's messages.

use crate::log::Filter;

/// Returns the level at which DPDK hands its messages to the log under a filter.
#[cfg(feature = "dpdk")]
pub(crate) fn level(filter: &Filter) -> millrace_dpdk::eal::LogLevel {
    use millrace_dpdk::eal::LogLevel;
    use tracing::level_filters::LevelFilter;
    // DPDK's notices are logged as INFO, its INFO as DEBUG (millrace_dpdk::eal).
    match filter.level(crate::log::DPDK) {
        LevelFilter::OFF | LevelFilter::ERROR => LogLevel::Error,
        LevelFilter::WARN => LogLevel::Warning,
        LevelFilter::INFO => LogLevel::Notice,
        LevelFilter::DEBUG => LogLevel::Info,
        _ => LogLevel::Debug,
    }
}

/// Sets the level of DPDK's messages according to a filter, if DPDK is up.
pub(crate) fn set_level(filter: &Filter) {
    #[cfg(feature = "dpdk")]
    if let Some(eal) = millrace_dpdk::Eal::current() {
        eal.set_log_level(level(filter));
    }
    #[cfg(not(feature = "dpdk"))]
    let _ = filter;
}
