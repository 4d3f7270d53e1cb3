"""The act of two engines: on one PostgreSQL database, and the one that leads is killed under traffic."""

import signal
import time

import namespaces
import postgres
from engine_pair import PAIRS, Pair, Traffic
from stage import act, hold, row, say
from switches import wait_for

# The longest time from the death of a leader until the other engine leads: gate A9.
LEADS_MAX = 10


def kill_leader(demo):
    """Starts two engines, kills the one that leads, and orders at the other one. The demo's own exchange has ended its acts."""
    act("9. Two engines on one database, and the leader is killed")
    if not postgres.is_installed():
        say(f"This act is left out: {postgres.MISSING}.")
        return
    with namespaces.cables(*PAIRS), postgres.Server() as server, Pair(demo.folder / "engines", server) as pair:
        leader, follower = pair.by_role()
        say("two engines share a PostgreSQL database; both know the switch, and one leads")
        for engine in (leader, follower):
            status = engine.ask("status")["engine"]
            say(f"  {engine.folder.name} {status['role']}" + (f" {status['leader']}" if status["role"] == "follows" else ""))
        epoch = pair.epoch()
        traffic = Traffic(PAIRS[0][0], PAIRS[1][0])
        traffic.start()
        wait_for("frames arrive", lambda: len(traffic.arrived) > 20)
        leader.stop(signal.SIGKILL)
        killed = time.monotonic()
        wait_for("the other engine leads", lambda: pair.leads(follower))
        leads = time.monotonic() - killed
        pair.order(follower, "second", 101)
        follower.wait_in_sync()
        leader.start()
        wait_for("the first engine follows", lambda: leader.ask("status")["engine"]["role"] == "follows")
        lost = traffic.lost()
        row("frames of a member meanwhile", "sent", "lost")
        row("", traffic.sent, len(lost))
        row("from the death of the leader until the other one leads", f"{leads:.1f} s")
        row("epoch before and after: switches refuse the older one", epoch, pair.epoch())
        hold(not lost, f"frames were lost: {sorted(lost)[:20]}")
        hold(pair.epoch() == epoch + 1, "the epoch has not grown by one")
        # A busy machine takes longer to write and read the lease.
        hold(leads < 3 * LEADS_MAX, f"the other engine leads after {leads:.1f} s, and not within {LEADS_MAX} s")
        names = sorted(service["name"] for service in leader.ask("services"))
        hold(names == ["ab", "second"], f"the engine that was killed has not read what the other one has ordered: {names}")
        say("the other engine leads and takes orders; the one that was killed is back, and follows it")
