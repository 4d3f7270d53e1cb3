#!/usr/bin/env bash
# Builds a program of an earlier commit for `millrace bench --before`, and prints the path of the program.
#
#   scripts/build-before.sh COMMIT [PROGRAM]    that commit
#   scripts/build-before.sh landing [PROGRAM]   the newest commit that this branch shares with origin/main; prints nothing if
#                                               that is the commit that is checked out, because there is nothing to compare
#
# PROGRAM is the name of a package with a program of that name: millraced unless given, millrace for `millrace bench ips`. The
# program stays in target/before/COMMIT; the build takes as long as that of the program with all its crates.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:?a commit, or landing} in
landing)
    commit=$(git merge-base HEAD origin/main 2>/dev/null) || exit 0
    if [ "$commit" = "$(git rev-parse HEAD)" ]; then
        echo "bench: this is the commit of origin/main; BEFORE=COMMIT names an earlier one to compare with" >&2
        exit 0
    fi
    ;;
*) commit=$(git rev-parse --verify "$1^{commit}") ;;
esac
name=${2:-millraced}
program=$PWD/target/before/$commit/$name
if [ ! -x "$program" ]; then
    tree=$PWD/target/before/tree
    git worktree remove --force "$tree" 2>/dev/null || true
    git worktree prune
    git worktree add --quiet --detach "$tree" "$commit" >&2
    trap 'git worktree remove --force "$tree"' EXIT
    (cd "$tree" && CARGO_TARGET_DIR=$OLDPWD/target/before/build cargo build --release --locked -p "$name" >&2)
    install -D "$PWD/target/before/build/release/$name" "$program"
fi
echo "$program"
