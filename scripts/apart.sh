#!/usr/bin/env bash
# Runs a command apart from the rest of the machine: in network, mount and process namespaces of its own, with an empty
# /run. Tests that make interfaces, namespaces and daemons then meet nothing that another run left, leave nothing, and
# all that they started ends with them, however they end. Where that is not allowed (no root), it just runs the command.
set -euo pipefail

apart=(setpriv --pdeathsig KILL unshare --net --mount --pid --fork --kill-child=KILL --mount-proc)
if ! "${apart[@]}" true 2>/dev/null; then
    exec "$@"
fi
# The shell stays, as the process that orphans of the command are given to.
"${apart[@]}" bash -euc '
    mount -t tmpfs tmpfs /run
    mount -t sysfs sysfs /sys
    ip link set lo up
    "$@" && exit 0 || exit $?
' apart "$@"
