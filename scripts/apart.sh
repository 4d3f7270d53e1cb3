#!/usr/bin/env bash
# Runs a command isolated from the rest of the machine: in network, mount and process namespaces of its own, with an empty
# /run. Tests that create interfaces, namespaces and daemons then find nothing that another run left, and leave nothing: all
# their processes end with the command, however it ends. Without root, the script only runs the command.
set -euo pipefail

apart=(setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child=KILL --mount-proc)
if ! "${apart[@]}" true 2>/dev/null; then
    exec "$@"
fi
# The shell stays, as the parent of orphaned processes of the command.
"${apart[@]}" bash -euc '
    mount -t tmpfs tmpfs /run
    mount -t sysfs sysfs /sys
    ip link set lo up
    "$@" && exit 0 || exit $?
' apart "$@"
