-- Nested shares: 10 % and 90 % of the link, split into 30 and 70 %, and into 40 and 60 %.

local function packets(class)
	return udp { class = class, flow = class, length = 1000, label = "class " .. class }
end

local function shares(classes, count)
	local sent = { 0, 0, 0, 0 }
	for _ = 1, count do
		for _, class in ipairs(classes) do
			enqueue(packets(class))
		end
	end
	for _ = 1, count do
		local item = dequeue()
		sent[item.class] = sent[item.class] + 1
	end
	return sent
end

test("nested shares", function()
	local sent = shares({ 1, 2, 3, 4 }, 1000)
	for class, wanted in ipairs { 30, 70, 360, 540 } do
		expect_between(sent[class], wanted - 2, wanted + 2, "packets of class " .. class)
	end
end)

test("siblings get the unused share of a class", function()
	local sent = shares({ 1, 3, 4 }, 1000)
	for class, wanted in ipairs { 100, 0, 360, 540 } do
		expect_between(sent[class], wanted - 2, wanted + 2, "packets of class " .. class)
	end
end)
