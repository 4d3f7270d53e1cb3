// The parser: ENGINES engines, a loader that gives each window to the least loaded one, and a collector that takes results
// in the order in which frames arrived, with the length that is known at their end.
//
//   head FIFO --> loader --> engine 0 .. E-1 --> collector --> classifier
//                   +----- order FIFO ------------^   ^--- end FIFO
//
// Guarantees (formal/order.sv): results leave in the order of arrival, one for each frame; a command is reported when all
// frames before it have left, and no frame after it leaves before `command_done`.

`default_nettype none

module parser #(
    parameter WIDTH = 128,
    parameter ENGINES = 3,       // 1 to 8
    parameter TAIL = 319,        // of parser_engine
    parameter ORDER_LOG2 = 5     // frames and commands between loader and collector
) (
    input  wire             clk,
    input  wire             reset,
    input  wire [67:0]      tpids,
    input  wire [151:0]     tunnels,
    // From the ingress.
    input  wire             head_valid,
    input  wire [WIDTH-1:0] head_data,
    input  wire             head_first,
    input  wire             head_last,
    input  wire [7:0]       head_size,
    input  wire             head_longer,
    input  wire [3:0]       head_port,
    input  wire             head_marker,
    output wire             head_pop,
    input  wire             end_valid,
    output wire             end_pop,
    // Results; `result_take` goes with `end_*` of the same frame.
    output wire             result_valid,
    output wire [95:0]      result_ethernet,
    output wire [255:0]     result_addresses,
    output wire [255:0]     result_ends,
    output wire [TAIL-1:0]  result_tail,
    output wire [3:0]       result_port,
    input  wire             result_take,
    // A command is next.
    output wire             command_next,
    input  wire             command_done
`ifdef PROOF_CONTENTS
    // What formal/order.sv speaks of.
    , output wire [(10 << ORDER_LOG2)-1:0] proof_entries,
    output wire [ORDER_LOG2:0] proof_count,
    output wire             proof_loading,
    output wire [2:0]       proof_target, proof_turn,
    output wire [ENGINES-1:0] proof_free,
    output wire [2*ENGINES-1:0] proof_load_slots,
    output wire [4*ENGINES-1:0] proof_busy, proof_done, proof_followed
`endif
);
    // ---- Loader ----
    localparam ROWS_PER_BEAT = WIDTH == 512 ? 2 : 1;
    wire [ENGINES-1:0] free, idle;
    wire [2*ENGINES-1:0] load_slots;
    reg loading;
    reg [2:0] target, turn;
    reg [2:0] chosen;
    reg any;
    // The engine for the next frame: the first idle one from `turn` on, else the first with a free slot.
    integer i;
    reg [3:0] at;
    always @* begin
        chosen = 3'd0;
        any = 1'b0;
        for (i = ENGINES - 1; i >= 0; i = i - 1) begin
            at = {1'b0, turn} + i[3:0];
            if (at >= ENGINES) at = at - ENGINES;
            if (free[at[2:0]]) begin
                chosen = at[2:0];
                any = 1'b1;
            end
        end
        for (i = ENGINES - 1; i >= 0; i = i - 1) begin
            at = {1'b0, turn} + i[3:0];
            if (at >= ENGINES) at = at - ENGINES;
            if (idle[at[2:0]]) chosen = at[2:0];
        end
    end

    wire order_full, order_empty;
    wire take_marker = head_valid && head_marker && !loading && !order_full;
    wire begin_load = head_valid && !head_marker && !loading && any && !order_full;
    reg [1:0] row;
    reg half;                // of a row (128-bit beats), or of a beat (512-bit beats)
    reg [127:0] left;
    wire [255:0] row_data;
    wire row_write, row_last, beat_done;
    generate
        if (WIDTH == 512) begin : g_wide
            assign row_data = half ? head_data[255:0] : head_data[511:256];
            assign row_write = loading && head_valid;
            // The second half of a beat is written even if it is past the frame.
            assign beat_done = row_write && half;
            assign row_last = beat_done && head_last;
        end else begin : g_narrow
            assign row_data = half ? {left, head_data} : {head_data, 128'd0};
            assign row_write = loading && head_valid && (half || head_last);
            assign beat_done = loading && head_valid;
            assign row_last = beat_done && head_last;
        end
    endgenerate
    assign head_pop = take_marker || beat_done;
    always @(posedge clk) begin
        if (begin_load) begin
            loading <= 1'b1;
            target <= chosen;
            turn <= chosen + 1'b1 == ENGINES ? 3'd0 : chosen + 1'b1;
            row <= 2'd0;
            half <= 1'b0;
        end
        if (loading && head_valid) begin
            half <= !half;
            left <= head_data[127:0];
            if (row_write) row <= row + 1'b1;
            if (row_last) loading <= 1'b0;
        end
        if (reset) begin
            loading <= 1'b0;
            turn <= 3'd0;
        end
    end

    // ---- Order of frames and commands ----
    wire order_command;
    wire [2:0] order_engine;
    wire [1:0] order_slot;
    wire [3:0] order_port;
    wire order_pop;
    wire [ORDER_LOG2:0] order_count;
    wire [1:0] chosen_slot = load_slots[2 * chosen +: 2];
    fifo_lut #(.WIDTH(10), .DEPTH_LOG2(ORDER_LOG2)) order (
        .clk(clk), .reset(reset), .push(take_marker || begin_load),
        .push_data({take_marker, chosen, chosen_slot, head_port}), .full(order_full),
        .pop(order_pop), .head({order_command, order_engine, order_slot, order_port}), .empty(order_empty), .count(order_count)
`ifdef PROOF_CONTENTS
        , .entries(proof_entries)
`endif
    );

    // ---- Engines and collector ----
    wire [4*ENGINES-1:0] done;
    wire [96*ENGINES-1:0] ethernets;
    wire [256*ENGINES-1:0] addresses, ends;
    wire [TAIL*ENGINES-1:0] tails;
    genvar e;
    generate
        for (e = 0; e < ENGINES; e = e + 1) begin : g_engine
            parser_engine engine (
                .clk(clk), .reset(reset), .tpids(tpids), .tunnels(tunnels),
                .free(free[e]), .idle(idle[e]), .load(row_write && target == e), .load_row(row), .load_data(row_data),
                .load_last(row_last), .load_size(head_size), .load_longer(head_longer), .load_slot(load_slots[2 * e +: 2]),
                .done(done[4 * e +: 4]), .release_slot(result_take && order_engine == e), .result_slot(order_slot),
                .ethernet(ethernets[96 * e +: 96]), .addresses(addresses[256 * e +: 256]), .ends(ends[256 * e +: 256]),
                .tail(tails[TAIL * e +: TAIL])
`ifdef PROOF_CONTENTS
                , .busy(proof_busy[4 * e +: 4]), .followed(proof_followed[4 * e +: 4])
`endif
            );
        end
    endgenerate
    wire [3:0] done_slots = done[4 * order_engine +: 4];
    assign result_valid = !order_empty && !order_command && done_slots[order_slot] && end_valid;
    assign result_ethernet = ethernets[96 * order_engine +: 96];
    assign result_addresses = addresses[256 * order_engine +: 256];
    assign result_ends = ends[256 * order_engine +: 256];
    assign result_tail = tails[TAIL * order_engine +: TAIL];
    assign result_port = order_port;
    assign end_pop = result_take;
    assign command_next = !order_empty && order_command;
    assign order_pop = result_take || command_done;
`ifdef PROOF_CONTENTS
    assign proof_count = order_count;
    assign proof_loading = loading;
    assign proof_target = target;
    assign proof_turn = turn;
    assign proof_free = free;
    assign proof_load_slots = load_slots;
    assign proof_done = done;
`endif
endmodule
`default_nettype wire
