local sum = 0
while sum >= 0 do
	sum = sum + 1
end
