// The core of the NIC: everything between a MAC and the DMA of a shell. It classifies frames, marks those that an entry
// matches, and gives each to one of 32 queues. docs/nic-interface.md specifies it; docs/smart-nic-rtl.md describes the parts.
//
//   rx --> ingress --+-> parser --> classifier --> dispatcher --> tx, completions
//                    |     ^           ^  tables      ^
//                    |     | order     |              |
//   commands --------+-> sequencer ----+--------------+---------> completions of commands
//   registers ---------------> keys, TPIDs, tunnel ports
//
// The two configurations of the issue are tops of their own: nic_ten.sv and nic_forty.sv.
//
// Guarantees: frames of one queue leave in the order in which they arrived; each frame that `rx_room` welcomed gives one
// completion or one drop; a command takes effect between two frames.

`default_nettype none

module nic_core #(
    parameter WIDTH = 128,
    parameter ENGINES = 3,
    parameter MIXERS = 1,
    parameter PERIOD = 5,
    parameter ROW_BITS = 9,
    parameter RULES_LOG2 = 5,
    parameter BANKS_LOG2 = 2,
    parameter PORTS = 4,
    parameter FRAMES_LOG2 = 11,
    parameter HEADS_LOG2 = 9
) (
    input  wire             clk,
    input  wire             reset,
    input  wire [31:0]      now,              // ns
    // Registers.
    input  wire             register_write,
    input  wire [11:0]      register_offset,  // of a write and of a read
    input  wire [31:0]      register_value,
    input  wire             register_read,
    output wire             register_done,
    output wire [31:0]      register_result,
    // Frames from the MAC, without FCS.
    input  wire             rx_valid,
    input  wire [WIDTH-1:0] rx_data,
    input  wire             rx_last,
    input  wire [6:0]       rx_bytes,
    input  wire             rx_bad_fcs,
    input  wire [3:0]       rx_port,
    output wire             rx_room,
    output wire             rx_dropped,
    // Commands, held until `command_ready`.
    input  wire             command_valid,
    input  wire [511:0]     command,
    output wire             command_accepted, // its place in the order of frames is fixed
    output wire             command_ready,
    output wire             command_completion_valid,
    input  wire             command_completion_ready,
    output wire [127:0]     command_completion,
    // Free buffers and read completions.
    input  wire             post_valid,
    input  wire [4:0]       post_queue,
    input  wire [15:0]      post_buffer,
    input  wire             take_valid,
    input  wire [4:0]       take_queue,
    input  wire [15:0]      take_number,
    // Frames to queues.
    output wire             tx_valid,
    input  wire             tx_ready,
    output wire [WIDTH-1:0] tx_data,
    output wire             tx_last,
    output wire [4:0]       tx_queue,
    output wire [15:0]      tx_buffer,
    output wire             completion_valid,
    input  wire             completion_ready,
    output wire [4:0]       completion_queue,
    output wire [255:0]     completion,
    output wire             dropped,
    output wire [2:0]       dropped_counter,
    output wire [4:0]       dropped_queue,
    output wire             ready,
    output wire             quiet             // nothing is inside
);
    localparam TAIL = 319;

    // ---- Registers ----
    wire core_reset;
    wire [383:0] flow_keys;
    wire [511:0] table_keys;
    wire [67:0] tpids;
    wire [151:0] tunnels;
    wire [31:0] generation;
    wire [2:0] register_counter, command_counter;
    wire [4:0] register_count_queue, command_count_queue;
    wire command_counts;
    wire count_ready;
    wire [63:0] count_value;
    registers #(
        .BANKS(1 << BANKS_LOG2), .RULES(1 << RULES_LOG2), .ROW_BITS(ROW_BITS), .PORTS(PORTS)
    ) register_file (
        .clk(clk), .reset(reset), .write(register_write), .write_offset(register_offset), .write_value(register_value),
        .read(register_read), .read_offset(register_offset), .read_done(register_done), .read_value(register_result),
        .core_reset(core_reset), .flow_keys(flow_keys), .table_keys(table_keys), .tpids(tpids), .tunnels(tunnels),
        .ready(ready), .generation(generation), .count_counter(register_counter), .count_queue(register_count_queue),
        .count_ready(count_ready && !command_counts), .count_value(count_value)
    );
    // Frames are received from the first that begins while the core is ready.
    wire sequencer_ready;
    assign ready = sequencer_ready && !core_reset;
    reg rx_inside, rx_open;
    wire rx_taken = rx_inside ? rx_open : ready;
    always @(posedge clk) begin
        if (reset) rx_inside <= 1'b0;
        else if (rx_valid) rx_inside <= !rx_last;
        if (rx_valid && !rx_inside) rx_open <= ready;
        if (core_reset) rx_open <= 1'b0;
    end

    // ---- Ingress ----
    wire head_valid, head_first, head_last, head_longer, head_marker, head_pop;
    wire [WIDTH-1:0] head_data, frame_data;
    wire [7:0] head_size;
    wire [3:0] head_port;
    wire end_valid, end_bad_fcs, end_bad_length, end_pop, frame_valid, frame_pop;
    wire [13:0] end_length;
    wire [31:0] end_time;
    reg marked;                               // the command has its place
    wire marker_ready, rx_holds;
    assign command_accepted = command_valid && ready && !marked && marker_ready;
    ingress #(.WIDTH(WIDTH), .FRAMES_LOG2(FRAMES_LOG2), .HEADS_LOG2(HEADS_LOG2)) entry (
        .clk(clk), .reset(core_reset), .now(now), .rx_valid(rx_valid && rx_taken), .rx_data(rx_data), .rx_last(rx_last),
        .rx_bytes(rx_bytes), .rx_bad_fcs(rx_bad_fcs), .rx_port(rx_port), .rx_room(rx_room), .rx_holds(rx_holds),
        .rx_dropped(rx_dropped), .marker_valid(command_valid && ready && !marked), .marker_ready(marker_ready),
        .head_valid(head_valid), .head_data(head_data), .head_first(head_first), .head_last(head_last),
        .head_size(head_size), .head_longer(head_longer), .head_port(head_port), .head_marker(head_marker),
        .head_pop(head_pop), .end_valid(end_valid), .end_length(end_length), .end_bad_fcs(end_bad_fcs),
        .end_bad_length(end_bad_length), .end_time(end_time), .end_pop(end_pop), .frame_valid(frame_valid),
        .frame_data(frame_data), .frame_pop(frame_pop)
    );

    // ---- Parser ----
    wire result_valid, result_take, command_next, command_done;
    wire [95:0] result_ethernet;
    wire [255:0] result_addresses, result_ends;
    wire [TAIL-1:0] result_tail;
    wire [3:0] result_port;
    parser #(.WIDTH(WIDTH), .ENGINES(ENGINES), .TAIL(TAIL)) headers (
        .clk(clk), .reset(core_reset), .tpids(tpids), .tunnels(tunnels), .head_valid(head_valid), .head_data(head_data),
        .head_first(head_first), .head_last(head_last), .head_size(head_size), .head_longer(head_longer),
        .head_port(head_port), .head_marker(head_marker), .head_pop(head_pop), .end_valid(end_valid), .end_pop(end_pop),
        .result_valid(result_valid), .result_ethernet(result_ethernet), .result_addresses(result_addresses),
        .result_ends(result_ends), .result_tail(result_tail), .result_port(result_port), .result_take(result_take),
        .command_next(command_next), .command_done(command_done)
    );

    // The result waits in a register until the classifier takes it.
    reg field_valid;
    wire field_enter;
    assign result_take = result_valid && (!field_valid || field_enter);
    reg [95:0] ethernet;
    reg [255:0] addresses, flow_ends;
    reg [TAIL-1:0] tail;
    reg [3:0] port;
    reg [13:0] length;
    reg [31:0] arrival;
    reg [1:0] bad;
    always @(posedge clk) begin
        if (field_enter) field_valid <= 1'b0;
        if (result_take) begin
            field_valid <= 1'b1;
            ethernet <= result_ethernet;
            addresses <= result_addresses;
            flow_ends <= result_ends;
            tail <= result_tail;
            port <= result_port;
            length <= end_length;
            arrival <= end_time;
            bad <= end_bad_fcs ? 2'd1 : end_bad_length ? 2'd2 : 2'd0;
        end
        if (core_reset) field_valid <= 1'b0;
    end
    wire complete, flow_v6, key_v6, sum_good;
    wire [63:0] network;
    wire [15:0] flow_kind, eth_type, tci;
    wire [31:0] flow_ports, ports;
    wire [7:0] ip_proto, ip_class, layers;
    wire [11:0] tcp_flags;
    wire [23:0] mpls, isid;
    wire [6:0] l3, l4, inner_l3, inner_l4;
    wire [4:0] tags, labels;
    wire [16:0] ip_end;
    assign {complete, network, flow_kind, flow_v6, flow_ports, eth_type, tci, ip_proto, ip_class, ports, tcp_flags, mpls,
            isid, layers, key_v6, l3, l4, inner_l3, inner_l4, tags, labels, ip_end, sum_good} = tail;
    wire has_ip = layers[0];
    wire truncated = ip_end > {3'd0, length};
    wire [127:0] source = has_ip ? addresses[255:128] : 128'd0;
    wire [127:0] destination = has_ip ? addresses[127:0] : 128'd0;
    wire [511:0] key = {4'd0, tcp_flags, isid, mpls,
                        ip_class, ip_proto, layers, {4'd0, port}, ports[15:0], ports[31:16],
                        destination[63:0], destination[127:64], source[63:0], source[127:64],
                        tci, ethernet[47:0], eth_type, ethernet[95:48]};
    wire [7:0] kind = {1'b0, layers[7], layers[6] && !layers[7], layers[4], layers[3], layers[2], has_ip && key_v6,
                       has_ip && !key_v6};
    wire [511:0] mask;
    wire [3:0] form;

    // ---- Classifier ----
    localparam INFO = 2 + 14 + 32 + 56 + 3;
    wire descriptor_valid, descriptor_drop, descriptor_pop, classifier_idle;
    wire [INFO-1:0] descriptor_info;
    wire [31:0] descriptor_hash, descriptor_mark;
    wire [4:0] descriptor_queue;
    wire [3:0] descriptor_class;
    wire [2:0] parity_errors;
    wire write_row, write_rule, clear_rule, write_rule_busy, write_bucket, commit;
    wire [ROW_BITS+1:0] write_row_at;
    wire [575:0] write_row_data;
    wire [RULES_LOG2-1:0] write_rule_at;
    wire [255:0] write_rule_value, write_rule_mask;
    wire [42:0] write_rule_action;
    wire [9:0] write_bucket_at;
    wire [4:0] write_bucket_queue;
    classifier #(
        .MIXERS(MIXERS), .PERIOD(PERIOD), .ROW_BITS(ROW_BITS), .RULES_LOG2(RULES_LOG2), .INFO(INFO)
    ) tables (
        .clk(clk), .reset(core_reset), .flow_keys(flow_keys), .table_keys(table_keys), .valid(field_valid),
        .enter(field_enter), .lookup(complete && form != 0 && bad == 0), .truncated(truncated), .key(key), .mask(mask),
        .form(form), .flow_is_ipv6(flow_v6), .flow_ends(flow_ends), .flow_ports(flow_ports), .flow_kind(flow_kind),
        .flow_network(network),
        .info({bad, length, arrival, {3'd0, labels}, {3'd0, tags}, kind, {1'b0, inner_l4}, {1'b0, inner_l3}, {1'b0, l4},
               {1'b0, l3}, truncated, sum_good, complete}),
        .descriptor_valid(descriptor_valid), .descriptor_info(descriptor_info), .descriptor_hash(descriptor_hash),
        .descriptor_mark(descriptor_mark), .descriptor_queue(descriptor_queue), .descriptor_class(descriptor_class),
        .descriptor_drop(descriptor_drop), .descriptor_pop(descriptor_pop), .idle(classifier_idle),
        .parity_errors(parity_errors), .write_row(write_row), .write_row_at(write_row_at),
        .write_row_data(write_row_data), .write_rule(write_rule), .clear_rule(clear_rule),
        .write_rule_at(write_rule_at), .write_rule_value(write_rule_value), .write_rule_mask(write_rule_mask),
        .write_rule_action(write_rule_action), .write_rule_busy(write_rule_busy), .write_bucket(write_bucket),
        .write_bucket_at(write_bucket_at), .write_bucket_queue(write_bucket_queue), .commit(commit)
    );

    // ---- Dispatcher ----
    wire [1:0] descriptor_bad;
    wire [13:0] descriptor_length;
    wire [31:0] descriptor_time;
    wire [55:0] descriptor_offsets;
    wire descriptor_truncated, descriptor_sum_good, descriptor_complete;
    assign {descriptor_bad, descriptor_length, descriptor_time, descriptor_offsets, descriptor_truncated,
            descriptor_sum_good, descriptor_complete} = descriptor_info;
    wire [15:0] flags = millrace_nic_pkg::FLAG_HASH
                      | (descriptor_mark != 0 ? millrace_nic_pkg::FLAG_MARK : 16'd0)
                      | (descriptor_complete ? millrace_nic_pkg::FLAG_COMPLETE : 16'd0)
                      | (descriptor_sum_good ? millrace_nic_pkg::FLAG_IP_CHECKSUM : 16'd0)
                      | (descriptor_truncated ? millrace_nic_pkg::FLAG_TRUNCATED : 16'd0);
    wire dispatcher_idle, received, clear_queues, fence_check, fence_send, fence_room, fence_sent;
    wire [4:0] clear_queue, fence_queue;
    wire [31:0] fence_number;
    dispatcher #(.WIDTH(WIDTH)) queues (
        .clk(clk), .reset(core_reset), .clear(clear_queues), .clear_queue(clear_queue), .generation(generation),
        .descriptor_valid(descriptor_valid), .descriptor_bad(descriptor_bad), .descriptor_drop(descriptor_drop),
        .descriptor_queue(descriptor_queue), .descriptor_length(descriptor_length),
        .descriptor_info({descriptor_time, {4'd0, descriptor_class}, descriptor_offsets, flags, descriptor_hash,
                          descriptor_mark}),
        .descriptor_pop(descriptor_pop), .frame_valid(frame_valid), .frame_data(frame_data), .frame_pop(frame_pop),
        .post_valid(post_valid && ready), .post_queue(post_queue), .post_buffer(post_buffer), .take_valid(take_valid),
        .take_queue(take_queue), .take_number(take_number), .tx_valid(tx_valid), .tx_ready(tx_ready), .tx_data(tx_data),
        .tx_last(tx_last), .tx_queue(tx_queue), .tx_buffer(tx_buffer), .completion_valid(completion_valid),
        .completion_ready(completion_ready), .completion_queue(completion_queue), .completion(completion),
        .dropped(dropped), .dropped_counter(dropped_counter), .dropped_queue(dropped_queue), .received(received),
        .idle(dispatcher_idle), .fence_check(fence_check), .fence_queue(fence_queue), .fence_room(fence_room),
        .fence_send(fence_send), .fence_number(fence_number), .fence_sent(fence_sent)
    );

    // ---- Sequencer ----
    wire nothing_under_way = !field_valid && classifier_idle && dispatcher_idle;
    assign command_ready = command_done;
    always @(posedge clk) begin
        if (core_reset || command_done) marked <= 1'b0;
        else if (command_accepted) marked <= 1'b1;
    end
    sequencer #(.ROW_BITS(ROW_BITS), .RULES_LOG2(RULES_LOG2), .BANKS_LOG2(BANKS_LOG2), .PORTS(PORTS)) control (
        .clk(clk), .reset(core_reset), .ready(sequencer_ready), .go(command_next && nothing_under_way),
        .done(command_done), .command(command), .completion_valid(command_completion_valid),
        .completion_ready(command_completion_ready), .completion(command_completion), .generation(generation),
        .port(port), .port_mask(mask), .port_form(form), .write_row(write_row), .write_row_at(write_row_at),
        .write_row_data(write_row_data), .write_rule(write_rule), .clear_rule(clear_rule),
        .write_rule_at(write_rule_at), .write_rule_value(write_rule_value), .write_rule_mask(write_rule_mask),
        .write_rule_action(write_rule_action), .write_rule_busy(write_rule_busy), .write_bucket(write_bucket),
        .write_bucket_at(write_bucket_at), .write_bucket_queue(write_bucket_queue), .commit(commit),
        .clear_queues(clear_queues), .clear_queue(clear_queue), .fence_check(fence_check), .fence_send(fence_send),
        .fence_queue(fence_queue), .fence_number(fence_number), .fence_room(fence_room), .fence_sent(fence_sent),
        .count_read(command_counts), .count_counter(command_counter), .count_queue(command_count_queue),
        .count_value(count_value)
    );
    counters counts (
        .clk(clk), .reset(core_reset), .clear(clear_queues), .clear_queue(clear_queue), .received(received),
        .received_queue(completion_queue), .dropped(dropped), .dropped_counter(dropped_counter),
        .dropped_queue(dropped_queue), .fifo_full(rx_dropped), .parity_errors(parity_errors),
        .read_counter(command_counts ? command_counter : register_counter),
        .read_queue(command_counts ? command_count_queue : register_count_queue), .read_ready(count_ready),
        .read_value(count_value)
    );
    // The end FIFO has one entry for each frame inside that the parser still has.
    assign quiet = ready && nothing_under_way && !end_valid && !head_valid && !result_valid && !frame_valid && !marked
                && !(rx_valid && rx_taken) && !rx_inside && !rx_holds;
endmodule
`default_nettype wire
