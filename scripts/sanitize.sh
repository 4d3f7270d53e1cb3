#!/usr/bin/env bash
# Compares the fast path with its oracle at length: CASES cases (1000) of random rules, packets and updates with each SIMD
# instruction set that this processor has, and the cache of traversals with a bridge without one; then the same under
# AddressSanitizer (nightly toolchain) and under Miri (nightly with the component miri; portable instructions only).
# A part that cannot run here is reported, and is no failure.
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
echo "sanitize: cached traversals make no difference, $cases cases"
MILLRACE_CASES=$cases cargo test --quiet --release --locked -p millrace-pipeline --test it flow_cache::

few=$((cases / 20 + 1))
echo "sanitize: AddressSanitizer, $few cases"
# The stable compiler contains AddressSanitizer, but enables it only as an unstable option.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 PROPTEST_CASES=$few MILLRACE_CASES=$few \
    cargo test --quiet --locked --target "$target" --target-dir target/sanitize \
    -p millrace-flow --lib classify
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 MILLRACE_CASES=$few \
    cargo test --quiet --locked --target "$target" --target-dir target/sanitize \
    -p millrace-pipeline --test it flow_cache::

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "sanitize: no nightly toolchain with Miri is installed: Miri was not run"
    exit 0
fi
echo "sanitize: Miri"
MIRIFLAGS=-Zmiri-disable-isolation MILLRACE_SIMD=plain PROPTEST_CASES=1 \
    cargo +nightly miri test --quiet --locked --target-dir target/miri -p millrace-flow --lib -- \
    classify::cache::tests::what_is_kept classify::table::tests::a_hint classify::table::tests::a_tag \
    classify::columns classify::masks classify::header_columns::tests::only_uncommon
