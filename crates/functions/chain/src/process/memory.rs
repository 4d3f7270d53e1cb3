//! The packet memory of this process, as another process can map it.
//!
//! The data plane provides the address ranges of packet memory ([`Packet::shared_memory`](millrace_wire::Packet)). The
//! list of mappings alone does not suffice: it contains other shared memory of this process, such as the rings of
//! AF_PACKET sockets, which no other process can map, and memory of virtual machines and memif peers, which functions
//! must not access.

use std::io;
use std::ops::Range;

/// Memory of this process that another one can map: a line of `/proc/self/maps`.
pub(super) struct MappedRange {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
}

/// Returns the mappings of this process that contain packet memory, whose address ranges are `areas`.
///
/// # Errors
/// A message with the next step, if there is no such mapping or another process could not map it.
pub(super) fn shared_memory(areas: &[Range<u64>]) -> io::Result<Vec<MappedRange>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let parts: Vec<MappedRange> = maps.lines().filter_map(|line| part_of(line, areas)).collect();
    let Some(MappedRange { start, end, .. }) = parts.first() else {
        return Err(io::Error::other(
            "class ring needs packets in DPDK's memory: start millraced with DPDK, or use class isolated",
        ));
    };
    match std::fs::File::open(format!("/proc/self/map_files/{start:x}-{end:x}")) {
        Ok(_) => Ok(parts),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!(
                "class ring needs the right to open /proc/PID/map_files ({error}): start millraced as root or with \
                 CAP_SYS_ADMIN, or use class isolated"
            ),
        )),
    }
}

/// Merges adjacent ranges. Each huge page is a mapping; hundreds of them become a few ranges, so that the check of a
/// packet's address is fast.
pub(super) fn merged(parts: &[MappedRange]) -> Vec<Range<u64>> {
    let mut areas: Vec<Range<u64>> = Vec::new();
    for part in parts {
        match areas.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => areas.push(part.start..part.end),
        }
    }
    areas
}

/// Parses a mapping, `START-END rw-s OFFSET DEV INODE PATH` with numbers in hex (proc(5)). Returns `None` unless it is
/// shared, writable, and at least partly in one of the areas.
fn part_of(line: &str, areas: &[Range<u64>]) -> Option<MappedRange> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_shared = words.next()? == "rw-s";
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let part = MappedRange {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(words.next()?)?,
    };
    let is_of_packets = areas
        .iter()
        .any(|area| area.start < part.end && part.start < area.end);
    (is_shared && is_of_packets).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_huge_pages_are_one_area() {
        let part = |start: u64, end: u64| MappedRange {
            start,
            end,
            offset: 0,
        };
        let parts = [part(0, 2), part(2, 4), part(4, 6), part(8, 10)];
        assert_eq!(merged(&parts), [0..6, 8..10]);
        assert_eq!(merged(&[]), []);
    }

    const LINE: &str = "140000000-140200000 rw-s 00200000 00:0f 77 /memfd:memseg (deleted)";

    #[test]
    fn only_shared_memory_of_packets_that_is_written_to_is_a_part() {
        let packets = core::slice::from_ref(&(0x1_4000_0000..0x1_4010_0000));
        let part = part_of(LINE, packets).map(|part| (part.start, part.end, part.offset));
        assert_eq!(part, Some((0x1_4000_0000, 0x1_4020_0000, 0x20_0000)));
        assert!(part_of(&LINE.replace("rw-s", "rw-p"), packets).is_none());
        assert!(part_of(LINE, &[]).is_none());
        let behind = 0x1_4020_0000..0x1_4040_0000;
        assert!(part_of(LINE, core::slice::from_ref(&behind)).is_none());
    }

    #[test]
    fn the_ring_of_a_packet_socket_and_memory_of_a_guest_are_no_part() {
        let packets = core::slice::from_ref(&(0x1_4000_0000..0x1_4020_0000));
        for other in [
            "7f5a00000000-7f5a00400000 rw-s 00000000 00:08 41230 socket:[41230]",
            "7f5b00000000-7f5b40000000 rw-s 00000000 00:01 9 /memfd:memory-backend-memfd (deleted)",
        ] {
            assert!(part_of(other, packets).is_none(), "{other}");
        }
    }
}
