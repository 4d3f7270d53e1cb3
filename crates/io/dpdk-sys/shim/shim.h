/* Declarations of DPDK's parts that Rust cannot call or name directly.
 *
 * 1. Constants: offsets of the mbuf fields, so that Rust reads them inline with any release.
 * 2. Burst functions: one call across the language boundary for each burst, never for each packet.
 * 3. Wrappers of functions that exist only as static inline.
 * 4. Flat views of structures whose fields differ between 22.11, 23.11 and 24.11.
 * 5. to 8. Flow rules, sockets that a driver leaves open, the SIGBUS handler, and GSO packets.
 */
#ifndef MILLRACE_DPDK_SHIM_H
#define MILLRACE_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_common.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

/* 1. Constants */

enum {
	SHIM_VERSION_YEAR = RTE_VER_YEAR,
	SHIM_VERSION_MONTH = RTE_VER_MONTH,
	SHIM_VERSION_MINOR = RTE_VER_MINOR,

	SHIM_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	SHIM_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	SHIM_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	SHIM_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	SHIM_MBUF_PORT = offsetof(struct rte_mbuf, port),
	SHIM_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	SHIM_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	SHIM_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	SHIM_MBUF_VLAN_TCI = offsetof(struct rte_mbuf, vlan_tci),
	SHIM_MBUF_RSS = offsetof(struct rte_mbuf, hash),
	SHIM_MBUF_FDIR_MARK = offsetof(struct rte_mbuf, hash.fdir.hi),
	SHIM_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	SHIM_MBUF_POOL = offsetof(struct rte_mbuf, pool),
	SHIM_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	SHIM_MBUF_TX_OFFLOAD = offsetof(struct rte_mbuf, tx_offload),
	SHIM_MBUF_SEGMENT_SIZE_SHIFT = RTE_MBUF_TSO_SEGSZ_OFS,
	SHIM_MBUF_SIZE = sizeof(struct rte_mbuf),

	SHIM_MBUF_HEADROOM = RTE_PKTMBUF_HEADROOM,
	SHIM_MEMPOOL_CACHE_MAX = RTE_MEMPOOL_CACHE_MAX_SIZE,
	SHIM_PORTS_MAX = RTE_MAX_ETHPORTS,

	SHIM_RING_SP_ENQ = RING_F_SP_ENQ,
	SHIM_RING_SC_DEQ = RING_F_SC_DEQ,
};

/* Offload flags, which do not fit an enumeration. */
static const uint64_t SHIM_MBUF_F_RSS_HASH = RTE_MBUF_F_RX_RSS_HASH;
static const uint64_t SHIM_MBUF_F_MARK = RTE_MBUF_F_RX_FDIR_ID;
/* The mbuf is a GSO packet: its tso_segsz is the size of a segment's data. */
static const uint64_t SHIM_MBUF_F_GSO = RTE_MBUF_F_RX_LRO;

/* The header fields that RSS can hash (rte_eth_dev_info.flow_type_rss_offloads). */
static const uint64_t SHIM_RSS_IP = RTE_ETH_RSS_IP;
static const uint64_t SHIM_RSS_TCP = RTE_ETH_RSS_TCP;
static const uint64_t SHIM_RSS_UDP = RTE_ETH_RSS_UDP;
static const uint64_t SHIM_RSS_SCTP = RTE_ETH_RSS_SCTP;
static const uint64_t SHIM_RSS_TUNNEL = RTE_ETH_RSS_TUNNEL;
static const uint64_t SHIM_RSS_GTPU = RTE_ETH_RSS_GTPU;
static const uint64_t SHIM_RSS_MPLS = RTE_ETH_RSS_MPLS;
static const uint64_t SHIM_RSS_L2 = RTE_ETH_RSS_L2_PAYLOAD;
static const uint64_t SHIM_RSS_INNERMOST = RTE_ETH_RSS_LEVEL_INNERMOST;

enum {
	SHIM_LOG_EMERG = RTE_LOG_EMERG,
	SHIM_LOG_ERR = RTE_LOG_ERR,
	SHIM_LOG_WARNING = RTE_LOG_WARNING,
	SHIM_LOG_NOTICE = RTE_LOG_NOTICE,
	SHIM_LOG_INFO = RTE_LOG_INFO,
	SHIM_LOG_DEBUG = RTE_LOG_DEBUG,
};

/* 2. Bursts */

uint16_t shim_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t room);
uint16_t shim_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t len);
/* Allocates all or none. Returns 0 or a negative errno. */
int shim_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **pkts, unsigned int len);
unsigned int shim_ring_enqueue_burst(struct rte_ring *ring, struct rte_mbuf **pkts, unsigned int len);
unsigned int shim_ring_dequeue_burst(struct rte_ring *ring, struct rte_mbuf **pkts, unsigned int room);

/* 3. Static inline functions, for cold paths and for single packets */

struct rte_mbuf *shim_alloc(struct rte_mempool *pool);
void shim_free(struct rte_mbuf *m);
/* Returns 0, or -1 if the first segment has too little tailroom; the packet is then unchanged. */
int shim_linearize(struct rte_mbuf *m);
/* Appends `tail` to `head`. Returns -EOVERFLOW if the packet would have too many segments. */
int shim_chain(struct rte_mbuf *head, struct rte_mbuf *tail);
unsigned int shim_ring_count(const struct rte_ring *ring);
unsigned int shim_ring_capacity(const struct rte_ring *ring);
unsigned int shim_lcore_id(void);
int shim_errno(void);
uint64_t shim_rdtsc(void);
uint32_t shim_mempool_size(const struct rte_mempool *pool);
uint16_t shim_mempool_data_room(struct rte_mempool *pool);
/* Returns the number of memory chunks that hold the objects. */
uint32_t shim_mempool_chunks(const struct rte_mempool *pool);
/* Writes the start and the end of each area of EAL's memory, for the first `max` areas. Returns the number of all areas. */
uint32_t shim_memory_areas(uint64_t *bounds, uint32_t max);
/* Creates a pool as rte_pktmbuf_pool_create does, with two differences.
 *
 * Objects may span pages, which is valid while I/O addresses are virtual. Without huge pages, rte_pktmbuf_pool_create puts each
 * object into a page of 4 KiB of its own; net_af_xdp, which requires adjacent objects, then shares only the first half of the
 * pool with the kernel.
 *
 * Free buffers are kept in a stack instead of a ring. If one core receives and another sends, a ring returns the buffer that has
 * been free longest, so that the whole pool passes through the caches. (With one core, its mempool cache is such a stack.) */
struct rte_mempool *shim_pool_create(const char *name, unsigned int len, unsigned int cache_len, uint16_t data_room,
				     int socket);

/* 4. Flat views */

struct shim_port_info {
	struct rte_device *device;
	const char *driver_name;
	uint16_t min_mtu;
	uint16_t max_mtu;
	uint32_t max_rx_pktlen;
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
	uint32_t min_rx_bufsize;
	uint32_t speed_capa;
	uint64_t rss_types;
	/* the subset that shim_port_configure requests */
	uint64_t rss_asked;
	uint32_t if_index;
	uint8_t rx_scatter;
	uint8_t tx_multi_segs;
	uint8_t tx_lockfree;
	uint8_t rx_vlan_strip;
};

/* Returns 0 or a negative errno. */
int shim_port_info(uint16_t port, struct shim_port_info *info);

struct shim_port_conf {
	uint16_t rx_queues;
	uint16_t tx_queues;
	/* in bytes; 0: the driver's default */
	uint16_t mtu;
	/* 1 if received frames may occupy chained segments */
	uint8_t scatter;
	/* 1 to request chained segments for transmission */
	uint8_t multi_segs;
	/* 1 to spread flows over the receive queues by addresses, ports and the other fields that the device supports */
	uint8_t rss;
	/* the word that a symmetric Toeplitz key repeats, so that both directions of a flow have one hash */
	uint16_t rss_word;
};

/* Calls rte_eth_dev_configure, without offloads that the device lacks. Returns 0 or a negative errno. */
int shim_port_configure(uint16_t port, const struct shim_port_conf *conf);

/* Asks the driver to deliver the marks of flow rules, before shim_port_configure. Returns 1 if it will, 0 if it will not, and a
 * negative errno if it cannot tell: -ENOTSUP from drivers without this negotiation. */
int shim_port_negotiate_marks(uint16_t port);

struct shim_link {
	/* Mbit/s; 0 if unknown, UINT32_MAX if the driver reports it as meaningless */
	uint32_t speed;
	uint8_t up;
	uint8_t full_duplex;
	uint8_t autoneg;
};

/* Reads the link state without waiting for it to settle. Returns 0 or a negative errno. */
int shim_link(uint16_t port, struct shim_link *link);

struct shim_stats {
	uint64_t rx_packets;
	uint64_t tx_packets;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint64_t rx_missed;
	uint64_t rx_errors;
	uint64_t tx_errors;
	uint64_t rx_no_mbuf;
};

int shim_stats(uint16_t port, struct shim_stats *stats);
int shim_mac(uint16_t port, uint8_t mac[6]);

/* Sends DPDK's log to `sink`, a line or a part of a line at a time. Returns 0 or a negative errno. */
int shim_log_to(void (*sink)(uint32_t level, const char *text, size_t len));

/* Sends the logs of libbpf and libxdp, which net_af_xdp loads, to the same sink; the libraries log to the standard error by
 * default. Call this after EAL has started; without the libraries the call has no effect. */
void shim_log_bpf(void);

/* 5. Rules that a device applies itself (rte_flow) */

enum {
	SHIM_FLOW_ITEM_ETH = RTE_FLOW_ITEM_TYPE_ETH,
	SHIM_FLOW_ITEM_VLAN = RTE_FLOW_ITEM_TYPE_VLAN,
	SHIM_FLOW_ITEM_MPLS = RTE_FLOW_ITEM_TYPE_MPLS,
	SHIM_FLOW_ITEM_IPV4 = RTE_FLOW_ITEM_TYPE_IPV4,
	SHIM_FLOW_ITEM_IPV6 = RTE_FLOW_ITEM_TYPE_IPV6,
	SHIM_FLOW_ITEM_TCP = RTE_FLOW_ITEM_TYPE_TCP,
	SHIM_FLOW_ITEM_UDP = RTE_FLOW_ITEM_TYPE_UDP,
	SHIM_FLOW_ITEM_SCTP = RTE_FLOW_ITEM_TYPE_SCTP,

	SHIM_FLOW_ACTION_DROP = RTE_FLOW_ACTION_TYPE_DROP,
	SHIM_FLOW_ACTION_QUEUE = RTE_FLOW_ACTION_TYPE_QUEUE,
	SHIM_FLOW_ACTION_MARK = RTE_FLOW_ACTION_TYPE_MARK,
	SHIM_FLOW_ACTION_COUNT = RTE_FLOW_ACTION_TYPE_COUNT,
	/* value: the number of receive queues, from 0, over which the device's RSS spreads the packets */
	SHIM_FLOW_ACTION_RSS = RTE_FLOW_ACTION_TYPE_RSS,

	SHIM_FLOW_LEN_MAX = 8,
};

/* A header as on the wire, and the mask of the bits to match; IPv6 is the longest. */
struct shim_flow_item {
	uint32_t kind;
	/* zero: matches any header of this type */
	uint32_t has_spec;
	uint8_t spec[40];
	uint8_t mask[40];
};

struct shim_flow_action {
	uint32_t kind;
	/* the queue, or the mark */
	uint32_t value;
};

struct shim_flow_rule {
	uint32_t group;
	uint32_t priority;
	uint32_t item_count;
	uint32_t action_count;
	struct shim_flow_item items[SHIM_FLOW_LEN_MAX];
	struct shim_flow_action actions[SHIM_FLOW_LEN_MAX];
};

struct shim_flow_error {
	/* the driver's message; empty if it gave none */
	char message[192];
};

/* Returns 0 or a negative errno; -ENOSYS or -ENOTSUP if the driver supports no rules. */
int shim_flow_validate(uint16_t port, const struct shim_flow_rule *rule, struct shim_flow_error *error);
/* Returns NULL and sets rte_errno on failure. */
struct rte_flow *shim_flow_create(uint16_t port, const struct shim_flow_rule *rule, struct shim_flow_error *error);
int shim_flow_destroy(uint16_t port, struct rte_flow *flow, struct shim_flow_error *error);
/* Removes all rules of the port. */
int shim_flow_flush(uint16_t port, struct shim_flow_error *error);
/* Reads the counters of the rule's count action. */
int shim_flow_count(uint16_t port, struct rte_flow *flow, uint64_t *packets, uint64_t *bytes,
		    struct shim_flow_error *error);
/* 6. Resources that a driver does not release: see crates/io/dpdk/src/port/driver_resources.rs */

/* Returns 1 if the descriptor is a socket of the family AF_XDP, otherwise 0. */
int shim_is_af_xdp(int fd);

/* 7. Shared memory that a peer truncates: see sigbus.c */

/* Installs the SIGBUS handler. Returns 0 or a negative errno. */
int shim_handle_sigbus(void);

/* 8. GSO packets */

/* Makes the mbuf a GSO packet; `size` is the size of a segment's data in bytes. */
void shim_set_segment_size(struct rte_mbuf *m, uint16_t size);
/* Makes the mbuf an ordinary packet. */
void shim_clear_segment_size(struct rte_mbuf *m);

#endif
