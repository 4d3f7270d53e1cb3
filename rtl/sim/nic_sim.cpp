// The simulator of the RTL: reads records on standard input, drives the Verilator model, writes records to standard output.
// docs/nic-interface.md, "Records of a simulator", has the format. The program knows no protocol, and judges nothing but
// what the registers read as at the end.
//
//   nic_sim_ten                        records in, records out
//   nic_sim_ten --wire GBPS MHZ COUNT  sends the frames of the input in turn, COUNT in all, at wire rate and without looking
//                                      at `rx_room`; each queue always has buffers. Writes one line of figures.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <deque>
#include <map>
#include <utility>
#include <unistd.h>
#include "verilated.h"
#include "verilated_cov.h"
#ifdef FORTY
#include "Vnic_forty.h"
#include "Vnic_forty___024root.h"
using Top = Vnic_forty;
#define ROWS nic_forty__DOT__core__DOT__tables__DOT__exact__DOT__rows__DOT__words
static const int WIDTH = 512, ROW_BITS = 14, BANKS = 8, RULES = 64;
#else
#include "Vnic_ten.h"
#include "Vnic_ten___024root.h"
#ifdef MUTATION
#include "Vnic_ten_nic_mutation.h"
#endif
using Top = Vnic_ten;
#define ROWS nic_ten__DOT__core__DOT__tables__DOT__exact__DOT__rows__DOT__words
static const int WIDTH = 128, ROW_BITS = 9, BANKS = 4, RULES = 32;
#endif

static const int BYTES = WIDTH / 8, QUEUES = 32, RING = 256;
enum { FRAME = 1, COMMAND, BUFFERS, TAKE, STALL, FLIP, CONFIG, END, SYNC };
enum { COMPLETION = 0x81, DROP, COMMAND_COMPLETION, COUNT, SYNCED };
static const int COUNT_FIFO_FULL = 1, OP_READ_COUNT = 10, CONTROL = 0x18;

static Top top;
static uint64_t cycles, stalls[QUEUES], random_state = 88172645463325252ull;
static bool automatic, hides_commands;
static uint64_t received, dropped, count_value, beats_lost;
static std::deque<uint64_t> arrivals;
static uint64_t latency_max;
static std::string out;

static uint64_t random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static void put(uint8_t kind, const std::vector<uint8_t>& body) {
    uint32_t length = body.size() + 1;
    out.append(reinterpret_cast<char*>(&length), 4);
    out.push_back(kind);
    out.append(body.begin(), body.end());
    if (out.size() > 1 << 16) {
        fwrite(out.data(), 1, out.size(), stdout);
        out.clear();
    }
}

template <typename Wide> static std::vector<uint8_t> bytes_of(const Wide& wide, int size) {
    std::vector<uint8_t> bytes(size);
    for (int i = 0; i < size; i++) bytes[i] = wide[i / 4] >> 8 * (i % 4);
    return bytes;
}

// One cycle: outputs are taken as they are before its edge.
static void tick() {
    top.tx_ready = stalls[top.tx_queue] <= cycles;
    top.completion_ready = stalls[top.completion_queue] <= cycles;
    top.command_completion_ready = 1;
    top.now = 0;
    top.clk = 0;
    top.eval();
    int returned = -1;
    if (top.completion_valid && top.completion_ready) {
        std::vector<uint8_t> body = bytes_of(top.completion, 32);
        body.insert(body.begin(), top.completion_queue);
        if (automatic) returned = top.completion_queue;
        else put(COMPLETION, body);
        received++;
    }
    if (top.dropped) {
        if (!automatic) put(DROP, {top.dropped_counter, top.dropped_queue});
        dropped++;
    }
    if (automatic && !arrivals.empty() && (returned >= 0 || top.dropped)) {
        uint64_t latency = cycles - arrivals.front();
        if (latency > latency_max) latency_max = latency;
        arrivals.pop_front();
    }
    if (top.rx_dropped) {
        if (!automatic) put(DROP, {COUNT_FIFO_FULL, 0});
        beats_lost++;
        if (automatic && !arrivals.empty()) arrivals.pop_back();
    }
    if (top.command_completion_valid) {
        count_value = top.command_completion[2] | uint64_t(top.command_completion[3]) << 32;
        if (!hides_commands) put(COMMAND_COMPLETION, bytes_of(top.command_completion, 16));
    }
    bool command_done = top.command_ready;
    top.clk = 1;
    top.eval();
    cycles++;
    if (command_done) top.command_valid = 0;
    top.rx_valid = 0;
    top.post_valid = 0;
    top.take_valid = 0;
    top.register_write = 0;
    if (returned >= 0) {
        // A driver without work of its own: the buffer is free again at once.
        top.post_valid = 1;
        top.post_queue = returned;
        top.take_valid = 1;
        top.take_queue = returned;
        top.take_number = 1;
    }
}

static void idle(uint64_t number) {
    while (number--) tick();
}

// A core that is not enabled is quiet.
static void wait_quiet() {
    for (int calm = 0, waited = 0; calm < 6; waited++) {
        tick();
        calm = (top.quiet || !top.ready) && !top.command_valid ? calm + 1 : 0;
        if (waited > 10'000'000) {
            fprintf(stderr, "nic_sim: the core is not quiet after 10,000,000 cycles\n");
            exit(3);
        }
    }
}

// `empty_end`: a frame that fills its last beat is ended by one without bytes.
static void send_frame(const uint8_t* bytes, size_t size, int port, bool bad_fcs, bool pauses, bool empty_end) {
    size_t at = 0;
    bool ended = false;
    while (!ended) {
        size_t here = size - at < size_t(BYTES) ? size - at : BYTES;
        uint8_t beat[BYTES] = {};
        memcpy(beat, bytes + at, here);
        while (pauses && random_number() % 4 == 0) tick();
        for (int word = 0; word < BYTES / 4; word++) {
            const uint8_t* b = beat + BYTES - 4 - 4 * word;
            top.rx_data[word] = uint32_t(b[0]) << 24 | b[1] << 16 | b[2] << 8 | b[3];
        }
        at += here;
        ended = at == size && !(empty_end && here == size_t(BYTES));
        top.rx_valid = 1;
        top.rx_last = ended;
        top.rx_bytes = here;
        top.rx_bad_fcs = bad_fcs;
        top.rx_port = port;
        tick();
    }
}

static void send_command(const uint8_t* bytes) {
    while (top.command_valid) tick();
    memcpy(&top.command[0], bytes, 64);
    top.command_valid = 1;
    // The command has its place when the marker is taken, which the core shows before the edge.
    for (bool accepted = false; !accepted;) {
        top.clk = 0;
        top.eval();
        accepted = top.command_accepted;
        tick();
    }
}

static uint64_t read_count(int counter, int queue) {
    uint8_t command[64] = {};
    command[0] = OP_READ_COUNT;
    command[1] = counter;
    command[2] = queue;
    send_command(command);
    while (top.command_valid) tick();
    return count_value;
}

// The registers that the driver wrote, by offset.
static std::map<int, uint32_t> written;

static void configure(uint16_t offset, uint32_t value) {
    written[offset] = value;
    top.register_write = 1;
    top.register_offset = offset;
    top.register_value = value;
    tick();
    if (offset == CONTROL && value & 1)
        while (!top.ready) tick();
}

static uint32_t read_register(int offset) {
    top.register_offset = offset;
    do {
        top.register_read = 1;
        tick();
    } while (!top.register_done);
    uint32_t value = top.register_result;
    top.register_read = 0;
    tick();
    return value;
}

static uint64_t read_long(int offset) {
    uint64_t low = read_register(offset);
    return low | uint64_t(read_register(offset + 4)) << 32;
}

// Compares the registers with what they must read as: constants, what was written, and the counters of READ_COUNT.
static bool registers_are_right() {
    bool right = true;
    auto expect = [&](int offset, uint64_t found, uint64_t expected) {
        if (found == expected) return;
        fprintf(stderr, "nic_sim: register 0x%x reads as 0x%llx, expected 0x%llx\n", offset, (unsigned long long)found, (unsigned long long)expected);
        right = false;
    };
    const std::pair<int, uint32_t> constants[] = {
        {0x000, 0x434e524d}, {0x004, 0x00010001}, {0x008, QUEUES | BANKS << 8 | RULES << 16}, {0x00c, ROW_BITS | 4 << 8},
        {0x010, 4}, {0x014, 1}, {0x018, 1}, {0x01c, 0}, {0x0cc, 0}, {0xffc, 0}};
    for (auto [offset, expected] : constants) expect(offset, read_register(offset), expected);
    // Keys are secret, TPIDs and tunnel ports are not; each register has the bits of its fields.
    for (int offset = 0x020; offset < 0x090; offset += 4) expect(offset, read_register(offset), 0);
    for (int offset = 0x090; offset < 0x0c0; offset += 4) expect(offset, read_register(offset), written.count(offset) ? written[offset] : 0);
    uint64_t before = read_long(0x0c0), after = read_long(0x0c0);
    if (before >= after) expect(0x0c0, after, before + 1);
    expect(0x0c8, read_register(0x0c8), read_register(0x0c8));
    for (int counter = 0; counter < 6; counter++) expect(0x100 + 8 * counter, read_long(0x100 + 8 * counter), read_count(counter, 0));
    for (int queue = 0; queue < QUEUES; queue++) expect(0x180 + 8 * queue, read_long(0x180 + 8 * queue), read_count(6, queue));
    return right;
}

static void post(int queue, uint16_t buffer) {
    top.post_valid = 1;
    top.post_queue = queue;
    top.post_buffer = buffer;
    tick();
}

static void write_out() {
    fwrite(out.data(), 1, out.size(), stdout);
    fflush(stdout);
    out.clear();
#if VM_COVERAGE
    if (const char* file = getenv("NIC_SIM_COVERAGE")) VerilatedCov::write(file);
#endif
}

static int run_wire(const std::vector<std::vector<uint8_t>>& frames, double gbps, double mhz, uint64_t count) {
    automatic = hides_commands = true;
    for (int queue = 0; queue < QUEUES; queue++)
        for (int buffer = 0; buffer < RING; buffer++) post(queue, buffer);
    uint64_t begun = cycles;
    double due = cycles;
    for (uint64_t i = 0; i < count; i++) {
        const std::vector<uint8_t>& body = frames[i % frames.size()];
        size_t size = body.size() - 4;
        while (double(cycles) < due) tick();
        arrivals.push_back(cycles);
        send_frame(&body[4], size, body[0], false, false, false);
        // FCS, preamble and the gap between frames are 24 bytes.
        due += (size + 24) * 8.0 / gbps * mhz / 1000.0;
    }
    uint64_t sending = cycles - begun;
    wait_quiet();
    uint64_t core_drops = dropped;
    printf("{\"frames\": %llu, \"received\": %llu, \"dropped_by_queues\": %llu, \"dropped_by_core\": %llu, \"cycles\": %llu, \"latency_max\": %llu}\n",
           (unsigned long long)count, (unsigned long long)received, (unsigned long long)core_drops,
           (unsigned long long)beats_lost, (unsigned long long)sending, (unsigned long long)latency_max);
    write_out();
    return 0;
}

int main(int argc, char** argv) {
    bool wire = argc == 5 && !strcmp(argv[1], "--wire");
    if (argc != 1 && !wire) {
        fprintf(stderr, "usage: %s [--wire GBPS MHZ COUNT] < records\n", argv[0]);
        return 2;
    }
#ifdef MUTATION
    // `check.py mutation` builds all mutants in one program.
    if (const char* number = getenv("NIC_SIM_MUTATION")) top.rootp->__PVT__nic_mutation->number = atoi(number);
#endif
    std::vector<std::vector<uint8_t>> frames;
    top.reset = 1;
    idle(4);
    top.reset = 0;
    uint32_t length;
    while (fread(&length, 4, 1, stdin) == 1) {
        if (length == 0 || length > 16384) {
            fprintf(stderr, "nic_sim: a record has length %u, expected 1 to 16384\n", length);
            return 2;
        }
        std::vector<uint8_t> record(length);
        if (fread(record.data(), 1, length, stdin) != length) return 2;
        const uint8_t* b = record.data() + 1;
        size_t size = length - 1;
        auto half = [&](int at) { return uint16_t(b[at] | b[at + 1] << 8); };
        auto word = [&](int at) { return uint32_t(half(at)) | uint32_t(half(at + 2)) << 16; };
        switch (record[0]) {
            case FRAME:
                if (wire) {
                    frames.emplace_back(b, b + size);
                    break;
                }
                idle(half(2) & 0x3fff);
                while (!top.rx_room) tick();
                send_frame(b + 4, size - 4, b[0], b[1] & 1, half(2) >> 15, half(2) >> 14 & 1);
                break;
            case COMMAND: idle(half(0)); send_command(b + 2); break;
            case BUFFERS:
                wait_quiet();
                for (size_t at = 1; at + 1 < size; at += 2) post(b[0], half(at));
                break;
            case TAKE:
                wait_quiet();
                top.take_valid = 1;
                top.take_queue = b[0];
                top.take_number = half(1);
                tick();
                break;
            case STALL: stalls[b[0] % QUEUES] = cycles + half(1); break;
            case FLIP:
                wait_quiet();
                if (b[0] < 4 && word(1) < 1u << ROW_BITS && half(5) < 576)
                    top.rootp->ROWS[uint32_t(b[0]) << ROW_BITS | word(1)][half(5) / 32] ^= 1u << half(5) % 32;
                break;
            case CONFIG: configure(half(0), word(2)); break;
            case SYNC:
                wait_quiet();
                put(SYNCED, {b[0], b[1], b[2], b[3]});
                write_out();
                break;
            case END: {
                if (wire) return run_wire(frames, atof(argv[2]), atof(argv[3]), strtoull(argv[4], nullptr, 10));
                wait_quiet();
                hides_commands = true;
                for (int counter = 0; counter < 8; counter++)
                    for (int queue = 0; queue < (counter >= 6 ? QUEUES : 1); queue++) {
                        uint64_t value = read_count(counter, queue);
                        std::vector<uint8_t> body = {uint8_t(counter), uint8_t(queue)};
                        for (int i = 0; i < 8; i++) body.push_back(value >> 8 * i);
                        put(COUNT, body);
                    }
                bool right = registers_are_right();
                write_out();
                return right ? 0 : 3;
            }
            default: fprintf(stderr, "nic_sim: unknown record type %u\n", record[0]); return 2;
        }
    }
    write_out();
    return 0;
}
