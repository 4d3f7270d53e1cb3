//! The vector instructions of this processor, and the crate's only unsafe code.
//!
//! The loops over a burst are plain Rust, in a form that the compiler turns into vector instructions. This module
//! compiles them three times, for different processors, and chooses the best version for this processor at run time.
//! All versions have the same source, and so the same results. (docs/results/classifier.md: they save a tenth of
//! a lookup that hits, and up to a quarter of one that searches several tuples in vain.)

use super::adaptive::Adaptive;
use super::cache::{CacheForm, CacheIndex, FlowCache};
use super::columns::Burst;
use super::header_columns::HeaderColumns;
use super::part::Part;
use super::tuple::Scratch;
use super::{BURST, Slot};
use crate::key::FlowKey;

/// A set of vector instructions that this processor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Simd(Level);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Simd {
    /// The instructions that every processor has.
    pub const PLAIN: Simd = Simd(Level::Plain);

    /// Returns the best instructions of this processor.
    pub fn detect() -> Simd {
        Self::available().last().unwrap_or(Self::PLAIN)
    }

    /// Returns all instruction sets of this processor, the best last.
    pub fn available() -> impl Iterator<Item = Simd> {
        #[cfg(target_arch = "x86_64")]
        let more = {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
            let avx512 = avx2 && has!("avx512f") && has!("avx512dq") && has!("avx512vl") && has!("avx512bw");
            [avx2.then_some(Level::Avx2), avx512.then_some(Level::Avx512)]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let more = [None; 2];
        [Some(Level::Plain)].into_iter().chain(more).flatten().map(Simd)
    }

    /// Returns the name: `plain`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Plain => "plain",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
        }
    }
}

/// Compiles one source for each instruction set, and defines the method of [`Simd`] that chooses between the versions.
macro_rules! compiled {
    ($($(#[$doc:meta])* $name:ident, $avx2:ident, $avx512:ident ($($argument:ident: $kind:ty),*) => $work:expr;)*) => {
        impl Simd {
            $(
                $(#[$doc])*
                #[inline]
                pub(super) fn $name(self, $($argument: $kind),*) {
                    match self.0 {
                        Level::Plain => $work,
                        #[cfg(target_arch = "x86_64")]
                        // SAFETY: a `Simd` with this level comes only from `available`, which found these
                        // instructions on this processor.
                        Level::Avx2 => unsafe { $avx2($($argument),*) },
                        #[cfg(target_arch = "x86_64")]
                        // SAFETY: as above.
                        Level::Avx512 => unsafe { $avx512($($argument),*) },
                    }
                }
            )*
        }
        $(
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
            fn $avx2($($argument: $kind),*) {
                $work;
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,bmi1,bmi2,lzcnt,popcnt")]
            fn $avx512($($argument: $kind),*) {
                $work;
            }
        )*
    };
}

compiled! {
    /// Looks up a burst with these instructions.
    lookup, lookup_avx2, lookup_avx512
        (table: &Adaptive, keys: &[FlowKey], select: &[u8], verdicts: &mut [Option<Slot>])
        => table.lookup_inlined(keys, select, verdicts);

    /// Raises `best` of each packet to the highest rank of a matching rule in a part, with these
    /// instructions. (The search of a part is a separate function. When the lookup contained the search of
    /// all parts, for each number of columns, the quality of the remaining code was erratic.)
    search_part, part_avx2, part_avx512
        (part: &Part, burst: &Burst, len: usize, best: &mut [u64; BURST], scratch: Option<&mut Scratch>)
        => part.search_inlined(burst, len, best, scratch);

    /// Looks up a burst in a cache with these instructions.
    lookup_cache, cache_avx2, cache_avx512
        (cache: &FlowCache, form: &CacheForm, keys: &[FlowKey], indices: &mut [CacheIndex])
        => cache.lookup_inlined(form, keys, indices);

    /// Determines which packets of the header columns are common, with these instructions.
    sort_headers, sort_avx2, sort_avx512
        (headers: &mut HeaderColumns)
        => headers.sort();

    /// Looks up header columns with these instructions. `pipeline_fields` has the fields that are not in the packets'
    /// bytes, and the keys of packets that are not common.
    lookup_headers, headers_avx2, headers_avx512
        (table: &Adaptive, headers: &HeaderColumns, pipeline_fields: (&FlowKey, &[FlowKey]), verdicts: &mut [Option<Slot>])
        => table.lookup_headers_inlined(headers, pipeline_fields, verdicts);

    /// Looks up header columns in a cache, with these instructions.
    lookup_cache_headers, cache_headers_avx2, cache_headers_avx512
        (cache: &FlowCache, form: &CacheForm, headers: &HeaderColumns, pipeline_fields: (&FlowKey, &[FlowKey]), indices: &mut [CacheIndex])
        => cache.lookup_headers_inlined(form, headers, pipeline_fields, indices);
}

/// Prefetches the cache line of `items[at]`; the index may be out of bounds.
#[inline(always)]
pub fn prefetch<T>(items: &[T], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = items.as_ptr().wrapping_add(at).cast();
        // SAFETY: a prefetch reads nothing that the program observes, and ignores unmapped addresses.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (items, at);
}
