//! The loops over a burst, compiled for each instruction set.

use super::super::adaptive::Adaptive;
use super::super::cache::{CacheForm, CacheIndex, FlowCache};
use super::super::columns::Burst;
use super::super::header_columns::HeaderColumns;
use super::super::part::Part;
use super::super::tuple::Scratch;
use super::super::{BURST, Slot};
use super::{Level, Simd};
use crate::key::FlowKey;

/// Compiles one source for each instruction set, and defines the method of [`Simd`] that chooses between the versions.
macro_rules! compiled {
    ($($(#[$doc:meta])* $name:ident, $avx2:ident, $avx512:ident ($($argument:ident: $kind:ty),*) => $work:expr;)*) => {
        impl Simd {
            $(
                $(#[$doc])*
                #[inline]
                pub(in super::super) fn $name(self, $($argument: $kind),*) {
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
