//! The memory in which packets lie, as another process can map it.

use std::io;

use super::WINDOW;

/// Memory of this process that another one can map: a line of `/proc/self/maps`.
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
}

/// Parts that are written to and shared, and long enough to hold packets: those of DPDK.
///
/// # Errors
/// There are none, or another process could not map them; and what to do.
pub(super) fn shared_memory() -> io::Result<Vec<Part>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let parts: Vec<Part> = maps.lines().filter_map(part_of).collect();
    let Some(Part { start, end, .. }) = parts.first() else {
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

/// Parts that lie side by side, taken together: each huge page is a part of its own, and hundreds of them a span or two,
/// so that it costs nothing to see that a packet is within reach.
pub(super) fn spans(parts: &[Part]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for part in parts {
        match spans.last_mut() {
            Some((_, end)) if *end == part.start => *end = part.end,
            _ => spans.push((part.start, part.end)),
        }
    }
    spans
}

/// Least bytes of a part: a huge page.
const PART_MIN: u64 = 2 << 20;

/// `START-END rw-s OFFSET DEV INODE PATH`, numbers in hex (proc(5)).
fn part_of(line: &str) -> Option<Part> {
    if line.contains(WINDOW) {
        return None;
    }
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_shared = words.next()? == "rw-s";
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let part = Part {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(words.next()?)?,
    };
    (is_shared && part.end - part.start >= PART_MIN).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_side_by_side_are_one_span() {
        let part = |start: u64, end: u64| Part {
            start,
            end,
            offset: 0,
        };
        let parts = [part(0, 2), part(2, 4), part(4, 6), part(8, 10)];
        assert_eq!(spans(&parts), [(0, 6), (8, 10)]);
        assert_eq!(spans(&[]), []);
    }

    #[test]
    fn only_shared_memory_that_is_written_to_is_a_part() {
        let line = "140000000-140200000 rw-s 00200000 00:0f 77 /memfd:memseg (deleted)";
        let part = part_of(line).map(|part| (part.start, part.end, part.offset));
        assert_eq!(part, Some((0x1_4000_0000, 0x1_4020_0000, 0x20_0000)));
        assert!(part_of(&line.replace("rw-s", "rw-p")).is_none());
        assert!(part_of("140000000-140001000 rw-s 0 00:0f 77 /dev/zero").is_none());
    }
}
