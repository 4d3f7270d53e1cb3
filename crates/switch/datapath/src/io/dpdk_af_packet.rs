//! What DPDK's AF_PACKET driver has to be told so that it carries long frames: slots of its rings that hold
//! them, and buffers that hold them in one piece. Its MTU is that of the interface and nobody else's.

use millrace_dpdk::{DevArgs, Mbuf, RxQueue};

use super::Burst;

/// The driver.
pub(super) const DRIVER: &str = "net_af_packet";
/// Size of a slot unless `framesz` says otherwise in bytes.
const SLOT_SIZE: u32 = 2048;
/// Size of a slot that do not hold payload in bytes: the kernel's header and its alignment (84), Ethernet with two
/// tags (22), and a tag more.
const SLOT_OVERHEAD: u32 = 128;
/// Slots of a block of the ring, which is one piece of the kernel's memory.
const SLOTS_PER_BLOCK: u32 = 4;

/// The options to add for frames with `mtu` bytes of payload; empty where those that are given say the sizes
/// themselves, and where the driver's own do.
pub(super) fn more_options(given: &DevArgs, mtu: u16) -> String {
    let slot_size = (u32::from(mtu) + SLOT_OVERHEAD).next_power_of_two();
    if slot_size <= SLOT_SIZE || given.option("framesz").is_some() || given.option("blocksz").is_some() {
        return String::new();
    }
    format!(",blocksz={},framesz={slot_size}", SLOTS_PER_BLOCK * slot_size)
}

/// How many bytes a buffer must hold: the driver copies a frame into one.
pub(super) fn segment_size(devargs: &DevArgs) -> u32 {
    let given = devargs.option("framesz").and_then(|size| size.parse().ok());
    given.unwrap_or(SLOT_SIZE)
}

/// Bursts that are discarded at most: no more than what the rings of a queue hold.
const STRAY_BURSTS: usize = 1024;

/// Throws away what lies in the rings of a port that begins. The driver's sockets hear every interface of the
/// network namespace until they are bound to theirs: those packets are nobody's business here.
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
