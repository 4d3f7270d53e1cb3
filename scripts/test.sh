#!/usr/bin/env bash
# Builds the programs, starts the tests in Python, which need nothing else, and builds and runs those in Rust meanwhile,
# because both mostly wait:
#
#   programs (both cores) ─┬─▶ tests in Python: several workers, each in namespaces of its own ──────┐
#                          └─▶ test programs (nice 10) ─▶ tests in Rust, one program at a time ──────┴─▶ three at a time
#
# Both builds resolve the same features, so the second leaves the files of the first as they are. `test.sh rust` and
# `test.sh python` run one half.
#
# `make test-times` prints the slowest tests and build units from target/test-times.
set -euo pipefail
cd "$(dirname "$0")/.."
which=${1:-all}
target=${CARGO_TARGET_DIR:-$PWD/target}
times=target/test-times
export MILLRACE_TARGET=$target/debug
# Two workers for each core, because most tests wait for timers and other processes.
workers=${MILLRACE_TEST_WORKERS:-$((2 * $(nproc)))}
# Incremental compilation helps only the next build, and makes this one a tenth slower.
export CARGO_INCREMENTAL=0
host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
tests=(--workspace --locked --lib --bins --tests)
# Examples make cargo resolve the features of development dependencies, as it does for tests; tests/interop runs them.
programs=(--workspace --locked --lib --bins --example plan_cases --example forwarded --example records)

# The number of programs in Rust that run at once.
tokens=2

# Runs the tests in Rust and prints their output; fails if one of them fails. A program takes one of the tokens of the pipe 8,
# and gives it back; all `tokens` are there when the last program has ended.
rust() {
    local failed=0 logs=$PWD/$times/rust
    env "CARGO_TARGET_${host}_RUNNER=$PWD/scripts/run-test-program.sh" "MILLRACE_TEST_TOKENS=$logs/tokens" \
        cargo test "${tests[@]}" --no-fail-fast || failed=1
    scripts/apart.sh cargo test --workspace --locked --doc --no-fail-fast || failed=1
    read -rN "$tokens" -u 8
    cat "$logs"/*.log >"$times/rust.log"
    if [ -e "$logs/failed" ]; then failed=1; fi
    return $failed
}

# Runs the tests in Python and prints their output; fails if one of them fails.
python() {
    target/venv/bin/python -m pytest -q -p no:cacheprovider --durations=0 --durations-min=0.05 --dist loadscope --no-loadscope-reorder \
        --tx "$workers*popen//python=scripts/apart.sh $PWD/target/venv/bin/python" tests/interop tests/conformance
}

rm -rf "$times"
mkdir -p "$times/rust"
mkfifo "$times/rust/tokens"
exec 8<>"$times/rust/tokens"
# Begins to build all test programs, in a process group of its own, with a priority.
start_compiler() {
    set -m
    nice -n "$1" cargo test "${tests[@]}" --no-run --timings &
    set +m
    compiler=$!
}

# Waits for all test programs.
await_compiler() {
    wait "$compiler"
    compiler=
    cp "$target"/cargo-timings/cargo-timing.html "$times/build-tests.html"
}

cargo build "${programs[@]}" --timings
cp "$target"/cargo-timings/cargo-timing.html "$times/build.html"
# Ends what still runs when the script is interrupted.
trap '[ -z "${compiler:-}" ] || kill -KILL -- "-$compiler" 2>/dev/null || true
    [ -z "${python:-}" ] || { pkill -KILL -P "$python"; kill "$python"; } 2>/dev/null || true
    while read -r program; do pkill -KILL -P "$program" || true; done 2>/dev/null <"$times/rust/started" || true' EXIT
status=0
case $which in
rust)
    start_compiler 0
    await_compiler
    printf '  ' >&8
    rust 2>&1 | tee "$times/rust.out" || status=1
    ;;
python) python 2>&1 | tee "$times/python.log" || status=1 ;;
all)
    # Programs in Rust run one by one during the tests in Python, and three at once after them: most wait.
    tokens=3
    start_compiler 10
    printf ' ' >&8
    {
        code=0
        python >"$times/python.log" 2>&1 || code=$?
        # The compiler gets its normal priority again.
        renice --priority 0 --pgrp "$compiler" >/dev/null 2>&1 || true
        printf '  ' >&8
        exit $code
    } &
    python=$!
    await_compiler
    rust 2>&1 | tee "$times/rust.out" || status=1
    wait "$python" || status=1
    # Print the summaries last; for Rust, only the results, and what failed tests printed.
    awk '/^failures:$/ { failures = 1 } failures || /^test result:|FAILED|^error: /; /^test result:/ { failures = 0 }' "$times/rust.out"
    sed '/slowest durations/,/^=* *short test summary\|^[0-9]* \(passed\|failed\)/{/^[0-9.]*s \|slowest durations/d}' "$times/python.log"
    ;;
esac
exit $status
