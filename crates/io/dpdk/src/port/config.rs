//! The configuration of a port.

use super::queue::TxLimits;

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The number of receive queues, at least one.
    pub rx_queues: u16,
    /// The number of transmit queues, at least one.
    pub tx_queues: u16,
    /// The number of descriptors of a receive queue; adjusted to the nearest that the device supports.
    pub rx_descriptors: u16,
    /// The number of descriptors of a transmit queue; adjusted to the nearest that the device supports.
    pub tx_descriptors: u16,
    /// The MTU in bytes. `None` keeps the MTU of the device or, with `net_af_packet` and `net_af_xdp`, of the
    /// kernel interface. These two drivers cannot raise it.
    pub mtu: Option<u16>,
    /// True to receive frames for any MAC address, as a switch does.
    pub promiscuous: bool,
    /// Two bytes that are repeated as the RSS key of a device with several receive queues and a Toeplitz
    /// hash. Both directions of a flow then arrive at one queue. The value should be random and not zero.
    pub rss_word: u16,
    /// The limits on sent frames; `None` for a device that sends frames of any size, as most virtual devices
    /// do.
    pub tx_limits: Option<TxLimits>,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
            // Woo and Park, "Scalable TCP session monitoring with symmetric receive-side scaling" (2012).
            rss_word: 0x6d5a,
            tx_limits: None,
        }
    }
}
