/* The definitions of shim.h: calls of DPDK's inline functions, and views that hide its field names. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
/* rte_eth_rx_metadata_negotiate is experimental, in DPDK 22.11 and in 24.11. */
#define ALLOW_EXPERIMENTAL_API
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <rte_cycles.h>
#include <rte_ether.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_memory.h>

/* Rust accesses these fields with these widths. */
#define FIELD(name, bytes) \
	_Static_assert(sizeof(((struct rte_mbuf *)0)->name) == (bytes), "struct rte_mbuf: width of " #name)
FIELD(buf_addr, 8);
FIELD(data_off, 2);
FIELD(refcnt, 2);
FIELD(nb_segs, 2);
FIELD(port, 2);
FIELD(ol_flags, 8);
FIELD(pkt_len, 4);
FIELD(data_len, 2);
FIELD(vlan_tci, 2);
FIELD(buf_len, 2);
FIELD(pool, 8);
FIELD(hash.fdir.hi, 4);
FIELD(next, 8);
FIELD(tx_offload, 8);
_Static_assert(RTE_MBUF_TSO_SEGSZ_BITS == 16, "struct rte_mbuf: width of tso_segsz");

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t room)
{
	return rte_eth_rx_burst(port, queue, pkts, room);
}

uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t len)
{
	return rte_eth_tx_burst(port, queue, pkts, len);
}

int shim_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int len)
{
	return rte_pktmbuf_alloc_bulk(pool, pkts, len);
}

unsigned int shim_ring_enqueue_burst(struct rte_ring *ring, struct rte_mbuf **pkts, unsigned int len)
{
	return rte_ring_enqueue_burst(ring, (void *const *)pkts, len, NULL);
}

unsigned int shim_ring_dequeue_burst(struct rte_ring *ring, struct rte_mbuf **pkts, unsigned int room)
{
	return rte_ring_dequeue_burst(ring, (void **)pkts, room, NULL);
}

struct rte_mbuf *shim_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

void shim_free(struct rte_mbuf *m)
{
	rte_pktmbuf_free(m);
}

int shim_linearize(struct rte_mbuf *m)
{
	return rte_pktmbuf_linearize(m);
}

int shim_chain(struct rte_mbuf *head, struct rte_mbuf *tail)
{
	return rte_pktmbuf_chain(head, tail);
}

void shim_set_segment_size(struct rte_mbuf *m, uint16_t size)
{
	m->ol_flags |= RTE_MBUF_F_RX_LRO;
	m->tso_segsz = size;
}

void shim_clear_segment_size(struct rte_mbuf *m)
{
	m->ol_flags &= ~RTE_MBUF_F_RX_LRO;
	m->tx_offload = 0;
}

unsigned int shim_ring_count(const struct rte_ring *ring)
{
	return rte_ring_count(ring);
}

unsigned int shim_ring_capacity(const struct rte_ring *ring)
{
	return rte_ring_get_capacity(ring);
}

unsigned int shim_lcore_id(void)
{
	return rte_lcore_id();
}

int shim_errno(void)
{
	return rte_errno;
}

uint64_t shim_rdtsc(void)
{
	return rte_rdtsc();
}

uint32_t shim_mempool_size(const struct rte_mempool *pool)
{
	return pool->size;
}

uint16_t shim_mempool_data_room(struct rte_mempool *pool)
{
	return rte_pktmbuf_data_room_size(pool);
}

uint32_t shim_mempool_chunks(const struct rte_mempool *pool)
{
	return pool->nb_mem_chunks;
}

struct memory_areas {
	uint64_t *bounds;
	uint32_t max;
	uint32_t len;
};

static int add_memory_area(const struct rte_memseg_list *list, const struct rte_memseg *first, size_t size, void *to)
{
	struct memory_areas *areas = to;

	if (list->external)
		return 0;
	if (areas->len < areas->max) {
		areas->bounds[2 * areas->len] = first->addr_64;
		areas->bounds[2 * areas->len + 1] = first->addr_64 + size;
	}
	areas->len++;
	return 0;
}

uint32_t shim_memory_areas(uint64_t *bounds, uint32_t max)
{
	struct memory_areas areas = { .bounds = bounds, .max = max };

	rte_memseg_contig_walk(add_memory_area, &areas);
	return areas.len;
}

struct rte_mempool *shim_pool_create(const char *name, unsigned int len, unsigned int cache_len, uint16_t data_room,
				     int socket)
{
	struct rte_pktmbuf_pool_private room = { .mbuf_data_room_size = data_room };
	struct rte_mempool *pool;
	int rc;

	pool = rte_mempool_create_empty(name, len, sizeof(struct rte_mbuf) + data_room, cache_len, sizeof(room), socket,
					RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (pool == NULL)
		return NULL;
	/* Use the stack (last in, first out) if the library is installed. */
	rc = rte_mempool_set_ops_byname(pool, "stack", NULL);
	if (rc != 0)
		rc = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (rc == 0) {
		rte_pktmbuf_pool_init(pool, &room);
		rc = rte_mempool_populate_default(pool);
	}
	if (rc < 0) {
		rte_mempool_free(pool);
		rte_errno = -rc;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* Returns the RSS types to request, with the innermost headers if the device supports them. The level is a two-bit number, so it is
 * requested only if both bits are offered. */
static uint64_t rss_types(uint64_t offered)
{
	uint64_t types = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP | RTE_ETH_RSS_TUNNEL |
			 RTE_ETH_RSS_GTPU | RTE_ETH_RSS_MPLS | RTE_ETH_RSS_L2_PAYLOAD;
	uint64_t asked = offered & types;

	if ((offered & RTE_ETH_RSS_LEVEL_MASK) == RTE_ETH_RSS_LEVEL_MASK)
		asked |= RTE_ETH_RSS_LEVEL_INNERMOST;
	return asked;
}

int shim_port_info(uint16_t port, struct shim_port_info *info)
{
	struct rte_eth_dev_info dev;
	int rc = rte_eth_dev_info_get(port, &dev);

	if (rc != 0)
		return rc;
	memset(info, 0, sizeof(*info));
	info->device = dev.device;
	info->driver_name = dev.driver_name;
	info->min_mtu = dev.min_mtu;
	info->max_mtu = dev.max_mtu;
	info->max_rx_pktlen = dev.max_rx_pktlen;
	info->max_rx_queues = dev.max_rx_queues;
	info->max_tx_queues = dev.max_tx_queues;
	info->min_rx_bufsize = dev.min_rx_bufsize;
	info->speed_capa = dev.speed_capa;
	info->rss_types = dev.flow_type_rss_offloads;
	info->rss_asked = rss_types(dev.flow_type_rss_offloads);
	info->if_index = dev.if_index;
	info->rx_scatter = !!(dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER);
	info->tx_multi_segs = !!(dev.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS);
	info->tx_lockfree = !!(dev.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MT_LOCKFREE);
	info->rx_vlan_strip = !!(dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP);
	return 0;
}

int shim_port_configure(uint16_t port, const struct shim_port_conf *want)
{
	struct rte_eth_dev_info dev;
	struct rte_eth_conf conf;
	uint8_t key[64];
	int rc = rte_eth_dev_info_get(port, &dev);

	if (rc != 0)
		return rc;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = want->mtu;
	if (want->scatter)
		conf.rxmode.offloads |= dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
	if (want->multi_segs)
		conf.txmode.offloads |= dev.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	if (want->rss && want->rx_queues > 1 && dev.flow_type_rss_offloads != 0) {
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		conf.rxmode.offloads |= dev.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH;
		conf.rx_adv_conf.rss_conf.rss_hf = rss_types(dev.flow_type_rss_offloads);
		if (dev.hash_key_size != 0 && dev.hash_key_size <= sizeof(key)) {
			for (size_t at = 0; at < sizeof(key); at++)
				key[at] = (uint8_t)(want->rss_word >> (at % 2 == 0 ? 8 : 0));
			conf.rx_adv_conf.rss_conf.rss_key = key;
			conf.rx_adv_conf.rss_conf.rss_key_len = dev.hash_key_size;
		}
	}
	return rte_eth_dev_configure(port, want->rx_queues, want->tx_queues, &conf);
}

int shim_port_negotiate_marks(uint16_t port)
{
	uint64_t features = RTE_ETH_RX_METADATA_USER_MARK;
	int rc = rte_eth_rx_metadata_negotiate(port, &features);

	if (rc != 0)
		return rc;
	return (features & RTE_ETH_RX_METADATA_USER_MARK) != 0;
}

int shim_link(uint16_t port, struct shim_link *link)
{
	struct rte_eth_link now;
	int rc;

	memset(&now, 0, sizeof(now));
	rc = rte_eth_link_get_nowait(port, &now);
	if (rc != 0)
		return rc;
	link->speed = now.link_speed;
	link->up = now.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = now.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	link->autoneg = now.link_autoneg == RTE_ETH_LINK_AUTONEG;
	return 0;
}

int shim_stats(uint16_t port, struct shim_stats *stats)
{
	struct rte_eth_stats now;
	int rc = rte_eth_stats_get(port, &now);

	if (rc != 0)
		return rc;
	stats->rx_packets = now.ipackets;
	stats->tx_packets = now.opackets;
	stats->rx_bytes = now.ibytes;
	stats->tx_bytes = now.obytes;
	stats->rx_missed = now.imissed;
	stats->rx_errors = now.ierrors;
	stats->tx_errors = now.oerrors;
	stats->rx_no_mbuf = now.rx_nombuf;
	return 0;
}

int shim_mac(uint16_t port, uint8_t mac[6])
{
	struct rte_ether_addr addr;
	int rc = rte_eth_macaddr_get(port, &addr);

	if (rc == 0)
		memcpy(mac, addr.addr_bytes, sizeof(addr.addr_bytes));
	return rc;
}

/* The sink is set once, before EAL starts any thread. */
static void (*log_sink)(uint32_t level, const char *text, size_t len);

static ssize_t log_write(void *cookie, const char *text, size_t len)
{
	int level = rte_log_cur_msg_loglevel();

	(void)cookie;
	log_sink(level > 0 ? (uint32_t)level : RTE_LOG_INFO, text, len);
	return (ssize_t)len;
}

int shim_log_to(void (*sink)(uint32_t level, const char *text, size_t len))
{
	static const cookie_io_functions_t functions = { .write = log_write };
	FILE *stream;

	log_sink = sink;
	stream = fopencookie(NULL, "w", functions);
	if (stream == NULL)
		return -errno;
	return rte_openlog_stream(stream);
}

/* The print function of both libraries: level 0 is a warning, 1 information, 2 debugging. */
typedef int (*bpf_print)(int level, const char *format, va_list arguments);

static int bpf_write(int level, const char *format, va_list arguments)
{
	/* Warnings of these libraries concern optional features that a driver tries, so they are logged as information. */
	uint32_t as = level == 0 ? RTE_LOG_INFO : RTE_LOG_DEBUG;
	char text[512];
	int len;

	if (level > 1)
		return 0;
	len = vsnprintf(text, sizeof(text), format, arguments);
	if (len > 0)
		log_sink(as, text, (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1);
	return len;
}

static void redirect(const char *library, const char *setter)
{
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	bpf_print (*set)(bpf_print);

	if (handle == NULL)
		return;
	set = (bpf_print (*)(bpf_print))dlsym(handle, setter);
	if (set != NULL)
		set(bpf_write);
	dlclose(handle);
}

void shim_log_bpf(void)
{
	redirect("libbpf.so.1", "libbpf_set_print");
	redirect("libxdp.so.1", "libxdp_set_print");
}

int shim_is_af_xdp(int fd)
{
	int domain = 0;
	socklen_t size = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_XDP;
}

/* A flow rule in DPDK's form, and the memory that the rule refers to. */
struct flow_parts {
	struct rte_flow_attr attr;
	struct rte_flow_item items[SHIM_FLOW_LEN_MAX + 1];
	struct rte_flow_action actions[SHIM_FLOW_LEN_MAX + 1];
	/* Items are headers as on the wire, followed by DPDK's own fields, which stay zero. */
	uint8_t headers[2 * SHIM_FLOW_LEN_MAX][64] __rte_aligned(8);
	uint16_t queues[RTE_MAX_QUEUES_PER_PORT];
	union {
		struct rte_flow_action_queue queue;
		struct rte_flow_action_mark mark;
		struct rte_flow_action_count count;
		struct rte_flow_action_rss rss;
	} confs[SHIM_FLOW_LEN_MAX];
};

_Static_assert(sizeof(struct rte_flow_item_ipv6) <= 64, "the longest item");
_Static_assert(sizeof(struct rte_flow_item_eth) <= 64, "an item");

static void flow_build(const struct shim_flow_rule *rule, struct flow_parts *parts)
{
	uint32_t i, items = RTE_MIN(rule->item_count, (uint32_t)SHIM_FLOW_LEN_MAX);
	uint32_t actions = RTE_MIN(rule->action_count, (uint32_t)SHIM_FLOW_LEN_MAX);

	memset(parts, 0, sizeof(*parts));
	parts->attr.group = rule->group;
	parts->attr.priority = rule->priority;
	parts->attr.ingress = 1;
	for (i = 0; i < items; i++) {
		const struct shim_flow_item *item = &rule->items[i];

		parts->items[i].type = (enum rte_flow_item_type)item->kind;
		if (item->has_spec) {
			memcpy(parts->headers[2 * i], item->spec, sizeof(item->spec));
			memcpy(parts->headers[2 * i + 1], item->mask, sizeof(item->mask));
			parts->items[i].spec = parts->headers[2 * i];
			parts->items[i].mask = parts->headers[2 * i + 1];
		}
	}
	parts->items[items].type = RTE_FLOW_ITEM_TYPE_END;
	for (i = 0; i < actions; i++) {
		const struct shim_flow_action *action = &rule->actions[i];

		parts->actions[i].type = (enum rte_flow_action_type)action->kind;
		switch (action->kind) {
		case SHIM_FLOW_ACTION_QUEUE:
			parts->confs[i].queue.index = (uint16_t)action->value;
			parts->actions[i].conf = &parts->confs[i];
			break;
		case SHIM_FLOW_ACTION_MARK:
			parts->confs[i].mark.id = action->value;
			parts->actions[i].conf = &parts->confs[i];
			break;
		case SHIM_FLOW_ACTION_RSS:
			/* The hash function, its key and its fields are those of the port. */
			parts->confs[i].rss.queue_num = RTE_MIN(action->value, (uint32_t)RTE_DIM(parts->queues));
			for (uint32_t at = 0; at < parts->confs[i].rss.queue_num; at++)
				parts->queues[at] = (uint16_t)at;
			parts->confs[i].rss.queue = parts->queues;
			parts->actions[i].conf = &parts->confs[i];
			break;
		case SHIM_FLOW_ACTION_COUNT:
			parts->actions[i].conf = &parts->confs[i];
			break;
		default:
			break;
		}
	}
	parts->actions[actions].type = RTE_FLOW_ACTION_TYPE_END;
}

static void flow_tell(const struct rte_flow_error *from, struct shim_flow_error *to)
{
	snprintf(to->message, sizeof(to->message), "%s", from->message == NULL ? "" : from->message);
}

int shim_flow_validate(uint16_t port, const struct shim_flow_rule *rule, struct shim_flow_error *error)
{
	struct rte_flow_error flow_error = { .message = NULL };
	struct flow_parts parts;
	int rc;

	flow_build(rule, &parts);
	rc = rte_flow_validate(port, &parts.attr, parts.items, parts.actions, &flow_error);
	flow_tell(&flow_error, error);
	return rc;
}

struct rte_flow *shim_flow_create(uint16_t port, const struct shim_flow_rule *rule, struct shim_flow_error *error)
{
	struct rte_flow_error flow_error = { .message = NULL };
	struct flow_parts parts;
	struct rte_flow *flow;

	flow_build(rule, &parts);
	flow = rte_flow_create(port, &parts.attr, parts.items, parts.actions, &flow_error);
	flow_tell(&flow_error, error);
	return flow;
}

int shim_flow_destroy(uint16_t port, struct rte_flow *flow, struct shim_flow_error *error)
{
	struct rte_flow_error flow_error = { .message = NULL };
	int rc = rte_flow_destroy(port, flow, &flow_error);

	flow_tell(&flow_error, error);
	return rc;
}

int shim_flow_flush(uint16_t port, struct shim_flow_error *error)
{
	struct rte_flow_error flow_error = { .message = NULL };
	int rc = rte_flow_flush(port, &flow_error);

	flow_tell(&flow_error, error);
	return rc;
}

int shim_flow_count(uint16_t port, struct rte_flow *flow, uint64_t *packets, uint64_t *bytes,
		    struct shim_flow_error *error)
{
	const struct rte_flow_action count[] = { { .type = RTE_FLOW_ACTION_TYPE_COUNT },
						 { .type = RTE_FLOW_ACTION_TYPE_END } };
	struct rte_flow_query_count answer = { .reset = 0 };
	struct rte_flow_error flow_error = { .message = NULL };
	int rc = rte_flow_query(port, flow, count, &answer, &flow_error);

	flow_tell(&flow_error, error);
	*packets = answer.hits_set ? answer.hits : 0;
	*bytes = answer.bytes_set ? answer.bytes : 0;
	return rc;
}
