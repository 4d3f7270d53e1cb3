// The three memories of this design. Every other module builds its storage from them, so that a synthesis tool has to
// recognise three shapes only, and a port to another device changes one file.
//
//   memory     read        write      device
//   mem_lut    in the same cycle      LUT memory (RAM16X4, RAM32M16), small depths
//   mem_block  one cycle later        block memory (EBR, RAMB18, URAM)
//   mem_delay  DELAY cycles later     a delay line: a ring in LUT memory, since ECP5 has no shift LUTs
//
// Guarantees: a write is visible to reads of later cycles. A read of the address that is written in the same cycle
// returns the old word. No memory is initialised: a user must not use a word before it was written.

`default_nettype none

module mem_lut #(
    parameter WIDTH = 8,
    parameter DEPTH_LOG2 = 4
) (
    input  wire                  clk,
    input  wire                  write,
    input  wire [DEPTH_LOG2-1:0] write_at,
    input  wire [WIDTH-1:0]      write_data,
    input  wire [DEPTH_LOG2-1:0] read_at,
    output wire [WIDTH-1:0]      read_data
`ifdef PROOF_CONTENTS
    , output wire [(WIDTH << DEPTH_LOG2)-1:0] contents  // for invariants over all words
`endif
`ifdef PROOF_WATCHED
    , output wire [DEPTH_LOG2-1:0] watched_at, output wire [WIDTH-1:0] watched
`endif
);
`ifdef PROOF_WATCHED
    // One word, any one, is kept; the others read as anything. A proof about that word is one about each.
    (* anyconst *) wire [DEPTH_LOG2-1:0] some_at;
    (* anyseq *) wire [WIDTH-1:0] any_word;
    reg [WIDTH-1:0] word;
    always @(posedge clk) if (write && write_at == some_at) word <= write_data;
    assign read_data = read_at == some_at ? word : any_word;
    assign watched_at = some_at;
    assign watched = word;
`else
    (* ram_style = "distributed", syn_ramstyle = "distributed" *)
    reg [WIDTH-1:0] words [0:(1 << DEPTH_LOG2) - 1];
    always @(posedge clk) if (write) words[write_at] <= write_data;
`ifdef PROOF_WITHOUT_CONTENTS
    (* anyseq *) wire [WIDTH-1:0] any_word;
    assign read_data = any_word;
`else
    assign read_data = words[read_at];
`endif
`ifdef PROOF_CONTENTS
    genvar word;
    generate
        for (word = 0; word < (1 << DEPTH_LOG2); word = word + 1) begin : g_word
            assign contents[WIDTH * word +: WIDTH] = words[word];
        end
    endgenerate
`endif
`endif
endmodule

module mem_block #(
    parameter WIDTH = 72,
    parameter DEPTH_LOG2 = 9
) (
    input  wire                  clk,
    input  wire                  write,
    input  wire [DEPTH_LOG2-1:0] write_at,
    input  wire [WIDTH-1:0]      write_data,
    input  wire                  read,
    input  wire [DEPTH_LOG2-1:0] read_at,
    output reg  [WIDTH-1:0]      read_data
);
    (* ram_style = "block", syn_ramstyle = "block_ram" *)
    reg [WIDTH-1:0] words [0:(1 << DEPTH_LOG2) - 1] /* verilator public_flat_rw */;
`ifdef PROOF_WITHOUT_BLOCKS
    (* anyseq *) wire [WIDTH-1:0] any_word;  // a proof about control alone holds for any contents
`endif
    always @(posedge clk) begin
        if (write) words[write_at] <= write_data;
`ifdef PROOF_WITHOUT_BLOCKS
        if (read) read_data <= any_word;
`else
        if (read) read_data <= words[read_at];
`endif
    end
endmodule

module mem_delay #(
    parameter WIDTH = 8,
    parameter DELAY = 5  // cycles, 2 to 16
) (
    input  wire             clk,
    input  wire             reset,
    input  wire [WIDTH-1:0] in,
    output wire [WIDTH-1:0] out
);
    reg [3:0] at;
    wire [WIDTH-1:0] old;
    reg [WIDTH-1:0] last;
    always @(posedge clk) begin
        if (reset || at == DELAY - 2) at <= 0;
        else at <= at + 1'b1;
        last <= old;
    end
    mem_lut #(.WIDTH(WIDTH), .DEPTH_LOG2(4)) ring (
        .clk(clk), .write(1'b1), .write_at(at), .write_data(in), .read_at(at), .read_data(old)
    );
    assign out = last;
endmodule
`default_nettype wire
