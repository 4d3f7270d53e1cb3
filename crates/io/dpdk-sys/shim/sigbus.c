/* The SIGBUS handler for truncated shared memory.
 *
 * If a peer of a vhost-user or memif port truncates the file of the memory that it shares with the switch, the next access raises
 * SIGBUS, in whichever worker makes it. Instead of ending the switch, the handler replaces that mapping, from the faulting page on, by
 * private memory of zeros. The peer's port is then unusable until the peer connects again and shares new memory; the driver
 * unmaps the replacement as it would have unmapped the file.
 *
 * Several workers may access the same mapping at once. The first worker replaces it; the others find private memory there and
 * repeat their accesses.
 *
 * The handler replaces only shared writable mappings that are not DPDK's own memory; any other SIGBUS ends the process as before. It
 * uses only functions that are safe in a signal handler: system calls, and a lookup of DPDK that takes no lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <rte_memory.h>

static struct sigaction before;

/* A reader of /proc/self/maps, byte by byte: the buffer is small because the stack may be. */
struct maps {
	int file;
	ssize_t len;
	ssize_t at;
	char bytes[512];
};

static int next_byte(struct maps *maps)
{
	if (maps->at == maps->len) {
		maps->len = read(maps->file, maps->bytes, sizeof(maps->bytes));
		maps->at = 0;
		if (maps->len <= 0) {
			maps->len = 0;
			return -1;
		}
	}
	return maps->bytes[maps->at++];
}

/* Reads a hexadecimal number, and the byte after it. */
static uintptr_t next_number(struct maps *maps, int *end)
{
	uintptr_t number = 0;

	for (;;) {
		int byte = next_byte(maps);

		if (byte >= '0' && byte <= '9')
			number = number << 4 | (uintptr_t)(byte - '0');
		else if (byte >= 'a' && byte <= 'f')
			number = number << 4 | (uintptr_t)(byte - 'a' + 10);
		else {
			*end = byte;
			return number;
		}
	}
}

enum kind {
	/* Shared and writable: the memory of a peer. */
	SHARED,
	/* Private, writable and without a file: perhaps the replacement of a shared mapping. */
	REPLACED,
	OTHER,
	/* There is no mapping, or it changed while the list was read. */
	NONE,
};

/* Returns the kind of the mapping that contains an address, and its end. */
static enum kind find(uintptr_t address, uintptr_t *found)
{
	/* A line has the form: start-end rw-s offset major:minor inode ... */
	struct maps maps = { .file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC) };
	enum kind kind = NONE;

	if (maps.file < 0)
		return NONE;
	for (;;) {
		int byte;
		uintptr_t start = next_number(&maps, &byte), end;
		char rights[4] = { 0 };

		if (byte != '-')
			break;
		end = next_number(&maps, &byte);
		for (size_t i = 0; i < sizeof(rights); i++)
			rights[i] = (char)next_byte(&maps);
		if (start <= address && address < end) {
			uintptr_t file;

			next_byte(&maps);
			next_number(&maps, &byte);
			file = next_number(&maps, &byte);
			file |= next_number(&maps, &byte);
			file |= next_number(&maps, &byte);
			*found = end;
			if (memcmp(rights, "rw-s", sizeof(rights)) == 0)
				kind = SHARED;
			else if (memcmp(rights, "rw-p", sizeof(rights)) == 0 && byte != -1 && file == 0)
				kind = REPLACED;
			else
				kind = OTHER;
			break;
		}
		do
			byte = next_byte(&maps);
		while (byte != '\n' && byte != -1);
		if (byte == -1)
			break;
	}
	close(maps.file);
	return kind;
}

/* Returns 0 if an access to the address would fault again, as for private memory that cannot be read from swap. */
static int is_readable(const void *address)
{
	char byte;
	struct iovec into = { .iov_base = &byte, .iov_len = 1 };
	struct iovec from = { .iov_base = (void *)(uintptr_t)address, .iov_len = 1 };

	return process_vm_readv(getpid(), &into, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

/* Replaces the mapping from the page of an address on. Huge pages are replaced as a whole. */
static int replace(uintptr_t address, uintptr_t end)
{
	static const uintptr_t pages[] = { 4096, (uintptr_t)2 << 20, (uintptr_t)1 << 30 };

	for (size_t i = 0; i < RTE_DIM(pages); i++) {
		uintptr_t start = address & ~(pages[i] - 1);
		void *at = mmap((void *)start, end - start, PROT_READ | PROT_WRITE,
				MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at != MAP_FAILED)
			return 1;
		if (errno != EINVAL)
			return 0;
	}
	return 0;
}

static void on_bus_error(int signal, siginfo_t *info, void *context)
{
	static const char message[] = "a peer truncated its shared memory; its port is unusable until it connects again\n";
	const int saved_errno = errno;
	const uintptr_t address = (uintptr_t)info->si_addr;
	enum kind kind = OTHER;
	uintptr_t end = 0;

	(void)context;
	if (info->si_code == BUS_ADRERR && rte_mem_virt2memseg_list(info->si_addr) == NULL)
		kind = find(address, &end);
	if (kind == SHARED && replace(address, end)) {
		ssize_t written = write(STDERR_FILENO, message, sizeof(message) - 1);

		(void)written;
		errno = saved_errno;
		return;
	}
	/* Another thread has replaced the same memory: returning repeats the access. */
	if ((kind == REPLACED || kind == NONE) && is_readable(info->si_addr)) {
		errno = saved_errno;
		return;
	}
	/* Returning repeats the access, and the previous handler then receives the signal. */
	sigaction(signal, &before, NULL);
	errno = saved_errno;
}

int shim_handle_sigbus(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_bus_error;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	sigemptyset(&action.sa_mask);
	return sigaction(SIGBUS, &action, &before) == 0 ? 0 : -errno;
}
