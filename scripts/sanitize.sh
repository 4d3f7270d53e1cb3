#!/usr/bin/env bash
# The fast path against its oracle, at length: CASES cases (1000) of random rules, packets and updates on each set of
# vector instructions that this processor has, the cache of paths against a bridge without one, then the same under
# AddressSanitizer (nightly toolchain) and under Miri (nightly with the component miri; portable instructions only).
# What cannot be run here is said, and is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."
cases=${1:-1000}
property=the_adaptive_classifier_equals_the_linear_scan_through_any_updates
target=$(rustc -vV | sed -n 's/^host: //p')

levels=(plain)
if [ -r /proc/cpuinfo ]; then
    grep -qw avx2 /proc/cpuinfo && levels+=(avx2)
    grep -qw avx512vl /proc/cpuinfo && levels+=(avx512)
fi
for level in "${levels[@]}"; do
    # Each case checks eighteen bursts of up to 64 packets, and up to some thousand updates.
    echo "sanitize: the classifier equals the linear scan, $level, $cases cases"
    MILLRACE_SIMD=$level PROPTEST_CASES=$cases \
        cargo test --quiet --release --locked -p millrace-flow --lib "$property"
done
echo "sanitize: paths that are kept make no difference, $cases cases"
MILLRACE_CASES=$cases cargo test --quiet --release --locked -p millrace-pipeline --test it flow_cache::

few=$((cases / 20 + 1))
echo "sanitize: AddressSanitizer, $few cases"
# The compiler has it, though only unstable compilers admit that.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 PROPTEST_CASES=$few MILLRACE_CASES=$few \
    cargo test --quiet --locked --target "$target" --target-dir target/sanitize \
    -p millrace-flow --lib classify
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 MILLRACE_CASES=$few \
    cargo test --quiet --locked --target "$target" --target-dir target/sanitize \
    -p millrace-pipeline --test it flow_cache::

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "sanitize: there is no nightly toolchain with Miri: it was not run"
    exit 0
fi
echo "sanitize: Miri"
MIRIFLAGS=-Zmiri-disable-isolation MILLRACE_SIMD=plain PROPTEST_CASES=1 \
    cargo +nightly miri test --quiet --locked --target-dir target/miri -p millrace-flow --lib -- \
    classify::cache::tests::what_is_kept classify::table::tests::a_hint classify::table::tests::a_tag \
    classify::columns classify::masks classify::header_columns::tests::only_uncommon
