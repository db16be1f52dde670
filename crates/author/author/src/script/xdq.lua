-- The verbs of the XDP queueing tester on top of Fairpath's verbs. See docs/guide/sched-scripts.md.

IPPROTO_UDP = 17
ETH_P_IPV6 = 0x86dd
XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT = 0, 1, 2, 3, 4

-- Built-in policies that correspond to programs of that framework.
local POLICIES = { fifo = "fifo", wfq = "stfq", fq_codel = "fq_codel" }
-- At this weight a byte has the cost of one.
local WEIGHT_ONE = 256
-- The number of an enqueued packet replaces the first bytes of its payload.
local NUMBER_BYTES = 8

local native = {}
for _, name in ipairs { "dequeue", "dequeue_cmp", "enqueue", "policy", "set_flow_weight" } do
	native[name] = _G[name]
end

-- Waiting packets of this dialect, by handle.
local waiting = {}

xdq = setmetatable({}, {
	__index = function(_, name)
		if name == "currently_queued" then
			return #queue()
		elseif name == "total_queued" then
			return stats().queued
		elseif name == "total_dequeued" then
			return stats().sent
		end
	end,
})

local function is_ours(packet)
	return type(packet) == "table"
end

function copy(value)
	if type(value) ~= "table" then
		return value
	end
	local new = {}
	for key, inner in next, value do
		new[copy(key)] = copy(inner)
	end
	return new
end

function create_payload(bytes)
	if math.type(bytes) ~= "integer" or bytes < 0 then
		fail("create_payload: expected a number of bytes")
	end
	return string.rep("A", bytes)
end

function udp_payload_enumerator(packet, number)
	if math.type(number) ~= "integer" then
		fail("expected the number of the packet")
	end
	packet.udp.payload = string.pack("<i8", number) .. packet.udp.payload:sub(NUMBER_BYTES + 1)
end

config = {
	bpf = setmetatable({}, {
		__newindex = function(_, key, value)
			if key == "file" then
				load_xdq_file(value)
			end
		end,
	}),
	defaultUdp = {
		eth = { proto = ETH_P_IPV6, source = "01:00:00:00:00:01", dest = "01:00:00:00:00:02" },
		ip = {
			version = 6,
			priority = 0,
			flow_lbl = { 0, 0, 0 },
			nexthdr = IPPROTO_UDP,
			hop_limit = 1,
			saddr = "fe80::1",
			daddr = "fe80::2",
		},
		udp = { source = 1, dest = 1, payload = "", next_sequence = udp_payload_enumerator },
	},
}

-- The name of the program selects the policy unless the command line does.
function load_xdq_file(file)
	local name = tostring(file):match("sched_([%w_]+)%.bpf%.o$")
	if is_chosen() then
		return
	elseif not POLICIES[name] then
		fail("no policy corresponds to " .. tostring(file) .. ": name a policy on the command line")
	end
	native.policy(POLICIES[name])
end

Udp = {}

function Udp:new()
	return copy(config.defaultUdp)
end

local function number_packet(packet, number)
	if number == nil then
		return
	end
	for _, header in next, packet do
		if type(header) == "table" and type(header.next_sequence) == "function" then
			header.next_sequence(packet, number)
		end
	end
end

local function check(packet)
	for _, header in ipairs { "eth", "ip", "udp" } do
		if type(packet[header]) ~= "table" then
			fail("the packet has no table " .. header)
		end
	end
	if type(packet.udp.payload) ~= "string" then
		fail("the packet's udp.payload is not a string")
	end
end

local function convert(packet)
	check(packet)
	return udp {
		label = "udp:" .. tostring(packet.udp.dest),
		source = packet.ip.saddr,
		destination = packet.ip.daddr,
		source_port = packet.udp.source,
		destination_port = packet.udp.dest,
		dscp = packet.ip.priority << 2,
		payload = packet.udp.payload,
	}
end

function enqueue(packet, number)
	if not is_ours(packet) then
		return native.enqueue(packet, number)
	end
	number_packet(packet, number)
	local item = native.enqueue(convert(packet), number)
	if item.state == "dropped" then
		return XDP_DROP
	end
	waiting[item.handle] = copy(packet)
	return XDP_REDIRECT
end

local function ours(item)
	if item == nil then
		return nil
	end
	local packet = waiting[item.handle]
	waiting[item.handle] = nil
	return packet or item
end

function dequeue()
	local item, again = native.dequeue()
	return ours(item), again
end

-- The first field that differs between two headers, without checksums and lengths.
local function difference(wanted, got, name)
	if type(wanted) ~= "table" or type(got) ~= "table" then
		return wanted ~= got and name or nil
	end
	for key, value in next, wanted do
		local skipped = key == "len" or key == "check" or key == "payload_len" or type(value) == "function"
		local where = not skipped and difference(value, got[key], name .. "." .. tostring(key))
		if where then
			return where
		end
	end
end

function hex_dump(text)
	local bytes = {}
	for index = 1, #text do
		bytes[index] = string.format("%02x ", text:byte(index))
	end
	return table.concat(bytes)
end

function trim_hex(hex)
	local max = 16 * 3
	if #hex <= max then
		return hex
	end
	return hex:sub(1, max) .. "... (" .. #hex // 3 .. " bytes)"
end

local function summary(packet)
	if not is_ours(packet) then
		return tostring(packet)
	end
	return string.format("udp:%s payload %s", packet.udp.dest, trim_hex(hex_dump(packet.udp.payload)))
end

function cmp(packet, wanted, number)
	if not is_ours(wanted) then
		fail("cmp: the expected packet is not a table")
	elseif packet == nil then
		fail("no packet leaves", summary(wanted), "no packet")
	end
	number_packet(wanted, number)
	check(wanted)
	for _, header in ipairs { "eth", "ip", "udp" } do
		local where = header
		if is_ours(packet) then
			where = difference(wanted[header], packet[header], header)
		end
		if where then
			fail("unexpected packet: " .. where .. " differs", summary(wanted), summary(packet))
		end
	end
	expect(true)
end

function dequeue_cmp(wanted, number)
	if not is_ours(wanted) then
		return native.dequeue_cmp(wanted, number)
	end
	local packet, again = dequeue()
	cmp(packet, wanted, number)
	return packet, again
end

function set_flow_weight(flow, weight, node)
	if not is_ours(flow) then
		return native.set_flow_weight(flow, weight, node)
	elseif math.type(weight) ~= "integer" or weight <= 0 then
		fail("set_flow_weight: expected an integer of at least 1, where 256 is a cost of one")
	end
	native.set_flow_weight(convert(flow), WEIGHT_ONE / weight, node)
end

function dump(value, depth)
	depth = depth or 1
	if type(value) ~= "table" then
		return type(value) == "number" and tostring(value) or '"' .. tostring(value) .. '"'
	end
	local lines, keys = {}, {}
	for key in next, value do
		keys[#keys + 1] = key
	end
	table.sort(keys, function(a, b)
		return tostring(a) < tostring(b)
	end)
	for _, key in ipairs(keys) do
		local inner = key == "payload" and trim_hex(hex_dump(value[key])) or value[key]
		lines[#lines + 1] = string.rep("    ", depth) .. '"' .. tostring(key) .. '": ' .. dump(inner, depth + 1)
	end
	return "{\n" .. table.concat(lines, ",\n") .. "\n" .. string.rep("    ", depth - 1) .. "}"
end

function table_has_key(of, key)
	return of[key] ~= nil
end

function normalize_ipv6_address(address)
	return udp({ source = address, destination = address }).source
end

-- Metadata in front of a packet is not supported: policies read the fields of `packet` only.
function adjust_meta() end

function show_flow_map()
	show()
end
