-- Wireshark dissector of the packets of Millrace's transport (docs/transport-protocol.md).
--
--   cp millrace.lua ~/.local/lib/wireshark/plugins/      or      tshark -X lua_script:millrace.lua -r capture.pcap
--
-- DATA, FEEDBACK and REPORT packets are dissected; QUIC packets of the same port go to Wireshark's own dissector. With a key log
-- (`millrace send --key-log FILE`, preference "millrace.key_log"), the address and the first bytes of AES-128-GCM packets are
-- decrypted; the same file, as "tls.keylog_file", decrypts the control channel. Another port is a preference (`-o millrace.port:PORT`)
-- or "Decode as" (`-d udp.port==PORT,millrace`); captures without the handshake are found by the connections in the key log.

local millrace = Proto("millrace", "Millrace transport")

millrace.prefs.port = Pref.uint("UDP port", 7800, "The port of receivers")
millrace.prefs.key_log = Pref.string("Key log", "", "File with MILLRACE_SESSION lines")

local types = { [0] = "DATA", [1] = "FEEDBACK", [2] = "REPORT" }
local forms = { [0] = "nothing arrived", [1] = "ranges", [2] = "bitmap" }
local f = millrace.fields
f.version = ProtoField.uint8("millrace.version", "Version", base.DEC, nil, 0x30)
f.type = ProtoField.uint8("millrace.type", "Type", base.DEC, types, 0x0e)
f.reserved = ProtoField.uint8("millrace.reserved", "Reserved, 0", base.DEC, nil, 0x01)
f.connection = ProtoField.uint32("millrace.connection", "Connection", base.HEX)
f.number = ProtoField.uint24("millrace.number", "Packet number (low 24 bits)", base.DEC)
f.mac = ProtoField.bytes("millrace.mac", "MAC")
f.counter = ProtoField.uint64("millrace.seal_counter", "Seal counter", base.DEC)
f.ciphertext = ProtoField.bytes("millrace.ciphertext", "Ciphertext")
f.tag = ProtoField.bytes("millrace.tag", "Tag")
f.payload_size = ProtoField.uint32("millrace.payload_size", "Payload size", base.DEC)
f.extent = ProtoField.uint64("millrace.extent", "Extent", base.DEC)
f.offset = ProtoField.uint32("millrace.offset", "Offset", base.DEC)
f.start = ProtoField.string("millrace.payload_start", "Start of the payload (hex)")
f.delay = ProtoField.uint64("millrace.feedback.delay", "Delay (µs)", base.DEC)
f.ce = ProtoField.uint64("millrace.feedback.ce", "CE marks", base.DEC)
f.credit = ProtoField.uint64("millrace.feedback.credit", "Credit (bytes)", base.DEC)
f.rate = ProtoField.uint64("millrace.feedback.rate", "Rate (kbit/s)", base.DEC)
f.backlog = ProtoField.uint64("millrace.feedback.backlog", "Backlog (bytes)", base.DEC)
f.form = ProtoField.uint8("millrace.feedback.form", "Form", base.DEC, forms)
f.largest = ProtoField.uint64("millrace.feedback.largest", "Largest number", base.DEC)
f.count = ProtoField.uint64("millrace.feedback.ranges", "Ranges", base.DEC)
f.range = ProtoField.string("millrace.feedback.range", "Range")
f.bitmap = ProtoField.bytes("millrace.feedback.bitmap", "Bitmap")
f.next = ProtoField.uint64("millrace.report.next", "Next number", base.DEC)
f.rtt = ProtoField.uint64("millrace.report.rtt", "RTT (µs)", base.DEC)
f.flags = ProtoField.uint8("millrace.report.flags", "Flags", base.HEX)
f.answer = ProtoField.bool("millrace.report.answer", "Send feedback at once", 8, nil, 0x01)
f.confirmed = ProtoField.uint64("millrace.report.confirmed", "Confirmed feedback", base.DEC)
local malformed = ProtoExpert.new("millrace.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
millrace.experts = { malformed }

---------------------------------------------------------------------------------------------- keys: SHA-256, HKDF-Expand, AES-128
local unpack = unpack or table.unpack
local band, bxor, bnot, rshift, lshift, ror = bit.band, bit.bxor, bit.bnot, bit.rshift, bit.lshift, bit.ror

local function word(bytes, at)
    local a, b, c, d = bytes:byte(at, at + 3)
    return bit.tobit(a * 0x1000000 + b * 0x10000 + c * 0x100 + d)
end

local function bytes_of(value)
    return string.char(band(rshift(value, 24), 255), band(rshift(value, 16), 255), band(rshift(value, 8), 255), band(value, 255))
end

-- Returns the first 32 bits of the fractional part of a number.
local function fraction(value)
    return bit.tobit(math.floor((value - math.floor(value)) * 4294967296))
end

local K, H = {}, {}
do
    local candidate, found = 2, 0
    while found < 64 do
        local prime = true
        for divisor = 2, math.floor(math.sqrt(candidate)) do
            if candidate % divisor == 0 then prime = false end
        end
        if prime then
            found = found + 1
            K[found] = fraction(candidate ^ (1 / 3))
            if found <= 8 then H[found] = fraction(math.sqrt(candidate)) end
        end
        candidate = candidate + 1
    end
end

local function sha256(message)
    local size = #message
    message = message .. "\128" .. ("\0"):rep((55 - size) % 64) .. "\0\0\0\0" .. bytes_of(bit.tobit(size * 8))
    local h = { unpack(H) }
    for from = 1, #message, 64 do
        local w = {}
        for i = 1, 16 do w[i] = word(message, from + 4 * (i - 1)) end
        for i = 17, 64 do
            local s0 = bxor(ror(w[i - 15], 7), ror(w[i - 15], 18), rshift(w[i - 15], 3))
            local s1 = bxor(ror(w[i - 2], 17), ror(w[i - 2], 19), rshift(w[i - 2], 10))
            w[i] = bit.tobit(w[i - 16] + s0 + w[i - 7] + s1)
        end
        local a, b, c, d, e, g, k, l = h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8]
        for i = 1, 64 do
            local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
            local t1 = bit.tobit(l + s1 + bxor(band(e, g), band(bnot(e), k)) + K[i] + w[i])
            local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
            local t2 = bit.tobit(s0 + bxor(band(a, b), band(a, c), band(b, c)))
            l, k, g, e, d, c, b, a = k, g, e, bit.tobit(d + t1), c, b, a, bit.tobit(t1 + t2)
        end
        for i, value in ipairs({ a, b, c, d, e, g, k, l }) do h[i] = bit.tobit(h[i] + value) end
    end
    local out = {}
    for i = 1, 8 do out[i] = bytes_of(h[i]) end
    return table.concat(out)
end

local function hmac(key, message)
    key = key .. ("\0"):rep(64 - #key)
    local inner = key:gsub(".", function(char) return string.char(bxor(char:byte(), 0x36)) end)
    local outer = key:gsub(".", function(char) return string.char(bxor(char:byte(), 0x5c)) end)
    return sha256(outer .. sha256(inner .. message))
end

-- HKDF-Expand (RFC 5869) of 32 bytes at most.
local function expand(secret, label, index, size)
    local info = label .. "\0\0\0\0" .. bytes_of(bit.tobit(index)) .. "\1"
    return hmac(secret, info):sub(1, size)
end

local SBOX = {}
do
    -- FIPS 197, section 5.1.1: the inverse in GF(2^8), then an affine map; 3 generates the field.
    local p, q = 1, 1
    repeat
        p = band(bxor(p, lshift(p, 1), band(p, 128) ~= 0 and 0x11b or 0), 255)
        q = bxor(q, lshift(q, 1)); q = bxor(q, lshift(q, 2)); q = band(bxor(q, lshift(q, 4)), 255)
        if band(q, 128) ~= 0 then q = bxor(q, 9) end
        local function rotate(by) return band(bit.bor(lshift(q, by), rshift(q, 8 - by)), 255) end
        SBOX[p] = bxor(q, rotate(1), rotate(2), rotate(3), rotate(4), 0x63)
    until p == 1
    SBOX[0] = 0x63
end

local function double(value)
    return band(bxor(lshift(value, 1), band(value, 128) ~= 0 and 0x11b or 0), 255)
end

local function key_schedule(key)
    local w, round = { key:byte(1, 16) }, 1
    for at = 17, 176, 4 do
        local t = { w[at - 4], w[at - 3], w[at - 2], w[at - 1] }
        if (at - 1) % 16 == 0 then
            t = { bxor(SBOX[t[2]], round), SBOX[t[3]], SBOX[t[4]], SBOX[t[1]] }
            round = double(round)
        end
        for i = 1, 4 do w[at + i - 1] = bxor(w[at - 17 + i], t[i]) end
    end
    return w
end

-- Returns the encryption of a block with AES-128.
local function aes(w, block)
    local s = { block:byte(1, 16) }
    for i = 1, 16 do s[i] = bxor(s[i], w[i]) end
    for round = 1, 10 do
        local t = {}
        for column = 0, 3 do
            for row = 0, 3 do t[4 * column + row + 1] = SBOX[s[4 * ((column + row) % 4) + row + 1]] end
        end
        for column = 0, 3 do
            local a, b, c, d = t[4 * column + 1], t[4 * column + 2], t[4 * column + 3], t[4 * column + 4]
            if round < 10 then
                local all = bxor(a, b, c, d)
                a, b, c, d = bxor(a, all, double(bxor(a, b))), bxor(b, all, double(bxor(b, c))),
                    bxor(c, all, double(bxor(c, d))), bxor(d, all, double(bxor(d, a)))
            end
            for row, value in ipairs({ a, b, c, d }) do
                local at = 4 * column + row
                s[at] = bxor(value, w[16 * round + at])
            end
        end
    end
    return string.char(unpack(s))
end

------------------------------------------------------------------------------------------------------------------------ key log
local sessions, loaded = {}, nil

local function unhex(text)
    return (text:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function load_key_log()
    local path = millrace.prefs.key_log
    if path == loaded then return end
    sessions, loaded = {}, path
    local file = path ~= "" and io.open(path)
    if not file then return end
    for line in file:lines() do
        local connection, aead, secret = line:match("^MILLRACE_SESSION (%x+) (%x+) (%x+) ")
        if connection then
            sessions[tonumber(connection, 16)] = { aead = tonumber(aead, 16), secret = unhex(secret), subkeys = {} }
        end
    end
    file:close()
end

-- Returns the address and the first bytes of the payload of a DATA packet, as one block of bytes.
local function open_start(session, counter, ciphertext)
    local index = math.floor(counter / 2 ^ 20)
    local subkey = session.subkeys[index]
    if not subkey then
        subkey = {
            schedule = key_schedule(expand(session.secret, "millrace subkey", index, 16)),
            iv = expand(session.secret, "millrace iv", index, 12),
        }
        session.subkeys[index] = subkey
    end
    local high, low = math.floor(counter / 2 ^ 32), counter % 2 ^ 32
    local number = ("\0"):rep(7) .. string.char(high) .. bytes_of(bit.tobit(low))
    local nonce = {}
    for i = 1, 12 do nonce[i] = string.char(bxor(subkey.iv:byte(i), number:byte(i))) end
    -- GCM encrypts the first block with counter 2 (NIST SP 800-38D, section 7.1).
    local stream, plain = aes(subkey.schedule, table.concat(nonce) .. "\0\0\0\2"), {}
    for i = 1, math.min(16, #ciphertext) do plain[i] = string.char(bxor(ciphertext:byte(i), stream:byte(i))) end
    return table.concat(plain)
end

---------------------------------------------------------------------------------------------------------------------- dissection
-- Reads a variable-length integer (RFC 9000, section 16); returns its range, its value and the rest.
local function varint(buffer, at)
    if at >= buffer:len() then error("truncated") end
    local size = 2 ^ math.floor(buffer(at, 1):uint() / 64)
    if at + size > buffer:len() then error("truncated") end
    local value = buffer(at, 1):uint() % 64
    for i = 1, size - 1 do value = value * 256 + buffer(at + i, 1):uint() end
    return buffer(at, size), value, at + size
end

local function add(tree, field, buffer, at)
    local range, value, next_at = varint(buffer, at)
    tree:add(field, range, UInt64.new(value % 2 ^ 32, math.floor(value / 2 ^ 32)))
    return value, next_at
end

local function dissect_data(buffer, tree, session)
    local size = buffer:len()
    if size < 45 then error("truncated") end
    local counter = buffer(16, 1):uint() * 2 ^ 32 + buffer(17, 4):uint()
    tree:add(f.counter, buffer(16, 5), UInt64.new(counter % 2 ^ 32, math.floor(counter / 2 ^ 32)))
    tree:add(f.ciphertext, buffer(21, size - 37))
    tree:add(f.tag, buffer(size - 16, 16))
    tree:add(f.payload_size, size - 44):set_generated()
    local info = string.format("seal %.0f, %d bytes", counter, size - 44)
    if session and session.aead == 0 then
        local plain = open_start(session, counter, buffer(21, math.min(16, size - 37)):raw())
        local a, b, c, d, e, g, h = plain:byte(1, 7)
        local high = math.floor(e / 16)
        local extent = (((a * 256 + b) * 256 + c) * 256 + d) * 16 + high
        local offset = (e % 16) * 65536 + g * 256 + h
        tree:add(f.extent, buffer(21, 5), UInt64.new(extent % 2 ^ 32, math.floor(extent / 2 ^ 32))):set_generated()
        tree:add(f.offset, buffer(25, 3), offset):set_generated()
        local start = plain:sub(8, 7 + math.min(9, size - 44)):gsub(".", function(char) return ("%02x"):format(char:byte()) end)
        tree:add(f.start, start):set_generated()
        info = string.format("extent %.0f, offset %d, %d bytes", extent, offset, size - 44)
    end
    return info
end

local function dissect_feedback(buffer, tree)
    local at, credit, value = 16, nil, nil
    value, at = add(tree, f.delay, buffer, at)
    value, at = add(tree, f.ce, buffer, at)
    credit, at = add(tree, f.credit, buffer, at)
    value, at = add(tree, f.rate, buffer, at)
    value, at = add(tree, f.backlog, buffer, at)
    if at >= buffer:len() then error("truncated") end
    local form = buffer(at, 1):uint()
    tree:add(f.form, buffer(at, 1))
    at = at + 1
    if form == 0 then return string.format("nothing arrived, credit %.0f", credit) end
    local largest, count
    largest, at = add(tree, f.largest, buffer, at)
    if form == 1 then
        count, at = add(tree, f.count, buffer, at)
        local highest = largest
        for index = 1, count do
            local from, gap, length = at, 0, nil
            if index > 1 then
                value, gap, at = varint(buffer, at)
                highest = highest - gap - 2
            end
            value, length, at = varint(buffer, at)
            tree:add(f.range, buffer(from, at - from), string.format("%.0f to %.0f", highest - length, highest))
            highest = highest - length
        end
    elseif form == 2 then
        local range, size, from = varint(buffer, at)
        if from + size > buffer:len() then error("truncated") end
        tree:add(f.bitmap, buffer(from, size))
    else
        error("unknown form")
    end
    return string.format("largest %.0f, credit %.0f", largest, credit)
end

local function dissect_report(buffer, tree)
    local at, next_number, rtt, count, number = 16, nil, nil, nil, nil
    next_number, at = add(tree, f.next, buffer, at)
    rtt, at = add(tree, f.rtt, buffer, at)
    if at >= buffer:len() then error("truncated") end
    tree:add(f.flags, buffer(at, 1)):add(f.answer, buffer(at, 1))
    local value
    value, count, at = varint(buffer, at + 1)
    for index = 1, count do
        local range, difference
        range, difference, at = varint(buffer, at)
        number = index == 1 and difference or number - difference - 1
        tree:add(f.confirmed, range, UInt64.new(number % 2 ^ 32, math.floor(number / 2 ^ 32)))
    end
    return string.format("next %.0f, RTT %.1f ms", next_number, rtt / 1000)
end

function millrace.dissector(buffer, pinfo, root)
    if buffer:len() == 0 then return 0 end
    local first = buffer(0, 1):uint()
    if first >= 64 then
        local quic = Dissector.get("quic")
        local size = quic and quic:call(buffer, pinfo, root) or 0
        -- The QUIC dissector has claimed the conversation: claim it back.
        pinfo.conversation = millrace
        return size
    end
    pinfo.cols.protocol = "MILLRACE"
    local tree = root:add(millrace, buffer())
    if buffer:len() == 1 and first == 0 then
        pinfo.cols.info = "probe for a closed port"
        return 1
    end
    if buffer:len() < 17 then
        tree:add_proto_expert_info(malformed)
        return buffer:len()
    end
    load_key_log()
    tree:add(f.version, buffer(0, 1))
    tree:add(f.type, buffer(0, 1))
    tree:add(f.reserved, buffer(0, 1))
    tree:add(f.connection, buffer(1, 4))
    tree:add(f.number, buffer(5, 3))
    tree:add(f.mac, buffer(8, 8))
    local kind = math.floor(first / 2) % 8
    local parts = { [0] = dissect_data, [1] = dissect_feedback, [2] = dissect_report }
    local info = "unknown type"
    if first % 2 == 1 then
        tree:add_proto_expert_info(malformed, "the lowest bit is set")
        info = "malformed: the lowest bit is set"
    elseif parts[kind] and first < 16 then
        local valid, result = pcall(parts[kind], buffer:range():tvb(), tree, sessions[buffer(1, 4):uint()])
        info = result
        if not valid then
            tree:add_proto_expert_info(malformed, tostring(result))
            info = "malformed: " .. tostring(result):gsub("^.*: ", "")
        end
    end
    local name = types[kind] or "?"
    pinfo.cols.info = string.format("%s %08x #%d %s", name, buffer(1, 4):uint(), buffer(5, 3):uint(), info)
    tree:append_text(string.format(", %s, connection %08x", name, buffer(1, 4):uint()))
    return buffer:len()
end

-- A datagram of any port belongs to the transport if the key log has its connection.
local function heuristic(buffer, pinfo, root)
    if buffer:len() < 17 or buffer(0, 1):uint() >= 6 then return false end
    load_key_log()
    if not sessions[buffer(1, 4):uint()] then return false end
    millrace.dissector(buffer, pinfo, root)
    return true
end

local registered
function millrace.init()
    loaded = nil
    local ports = DissectorTable.get("udp.port")
    if registered ~= millrace.prefs.port then
        if registered then ports:remove(registered, millrace) end
        ports:add(millrace.prefs.port, millrace)
        registered = millrace.prefs.port
    end
end

millrace:register_heuristic("udp", heuristic)
