/* A device with flow rules in software: a preloaded library that answers rte_flow_* for every port of DPDK, and marks received
 * packets as the rules say.
 *
 * No driver of DPDK 22.11 applies mark rules in software, and no driver can be built outside of DPDK. So this library stands
 * between the switch and a virtual device: it parses rules back from DPDK's structures, by the names of their fields, and applies
 * them to the packets of a receive callback. Marks and hashes go where a NIC puts them: hash.fdir.hi and hash.rss of the mbuf.
 *
 *   LD_PRELOAD=fake_flow.so FAKE_FLOW_LOG=FILE FAKE_FLOW_FAULT=FILE millraced ...
 *
 * Each rule that is accepted or destroyed is a line of the log. The first word of the fault file says how the device errs, from
 * the next call or burst on:
 *   refuse  no rule is accepted                  full   a third rule has no room             busy    asked again later
 *   ignore  rules are accepted and not applied   keep   removed rules stay                   leak    rules cannot be removed
 *   lose    packets have no marks                wrong  each second packet has another mark  slow    100 ms for each rule
 *   blind   source ports of transport headers are not compared
 * A file that begins with `nomarks` when the port starts says that the receive function delivers no marks.
 *
 * Marks have 24 bits, as those of mlx5.
 */
#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_mbuf.h>

#define RULES_MAX 4096
#define ITEMS_MAX 8
#define MARK_MAX 0xffffff

struct item {
	enum rte_flow_item_type type;
	size_t size;
	uint8_t spec[40];
	uint8_t mask[40];
};

/* Defined by drivers; this one's. */
struct rte_flow {
	int is_used;
	uint16_t port;
	uint32_t mark;
	int has_mark;
	size_t items_len;
	struct item items[ITEMS_MAX];
};

static struct rte_flow rules[RULES_MAX];
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static int has_fault(const char *name)
{
	const char *path = getenv("FAKE_FLOW_FAULT");
	char text[32] = "";
	int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return 0;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	return len > 0 && strncmp(text, name, strlen(name)) == 0;
}

static void say(const char *verb, const struct rte_flow *rule)
{
	const char *path = getenv("FAKE_FLOW_LOG");
	FILE *log = path == NULL ? NULL : fopen(path, "a");

	if (log == NULL)
		return;
	fprintf(log, "%s port=%u mark=%#x", verb, rule->port, rule->mark);
	for (size_t i = 0; i < rule->items_len; i++) {
		const struct item *item = &rule->items[i];
		struct in_addr from, to;

		switch (item->type) {
		case RTE_FLOW_ITEM_TYPE_ETH: {
			const struct rte_flow_item_eth *spec = (const void *)item->spec, *mask = (const void *)item->mask;

			fprintf(log, " eth type=%#x/%#x", ntohs(spec->hdr.ether_type), ntohs(mask->hdr.ether_type));
			break;
		}
		case RTE_FLOW_ITEM_TYPE_VLAN: {
			const struct rte_flow_item_vlan *spec = (const void *)item->spec, *mask = (const void *)item->mask;

			fprintf(log, " vlan tci=%#x/%#x inner=%#x/%#x", ntohs(spec->hdr.vlan_tci), ntohs(mask->hdr.vlan_tci),
				ntohs(spec->hdr.eth_proto), ntohs(mask->hdr.eth_proto));
			break;
		}
		case RTE_FLOW_ITEM_TYPE_MPLS: {
			const struct rte_flow_item_mpls *spec = (const void *)item->spec, *mask = (const void *)item->mask;

			fprintf(log, " mpls label=%#x/%#x", spec->label_tc_s[0] << 12 | spec->label_tc_s[1] << 4 | spec->label_tc_s[2] >> 4,
				mask->label_tc_s[0] << 12 | mask->label_tc_s[1] << 4 | mask->label_tc_s[2] >> 4);
			break;
		}
		case RTE_FLOW_ITEM_TYPE_IPV4: {
			const struct rte_flow_item_ipv4 *spec = (const void *)item->spec, *mask = (const void *)item->mask;

			from.s_addr = spec->hdr.src_addr;
			fprintf(log, " ipv4 src=%s/%#x", inet_ntoa(from), ntohl(mask->hdr.src_addr));
			to.s_addr = spec->hdr.dst_addr;
			fprintf(log, " dst=%s/%#x proto=%u/%#x frag=%#x/%#x", inet_ntoa(to), ntohl(mask->hdr.dst_addr),
				spec->hdr.next_proto_id, mask->hdr.next_proto_id, ntohs(spec->hdr.fragment_offset),
				ntohs(mask->hdr.fragment_offset));
			break;
		}
		case RTE_FLOW_ITEM_TYPE_IPV6: {
			const struct rte_flow_item_ipv6 *spec = (const void *)item->spec, *mask = (const void *)item->mask;
			char text[INET6_ADDRSTRLEN];

			inet_ntop(AF_INET6, &spec->hdr.dst_addr, text, sizeof(text));
			fprintf(log, " ipv6 dst=%s/%#x proto=%u/%#x", text, *(const uint8_t *)&mask->hdr.dst_addr, spec->hdr.proto,
				mask->hdr.proto);
			break;
		}
		case RTE_FLOW_ITEM_TYPE_UDP: {
			const struct rte_flow_item_udp *spec = (const void *)item->spec, *mask = (const void *)item->mask;

			fprintf(log, " udp src=%u/%#x dst=%u/%#x", ntohs(spec->hdr.src_port), ntohs(mask->hdr.src_port),
				ntohs(spec->hdr.dst_port), ntohs(mask->hdr.dst_port));
			break;
		}
		case RTE_FLOW_ITEM_TYPE_TCP: {
			const struct rte_flow_item_tcp *spec = (const void *)item->spec, *mask = (const void *)item->mask;

			fprintf(log, " tcp src=%u/%#x dst=%u/%#x", ntohs(spec->hdr.src_port), ntohs(mask->hdr.src_port),
				ntohs(spec->hdr.dst_port), ntohs(mask->hdr.dst_port));
			break;
		}
		default:
			fprintf(log, " item=%d", (int)item->type);
		}
	}
	fprintf(log, "\n");
	fclose(log);
}

/* --- Rules ------------------------------------------------------------------------------------------------------------------ */

static size_t size_of(enum rte_flow_item_type type)
{
	switch (type) {
	case RTE_FLOW_ITEM_TYPE_ETH: return 14;
	case RTE_FLOW_ITEM_TYPE_VLAN: return 4;
	case RTE_FLOW_ITEM_TYPE_MPLS: return 4;
	case RTE_FLOW_ITEM_TYPE_IPV4: return 20;
	case RTE_FLOW_ITEM_TYPE_IPV6: return 40;
	case RTE_FLOW_ITEM_TYPE_TCP: return 20;
	case RTE_FLOW_ITEM_TYPE_UDP: return 8;
	case RTE_FLOW_ITEM_TYPE_SCTP: return 12;
	default: return 0;
	}
}

static int refuse(struct rte_flow_error *error, int number, const char *message)
{
	rte_flow_error_set(error, number, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL, message);
	return -number;
}

/* Parses a rule. Returns 0 or a negative errno. */
static int parse(const struct rte_flow_attr *attr, const struct rte_flow_item *items, const struct rte_flow_action *actions,
		 struct rte_flow *rule, struct rte_flow_error *error)
{
	int has_fate = 0;

	memset(rule, 0, sizeof(*rule));
	if (!attr->ingress || attr->egress || attr->transfer)
		return refuse(error, EINVAL, "ingress rules only");
	for (; items->type != RTE_FLOW_ITEM_TYPE_END; items++) {
		struct item *item = &rule->items[rule->items_len];
		size_t size = size_of(items->type);

		if (items->type == RTE_FLOW_ITEM_TYPE_VOID)
			continue;
		if (size == 0 || rule->items_len == ITEMS_MAX || items->last != NULL)
			return refuse(error, ENOTSUP, "item not supported");
		item->type = items->type;
		item->size = size;
		if (items->spec != NULL) {
			if (items->mask == NULL)
				return refuse(error, EINVAL, "a spec without a mask");
			memcpy(item->spec, items->spec, size);
			memcpy(item->mask, items->mask, size);
		}
		rule->items_len++;
	}
	for (; actions->type != RTE_FLOW_ACTION_TYPE_END; actions++) {
		switch (actions->type) {
		case RTE_FLOW_ACTION_TYPE_MARK:
			rule->mark = ((const struct rte_flow_action_mark *)actions->conf)->id;
			rule->has_mark = 1;
			if (rule->mark > MARK_MAX)
				return refuse(error, EINVAL, "mark id has 24 bits");
			break;
		case RTE_FLOW_ACTION_TYPE_QUEUE:
		case RTE_FLOW_ACTION_TYPE_RSS:
			has_fate = 1;
			break;
		default:
			return refuse(error, ENOTSUP, "action not supported");
		}
	}
	return has_fate ? 0 : refuse(error, EINVAL, "no fate of packets");
}

int rte_flow_validate(uint16_t port, const struct rte_flow_attr *attr, const struct rte_flow_item pattern[],
		      const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	struct rte_flow rule;

	(void)port;
	return parse(attr, pattern, actions, &rule, error);
}

struct rte_flow *rte_flow_create(uint16_t port, const struct rte_flow_attr *attr, const struct rte_flow_item pattern[],
				 const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	struct rte_flow rule, *to = NULL;
	size_t used = 0;

	if (has_fault("slow"))
		usleep(100000);
	if (parse(attr, pattern, actions, &rule, error) != 0)
		return NULL;
	if (has_fault("refuse"))
		return refuse(error, ENOTSUP, "this input set is not supported"), NULL;
	if (has_fault("busy"))
		return refuse(error, EBUSY, "the device resets"), NULL;
	pthread_rwlock_wrlock(&lock);
	for (size_t i = 0; i < RULES_MAX; i++) {
		if (rules[i].is_used)
			used++;
		else if (to == NULL)
			to = &rules[i];
	}
	if (to != NULL && !(used >= 2 && has_fault("full"))) {
		*to = rule;
		to->port = port;
		to->is_used = 1;
		say("create", to);
	} else {
		to = NULL;
	}
	pthread_rwlock_unlock(&lock);
	if (to == NULL)
		refuse(error, ENOSPC, "no room");
	return to;
}

int rte_flow_destroy(uint16_t port, struct rte_flow *flow, struct rte_flow_error *error)
{
	(void)port;
	if (has_fault("leak"))
		return refuse(error, EIO, "the rule cannot be removed");
	pthread_rwlock_wrlock(&lock);
	say("destroy", flow);
	if (!has_fault("keep"))
		memset(flow, 0, sizeof(*flow));
	pthread_rwlock_unlock(&lock);
	return 0;
}

int rte_flow_flush(uint16_t port, struct rte_flow_error *error)
{
	(void)error;
	pthread_rwlock_wrlock(&lock);
	for (size_t i = 0; i < RULES_MAX; i++)
		if (rules[i].port == port)
			memset(&rules[i], 0, sizeof(rules[i]));
	pthread_rwlock_unlock(&lock);
	return 0;
}

int rte_eth_rx_metadata_negotiate(uint16_t port, uint64_t *features)
{
	(void)port;
	if (has_fault("nomarks"))
		*features = 0;
	return 0;
}

/* --- Packets ---------------------------------------------------------------------------------------------------------------- */

/* Returns 1 if the packet has the headers of a rule, with these bits. */
static int matches(const struct rte_flow *rule, const uint8_t *at, size_t left, int is_blind)
{
	/* What the header before announces: an EtherType, or a protocol. */
	unsigned int type = 0, protocol = 256;

	for (size_t i = 0; i < rule->items_len; i++) {
		const struct item *item = &rule->items[i];
		size_t first = 0, step = item->size;

		if (left < item->size)
			return 0;
		switch (item->type) {
		case RTE_FLOW_ITEM_TYPE_ETH:
			type = at[12] << 8 | at[13];
			break;
		case RTE_FLOW_ITEM_TYPE_VLAN:
			if (type != 0x8100 && type != 0x88a8)
				return 0;
			type = at[2] << 8 | at[3];
			break;
		case RTE_FLOW_ITEM_TYPE_MPLS:
			if (type != 0x8847 && type != 0x8848)
				return 0;
			break;
		case RTE_FLOW_ITEM_TYPE_IPV4:
			step = 4 * (size_t)(at[0] & 15);
			if (type != 0x0800 || at[0] >> 4 != 4 || step < 20 || left < step)
				return 0;
			protocol = ((at[6] << 8 | at[7]) & 0x1fff) == 0 ? at[9] : 256;
			break;
		case RTE_FLOW_ITEM_TYPE_IPV6:
			if (type != 0x86dd || at[0] >> 4 != 6)
				return 0;
			protocol = at[6];
			break;
		default:
			if (protocol != (item->type == RTE_FLOW_ITEM_TYPE_TCP ? 6u : item->type == RTE_FLOW_ITEM_TYPE_UDP ? 17u : 132u))
				return 0;
			first = is_blind ? 2 : 0;
		}
		for (size_t byte = first; byte < item->size; byte++)
			if ((at[byte] ^ item->spec[byte]) & item->mask[byte])
				return 0;
		at += step;
		left -= step;
	}
	return 1;
}

/* Returns a hash that both directions of a flow have, and all packets of a flow: of addresses, not of ports. */
static uint32_t hash_of(const uint8_t *at, size_t left)
{
	uint32_t sum = 0x9e3779b9;

	for (size_t byte = 14; byte < 54 && byte < left; byte += 1) {
		/* Sums of the bytes of an address do not depend on the order of two addresses. */
		if (byte >= 26 && byte < 34)
			sum += 0x01000193u * (uint32_t)(at[byte] + 1);
	}
	return sum;
}

static uint16_t receive(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t len, uint16_t max, void *user)
{
	int loses, is_wrong, is_blind, ignores;
	static uint32_t count;
	uint32_t other = 0;

	(void)queue;
	(void)max;
	(void)user;
	if (len == 0)
		return 0;
	loses = has_fault("lose");
	is_wrong = has_fault("wrong");
	is_blind = has_fault("blind");
	ignores = has_fault("ignore");
	pthread_rwlock_rdlock(&lock);
	for (uint16_t i = 0; i < len; i++) {
		struct rte_mbuf *packet = pkts[i];
		const uint8_t *at = rte_pktmbuf_mtod(packet, const uint8_t *);

		packet->ol_flags &= ~RTE_MBUF_F_RX_FDIR_ID;
		packet->ol_flags |= RTE_MBUF_F_RX_RSS_HASH;
		packet->hash.rss = hash_of(at, packet->data_len);
		for (size_t r = 0; r < RULES_MAX && !loses && !ignores; r++) {
			if (!rules[r].is_used || rules[r].port != port || !rules[r].has_mark)
				continue;
			if (!matches(&rules[r], at, packet->data_len, is_blind)) {
				other = rules[r].mark;
				continue;
			}
			packet->ol_flags |= RTE_MBUF_F_RX_FDIR | RTE_MBUF_F_RX_FDIR_ID;
			packet->hash.fdir.hi = is_wrong && other != 0 && ++count % 2 == 0 ? other : rules[r].mark;
			break;
		}
	}
	pthread_rwlock_unlock(&lock);
	return len;
}

int rte_eth_dev_start(uint16_t port)
{
	int (*start)(uint16_t) = (int (*)(uint16_t))dlsym(RTLD_NEXT, "rte_eth_dev_start");
	static uint8_t has_callbacks[RTE_MAX_ETHPORTS];
	struct rte_eth_dev_info info;

	if (!has_callbacks[port] && rte_eth_dev_info_get(port, &info) == 0) {
		for (uint16_t queue = 0; queue < info.nb_rx_queues; queue++)
			rte_eth_add_rx_callback(port, queue, receive, NULL);
		has_callbacks[port] = 1;
	}
	return start(port);
}
