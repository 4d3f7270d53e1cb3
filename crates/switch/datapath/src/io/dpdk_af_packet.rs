//! Options of DPDK's AF_PACKET driver for long frames: ring slots and buffers that hold such a frame in one
//! piece. The driver uses the MTU of the interface, which cannot be set.

use millrace_dpdk::{DevArgs, Mbuf, RxQueue};

use super::Burst;

/// The name of the driver.
pub(super) const DRIVER: &str = "net_af_packet";
/// The driver's default slot size in bytes (`framesz`).
const SLOT_SIZE: u32 = 2048;
/// Bytes of a slot that hold no payload: the kernel's header and its alignment (84), Ethernet with two tags (22), and
/// one more tag.
const SLOT_OVERHEAD: u32 = 128;
/// Slots of a block of the ring, which is contiguous memory of the kernel.
const SLOTS_PER_BLOCK: u32 = 4;

/// Returns the options to add for frames with `mtu` bytes of payload. Returns an empty text if the given
/// options set the sizes, or if the driver's defaults suffice.
pub(super) fn more_options(given: &DevArgs, mtu: u16) -> String {
    let slot_size = (u32::from(mtu) + SLOT_OVERHEAD).next_power_of_two();
    if slot_size <= SLOT_SIZE || given.option("framesz").is_some() || given.option("blocksz").is_some() {
        return String::new();
    }
    format!(",blocksz={},framesz={slot_size}", SLOTS_PER_BLOCK * slot_size)
}

/// Returns the minimum size of a buffer in bytes: the driver copies a frame into one buffer.
pub(super) fn segment_size(devargs: &DevArgs) -> u32 {
    let given = devargs.option("framesz").and_then(|size| size.parse().ok());
    given.unwrap_or(SLOT_SIZE)
}

/// Maximum number of bursts that are discarded: the capacity of the rings of a queue.
const STRAY_BURSTS: usize = 1024;

/// Discards the packets in the rings of a port that has just been opened. The driver's sockets receive from every
/// interface of the network namespace until they are bound to their own.
pub(super) fn discard_strays(queues: &mut [RxQueue]) {
    let mut burst: Burst<Mbuf> = Burst::new();
    for queue in queues {
        for _ in 0..STRAY_BURSTS {
            if queue.rx_burst(&mut burst) == 0 {
                break;
            }
            burst.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devargs(text: &str) -> DevArgs {
        text.parse().unwrap()
    }

    #[test]
    fn long_frames_get_long_slots_unless_the_user_says_which() {
        let plain = devargs("net_af_packet0,iface=v0");
        assert_eq!(more_options(&plain, 1500), "");
        assert_eq!(more_options(&plain, 3000), ",blocksz=16384,framesz=4096");
        assert_eq!(more_options(&plain, 9578), ",blocksz=65536,framesz=16384");
        let given = devargs("net_af_packet0,iface=v0,framesz=32768,blocksz=32768");
        assert_eq!(more_options(&given, 9578), "");
        assert_eq!((segment_size(&plain), segment_size(&given)), (2048, 32768));
    }
}
