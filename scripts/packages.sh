#!/usr/bin/env bash
# Builds Debian packages of the programs in a folder into target/packages, or into the folder that PACKAGES names.
#
#   scripts/packages.sh target/release            # `make packages`
#   COMPRESSION="-Zgzip -z1" scripts/packages.sh target/debug
#
# The version is that of the workspace in Cargo.toml; VERSION overrides it.
set -euo pipefail
cd "$(dirname "$0")/.."

programs=$(realpath "${1:?expected the folder of the built programs, as in: scripts/packages.sh target/release}")
packages=${PACKAGES:-$PWD/target/packages}
version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)}

command -v dh >/dev/null || { echo "packages: debhelper is missing; to install it: scripts/setup.sh packages" >&2; exit 1; }
for program in millraced millrace millrace-nf millrace-nic millrace-wan millrace-mgmt millrace-courier millrace-ix millrace-bench millrace-generator; do
    [ -x "$programs/$program" ] || { echo "packages: $programs/$program is missing; build it first, as with: make packages" >&2; exit 1; }
done

# debhelper writes beside debian/control, so it works on a copy.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r debian "$stage"
rm -rf "$stage/debian/container"
sed -i "1s/(.*)/($version)/" "$stage/debian/changelog"
mkdir -p "$packages"
rm -f "$packages"/millrace*.deb
cd "$stage"
log=$stage/log
if ! SOURCE=$OLDPWD PROGRAMS=$programs PACKAGES=$packages COMPRESSION=${COMPRESSION:-} debian/rules binary >"$log" 2>&1; then
    cat "$log" >&2
    echo "packages: debhelper failed; its output is above" >&2
    exit 1
fi
# Warnings of debhelper are worth reading; its steps are not.
grep -E '^dpkg-shlibdeps: warning|^dh_[a-z]+: (warning|error)' "$log" >&2 || true
ls -1 "$packages"/*.deb
