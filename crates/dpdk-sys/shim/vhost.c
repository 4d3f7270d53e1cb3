/* Two things that DPDK's driver for vhost-user ports (net_vhost) has no words for.
 *
 * What the driver at the other end takes: the features that it has negotiated with DPDK's vhost library, kept where a
 * worker reads them without a lock. net_vhost is a plugin, so that it is looked up when a port is watched and not linked.
 *
 * And that nobody reads the library's counts of the packets of each ring by size and kind, for which it looks into every
 * packet a second time: see rte_vhost_driver_register below.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>

#include <rte_vhost.h>

typedef int (*vid_of_port)(uint16_t port);
typedef int (*registration)(const char *path, uint64_t flags);

static vid_of_port find_vid;
/* By port; zero while nobody is connected. */
static uint64_t negotiated[RTE_MAX_ETHPORTS];

/* The library of a driver that is loaded already. */
static void *symbol(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD), *found;

	if (handle == NULL)
		return NULL;
	found = dlsym(handle, name);
	dlclose(handle);
	return found;
}

/* The number in its name is the ABI's: 23 is that of 22.11, 24 of 23.11, 25 of 24.11. */
static void *versioned(const char *stem, const char *name)
{
	char library[64];
	void *found = NULL;

	for (int abi = 23; abi < 32 && found == NULL; abi++) {
		snprintf(library, sizeof(library), "%s.so.%d", stem, abi);
		found = symbol(library, name);
	}
	return found;
}

static void look(uint16_t port)
{
	uint64_t features = 0;
	int vid = find_vid(port);

	if (vid < 0 || rte_vhost_get_negotiated_features(vid, &features) != 0)
		features = 0;
	__atomic_store_n(&negotiated[port], features, __ATOMIC_RELEASE);
}

/* Of the thread that serves the sockets: a peer has come, or gone. The driver has stopped the queues before it tells of
 * a peer that goes, and starts them before it tells of one that comes. */
static int changed(uint16_t port, enum rte_eth_event_type type, void *argument, void *more)
{
	(void)type;
	(void)argument;
	(void)more;
	look(port);
	return 0;
}

int shim_vhost_watch(uint16_t port)
{
	int rc;

	if (port >= RTE_MAX_ETHPORTS)
		return -EINVAL;
	if (find_vid == NULL)
		find_vid = (vid_of_port)versioned("librte_net_vhost", "rte_eth_vhost_get_vid_from_port_id");
	if (find_vid == NULL)
		return -ENOTSUP;
	rc = rte_eth_dev_callback_register(port, RTE_ETH_EVENT_INTR_LSC, changed, NULL);
	if (rc == 0)
		look(port);
	return rc;
}

int shim_vhost_unwatch(uint16_t port)
{
	int rc = rte_eth_dev_callback_unregister(port, RTE_ETH_EVENT_INTR_LSC, changed, NULL);

	__atomic_store_n(&negotiated[port], 0, __ATOMIC_RELEASE);
	return rc;
}

uint64_t shim_vhost_features(uint16_t port)
{
	return __atomic_load_n(&negotiated[port], __ATOMIC_ACQUIRE);
}

/* net_vhost's call to register a socket comes here, as a program's own symbols go before those of libraries, and goes on
 * to the library without the wish for counts. They cost a tenth of what a port carries: 3.66 Mpps through four functions
 * with them, 3.99 without. The library is linked, so that it is the next one that has the symbol.
 */
int rte_vhost_driver_register(const char *path, uint64_t flags)
{
	registration next = (registration)dlsym(RTLD_NEXT, "rte_vhost_driver_register");

	if (next == NULL)
		return -1;
	return next(path, flags & ~(uint64_t)RTE_VHOST_USER_NET_STATS_ENABLE);
}
