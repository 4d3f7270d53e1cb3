// The classifier: from the fields of a frame to its verdict. A frame may enter each PERIOD cycles, in phase 0 of a
// counter that never stops, so that frames share the mixers without arbitration.
//
//   fields -+-> key & mask -> exact_table ----------------+
//           +-> ternary_table ----------------------------+-> verdict -> descriptor FIFO
//           +-> flow_hash -> bucket_table ----------------+
//   cycle   0                               19 or 20      + 2
//
// Guarantees
// * Descriptors leave in the order in which frames entered, one for each, and none is lost: a frame enters only if the
//   FIFO has room for it and for all frames under way.
// * The verdict is that of the lowest ternary rule that matches, else of the exact row, else of the bucket.
// * Tables are read for a frame only after `enter`, so that a writer that waits for `idle` separates old from new.

`default_nettype none

module classifier #(
    parameter MIXERS = 1,
    parameter PERIOD = 5,            // 5 with one mixer, 4 with two
    parameter ROW_BITS = 9,
    parameter RULES_LOG2 = 5,
    parameter INFO = 79              // bits that pass unchanged
) (
    input  wire                  clk,
    input  wire                  reset,
    input  wire [383:0]          flow_keys,
    input  wire [511:0]          table_keys,
    // A frame.
    input  wire                  valid,
    output wire                  enter,
    input  wire                  lookup,         // false: no lookup in the exact table
    input  wire                  truncated,      // the lookup is made, and never hits
    input  wire [511:0]          key,
    input  wire [511:0]          mask,
    input  wire [3:0]            form,
    input  wire                  flow_is_ipv6,
    input  wire [255:0]          flow_ends,
    input  wire [31:0]           flow_ports,
    input  wire [15:0]           flow_kind,
    input  wire [63:0]           flow_network,
    input  wire [INFO-1:0]       info,
    // Its descriptor.
    output wire                  descriptor_valid,
    output wire [INFO-1:0]       descriptor_info,
    output wire [31:0]           descriptor_hash,
    output wire [31:0]           descriptor_mark,
    output wire [4:0]            descriptor_queue,
    output wire [3:0]            descriptor_class,
    output wire                  descriptor_drop,
    input  wire                  descriptor_pop,
    output wire                  idle,           // no frame is under way, and the FIFO is empty
    output wire [2:0]            parity_errors,  // rows with wrong parity, in the cycle in which a lookup ends
    // Tables, written while idle.
    input  wire                  write_row,
    input  wire [ROW_BITS+1:0]   write_row_at,
    input  wire [575:0]          write_row_data,
    input  wire                  write_rule,
    input  wire                  clear_rule,
    input  wire [RULES_LOG2-1:0] write_rule_at,
    input  wire [255:0]          write_rule_value,
    input  wire [255:0]          write_rule_mask,
    input  wire [42:0]           write_rule_action,
    output wire                  write_rule_busy,
    input  wire                  write_bucket,
    input  wire [9:0]            write_bucket_at,
    input  wire [4:0]            write_bucket_queue,
    input  wire                  commit
);
    localparam HASHED = MIXERS == 2 ? 19 : 20;
    localparam LAST = HASHED + 2;

    // ---- Entry ----
    reg [2:0] phase;
    reg [3:0] under_way;             // frames between entry and the FIFO
    wire [4:0] queued;
    assign enter = valid && phase == 0 && {1'b0, under_way} + queued < 5'd15;
    always @(posedge clk) begin
        if (reset || phase == PERIOD - 1) phase <= 3'd0;
        else phase <= phase + 1'b1;
    end

    // The fields stay in these registers for a period, which starts in cycle 0 of the frame.
    reg start;
    reg [511:0] masked;
    reg [3:0] held_form;
    reg held_lookup;
    reg [255:0] ternary_key;
    reg held_is_ipv6;
    reg [255:0] held_ends;
    reg [31:0] held_ports;
    reg [15:0] held_kind;
    reg [63:0] held_network;
    // The ternary key has the upper half of IPv6 addresses, and the whole of IPv4 ones.
    wire is_ipv6 = key[63:48] == 16'h86dd;
    always @(posedge clk) begin
        start <= enter && !reset;
        if (enter) begin
            masked <= key & mask;
            held_form <= form;
            held_lookup <= lookup;
            ternary_key <= {is_ipv6 ? key[319:256] : key[383:320], is_ipv6 ? key[191:128] : key[255:192], key[447:384],
                            key[63:0]};
            held_is_ipv6 <= flow_is_ipv6;
            held_ends <= flow_ends;
            held_ports <= flow_ports;
            held_kind <= flow_kind;
            held_network <= flow_network;
        end
    end
    reg [LAST-1:0] walk;
    wire [LAST:0] at = {walk, start};
    always @(posedge clk) walk <= reset ? {LAST{1'b0}} : at[LAST-1:0];

    // ---- Tables ----
    wire exact_done, exact_hit;
    wire [42:0] exact_action;
    wire [2:0] exact_parity_errors;
    exact_table #(.ROW_BITS(ROW_BITS)) exact (
        .clk(clk), .reset(reset), .keys(table_keys), .start(start), .enable(held_lookup), .key(masked), .form(held_form),
        .done(exact_done), .hit(exact_hit), .action(exact_action), .parity_errors(exact_parity_errors),
        .write(write_row), .write_at(write_row_at), .write_row(write_row_data)
    );
    assign parity_errors = exact_done ? exact_parity_errors : 3'd0;

    wire ternary_done, ternary_hit;
    wire [42:0] ternary_action;
    ternary_table #(.RULES_LOG2(RULES_LOG2)) ternary (
        .clk(clk), .reset(reset), .start(start), .key(ternary_key), .done(ternary_done), .hit(ternary_hit),
        .action(ternary_action), .write(write_rule), .clear(clear_rule), .write_rule(write_rule_at),
        .write_value(write_rule_value), .write_mask(write_rule_mask), .write_action(write_rule_action),
        .busy(write_rule_busy)
    );

    wire [63:0] hash;
    flow_hash #(.MIXERS(MIXERS), .PERIOD(PERIOD)) flow (
        .clk(clk), .reset(reset), .keys(flow_keys), .start(start), .is_ipv6(held_is_ipv6), .one(held_ends[255:128]),
        .two(held_ends[127:0]), .port_one(held_ports[31:16]), .port_two(held_ports[15:0]), .kind(held_kind),
        .network(held_network), .hash(hash)
    );
    wire [4:0] bucket_queue;
    bucket_table buckets (
        .clk(clk), .reset(reset), .lookup(at[HASHED]), .bucket(hash[63:54]), .queue(bucket_queue),
        .write(write_bucket), .write_bucket(write_bucket_at), .write_queue(write_bucket_queue), .commit(commit)
    );

    // ---- Results that are there before the bucket wait in order ----
    wire ternary_was_hit, exact_was_hit;
    wire [42:0] ternary_was, exact_was;
    wire [INFO-1:0] info_was;
    wire truncated_was;
    wire verdict = at[HASHED + 1];
    fifo_lut #(.WIDTH(44), .DEPTH_LOG2(4)) ternary_results (
        .clk(clk), .reset(reset), .push(ternary_done), .push_data({ternary_hit, ternary_action}), .full(),
        .pop(verdict), .head({ternary_was_hit, ternary_was}), .empty(), .count()
    );
    fifo_lut #(.WIDTH(44), .DEPTH_LOG2(4)) exact_results (
        .clk(clk), .reset(reset), .push(exact_done), .push_data({exact_hit, exact_action}), .full(),
        .pop(verdict), .head({exact_was_hit, exact_was}), .empty(), .count()
    );
    fifo_lut #(.WIDTH(INFO + 1), .DEPTH_LOG2(4)) infos (
        .clk(clk), .reset(reset), .push(enter), .push_data({truncated, info}), .full(),
        .pop(verdict), .head({truncated_was, info_was}), .empty(), .count()
    );

    // ---- Verdict ----
    wire [42:0] action = ternary_was_hit ? ternary_was : exact_was_hit && !truncated_was ? exact_was : 43'd0;
    wire [4:0] queue = action[37] ? action[36:32] : bucket_queue;
    wire descriptor_empty;
    fifo_lut #(.WIDTH(INFO + 74), .DEPTH_LOG2(4)) descriptors (
        .clk(clk), .reset(reset), .push(verdict),
        .push_data({info_was, hash[63:32], action[31:0], queue, action[42:39], action[38]}), .full(),
        .pop(descriptor_pop),
        .head({descriptor_info, descriptor_hash, descriptor_mark, descriptor_queue, descriptor_class, descriptor_drop}),
        .empty(descriptor_empty), .count(queued)
    );
    assign descriptor_valid = !descriptor_empty;
    assign idle = under_way == 0 && descriptor_empty;
    always @(posedge clk) begin
        if (reset) under_way <= 4'd0;
        else under_way <= under_way + {3'd0, enter} - {3'd0, verdict};
    end
endmodule
`default_nettype wire
