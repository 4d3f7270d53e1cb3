//! The simulated processor: caches with the geometry of this machine, and TLBs as caches whose lines are pages.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The limits of the model.
pub const LIMITS: &str = "no prefetcher, no overlap of misses, no other core, no NIC that writes to caches; packets \
    are written to memory just before they are forwarded, so that their bytes are in the L1 cache; the memory \
    devices, which replace the NIC, are a stage of their own";

const KIB: u64 = 1024;
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// The geometry of a cache or of a TLB. The lines of a TLB are pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// The size of a cache, or of the memory that a TLB maps, in bytes.
    pub size: u64,
    /// The associativity.
    pub ways: u64,
    /// The size of a line in bytes.
    pub line: u64,
}

impl Geometry {
    const fn cache(size: u64, ways: u64) -> Geometry {
        Geometry {
            size,
            ways,
            line: LINE,
        }
    }

    const fn tlb(entries: u64, ways: u64) -> Geometry {
        Geometry {
            size: entries * PAGE,
            ways,
            line: PAGE,
        }
    }

    /// Returns the number of lines.
    pub fn entries(self) -> u64 {
        self.size / self.line.max(1)
    }

    /// Returns the same size with higher associativity, so that the number of sets is a power of two, as valgrind
    /// requires.
    fn simulable(self) -> Geometry {
        let lines = self.entries();
        let sets = (lines / self.ways.max(1)).max(1);
        let sets = 1_u64 << sets.ilog2();
        let ways = (lines / sets).max(1);
        Geometry {
            size: sets * ways * self.line,
            ways,
            line: self.line,
        }
    }

    /// Returns the value of an option of valgrind.
    pub(super) fn option(self) -> String {
        format!("{},{},{}", self.size, self.ways, self.line)
    }
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line >= PAGE {
            return write!(f, "{} entries {}-way", self.entries(), self.ways);
        }
        let kib = self.size / KIB;
        match kib % KIB {
            0 if kib > 0 => write!(f, "{} MiB", kib / KIB)?,
            _ => write!(f, "{kib} KiB")?,
        }
        write!(f, " {}-way", self.ways)
    }
}

/// The simulated processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The simulator: `callgrind (valgrind-3.19.0)`.
    pub tool: String,
    /// The SIMD level of the switch in the simulator: `avx2`.
    pub simd: String,
    /// The first-level instruction cache.
    pub l1i: Geometry,
    /// The first-level data cache.
    pub l1d: Geometry,
    /// The second-level cache.
    pub l2: Geometry,
    /// The last-level cache.
    pub llc: Geometry,
    /// True if the caches are those of this machine, false if they are defaults.
    pub of_this_machine: bool,
    /// The first-level instruction TLB.
    pub itlb: Geometry,
    /// The first-level data TLB.
    pub dtlb: Geometry,
    /// The second-level TLB of instructions and data.
    pub stlb: Geometry,
}

impl Model {
    /// Returns a model with the caches of the first core, which the kernel describes in `dir`. The kernel
    /// does not describe the TLBs of this machine, so the model has the TLBs of a server processor.
    pub(super) fn of(dir: &Path, tool: String) -> Model {
        let of = |level, kind: &[&str]| described(dir, level, kind).map(Geometry::simulable);
        let (l1i, l1d) = (of(1, &["Instruction"]), of(1, &["Data"]));
        let l2 = of(2, &["Unified", "Data"]);
        let llc = of(3, &["Unified", "Data"]).or(l2);
        Model {
            tool,
            simd: String::new(),
            of_this_machine: l1i.is_some() && l1d.is_some() && l2.is_some(),
            l1i: l1i.unwrap_or(Geometry::cache(32 * KIB, 8)),
            l1d: l1d.unwrap_or(Geometry::cache(48 * KIB, 12)),
            l2: l2.unwrap_or(Geometry::cache(2048 * KIB, 16)),
            llc: llc.unwrap_or(Geometry::cache(32 * 1024 * KIB, 16)),
            // These are the TLBs of Intel Skylake-SP and Cascade Lake; later processors have 2,048 entries in the
            // second level.
            itlb: Geometry::tlb(128, 8),
            dtlb: Geometry::tlb(64, 4),
            stlb: Geometry::tlb(1536, 12),
        }
    }

    /// Returns a description, one sentence per item.
    pub fn sentences(&self) -> Vec<String> {
        let source = match self.of_this_machine {
            true => "sizes of this machine",
            false => "default sizes: this machine does not report its own",
        };
        vec![
            format!(
                "{}; SIMD level {}, as valgrind has no AVX-512",
                self.tool, self.simd
            ),
            format!(
                "caches ({source}): L1 instructions {}, L1 data {}, L2 {}, last level {}, lines of {} bytes, LRU",
                self.l1i, self.l1d, self.l2, self.llc, self.l1d.line
            ),
            format!(
                "TLB (assumed, not read): instructions {}, data {}, second level {}, all memory in pages of 4 KiB",
                self.itlb, self.dtlb, self.stlb
            ),
            format!("branches: callgrind's own predictor; {LIMITS}"),
        ]
    }
}

/// Returns the cache of this level and of one of these types (Linux,
/// Documentation/ABI/testing/sysfs-devices-system-cpu).
fn described(dir: &Path, level: u64, kinds: &[&str]) -> Option<Geometry> {
    fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
        let field = |name: &str| {
            let text = fs::read_to_string(entry.path().join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let number = |name: &str| field(name)?.parse::<u64>().ok().filter(|number| *number > 0);
        if number("level")? != level || !kinds.contains(&field("type")?.as_str()) {
            return None;
        }
        let size = field("size")?.strip_suffix('K')?.parse::<u64>().ok()?;
        Some(Geometry {
            size: size * KIB,
            ways: number("ways_of_associativity")?,
            line: number("coherency_line_size")?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_sets_becomes_a_power_of_two_and_the_size_stays() {
        let llc = Geometry::cache(480 * 1024 * KIB, 16).simulable();
        assert_eq!(llc.option(), "503316480,30,64");
        assert_eq!(
            Geometry::cache(48 * KIB, 12).simulable(),
            Geometry::cache(48 * KIB, 12)
        );
        assert_eq!(Geometry::tlb(1536, 12).option(), "6291456,12,4096");
        assert_eq!(llc.to_string(), "480 MiB 30-way");
        assert_eq!(Geometry::tlb(64, 4).to_string(), "64 entries 4-way");
    }

    #[test]
    fn the_kernels_description_is_read_and_without_one_defaults_are_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!Model::of(dir.path(), String::new()).of_this_machine);
        for (index, (level, kind, size, ways)) in [
            (1, "Data", "48K", 12),
            (1, "Instruction", "32K", 8),
            (2, "Unified", "2048K", 16),
        ]
        .into_iter()
        .enumerate()
        {
            let cache = dir.path().join(format!("index{index}"));
            fs::create_dir(&cache).unwrap();
            for (name, text) in [
                ("level", level.to_string()),
                ("type", kind.to_owned()),
                ("size", size.to_owned()),
                ("ways_of_associativity", ways.to_string()),
                ("coherency_line_size", "64".to_owned()),
            ] {
                fs::write(cache.join(name), text + "\n").unwrap();
            }
        }
        let model = Model::of(dir.path(), "callgrind".to_owned());
        assert!(model.of_this_machine);
        assert_eq!(
            (model.l1d, model.l2),
            (Geometry::cache(48 * KIB, 12), Geometry::cache(2048 * KIB, 16))
        );
        // Without a third level, the second level is the last.
        assert_eq!(model.llc, model.l2);
        assert!(model.sentences()[1].contains("sizes of this machine"));
    }
}
