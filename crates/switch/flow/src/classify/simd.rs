//! The vector instructions of this processor, and the crate's only unsafe code.
//!
//! The loops over a burst are plain Rust, in a form that the compiler turns into vector instructions. The module
//! `compiled` compiles them three times, for different processors; the best version for this processor is chosen at
//! run time. All versions have the same source, and so the same results. (docs/results/classifier.md: they save a
//! tenth of a lookup that hits, and up to a quarter of one that searches several tuples in vain.)

mod compiled;

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
