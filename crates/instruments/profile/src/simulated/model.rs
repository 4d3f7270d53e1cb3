//! What is simulated: caches with the geometry of this machine's, and TLBs as caches whose lines are pages.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What no such model has, for whoever reads its figures.
pub const LIMITS: &str = "no prefetcher, no overlap of misses, no other core, no NIC that writes to caches; packets \
    are laid into memory just before they are forwarded, so their own bytes are in the L1 cache; what the memory \
    devices cost in a NIC's place is a stage of its own";

const KIB: u64 = 1024;
const LINE: u64 = 64;
const PAGE: u64 = 4096;

/// A cache, or a TLB, whose lines are pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// All bytes that it holds, or, of a TLB, maps.
    pub size: u64,
    /// How many places a line may have.
    pub ways: u64,
    /// Size of a line in bytes.
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

    /// How many lines it holds.
    pub fn entries(self) -> u64 {
        self.size / self.line.max(1)
    }

    /// Returns the same size, with as many more ways as make the number of sets a power of two: valgrind takes no
    /// other.
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

    /// As valgrind's options have it.
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

/// The processor that is simulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// What simulates: `callgrind (valgrind-3.19.0)`.
    pub tool: String,
    /// The vector instructions that the switch used there: `avx2`.
    pub simd: String,
    /// First-level instruction cache.
    pub l1i: Geometry,
    /// First-level data cache.
    pub l1d: Geometry,
    /// Second-level cache.
    pub l2: Geometry,
    /// Last-level cache.
    pub llc: Geometry,
    /// True if the caches are those of this machine, or defaults.
    pub of_this_machine: bool,
    /// First-level instruction TLB.
    pub itlb: Geometry,
    /// First-level data TLB.
    pub dtlb: Geometry,
    /// Second-level TLB, of both.
    pub stlb: Geometry,
}

impl Model {
    /// Caches as the kernel describes those of the first core in `dir`, and TLBs as server processors have them: the
    /// kernel does not say what this one has.
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
            // Intel, Skylake-SP and Cascade Lake; later ones have a second level of 2,048.
            itlb: Geometry::tlb(128, 8),
            dtlb: Geometry::tlb(64, 4),
            stlb: Geometry::tlb(1536, 12),
        }
    }

    /// All of it, a sentence a line.
    pub fn sentences(&self) -> Vec<String> {
        let source = match self.of_this_machine {
            true => "sizes of this machine",
            false => "default sizes: this machine does not tell its own",
        };
        vec![
            format!(
                "{}; instructions of level {}, as valgrind knows no AVX-512",
                self.tool, self.simd
            ),
            format!(
                "caches ({source}): L1 instructions {}, L1 data {}, L2 {}, last level {}, lines of {} bytes, LRU",
                self.l1i, self.l1d, self.l2, self.llc, self.l1d.line
            ),
            format!(
                "TLB (stated, not read): instructions {}, data {}, second level {}, all memory in pages of 4 KiB",
                self.itlb, self.dtlb, self.stlb
            ),
            format!("branches: callgrind's own predictor; {LIMITS}"),
        ]
    }
}

/// Returns the cache of this level and of one of these types; see Documentation/ABI/testing/sysfs-devices-system-cpu.
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
        // Without a third level the second is the last.
        assert_eq!(model.llc, model.l2);
        assert!(model.sentences()[1].contains("sizes of this machine"));
    }
}
