-- The requests of one turn. Arguments: get, passed (no key is looked at), fresh (a new key each) or same (500
-- keys again and again), passed and fresh also as secure-passed and secure-fresh (to an upstream behind TLS), and a
-- word that keys of no other turn begin with.
local BODY = '{"amount":2000,"currency":"usd","source":"tok_visa","note":"' .. string.rep("onceway ", 56) .. '"}'
local made, asked, fresh, seed, path = {}, 0, false, "", ""

local function build(number)
  return wrk.format("POST", path, {
    ["Authorization"] = "Bearer sk_demo_acme",
    ["Content-Type"] = "application/json",
    ["Host"] = wrk.headers["Host"],
    ["Idempotency-Key"] = string.format("%s-4000-8000-%012x", seed, number),
  }, BODY)
end

function init(args)
  local kind, secure = string.gsub(args[1], "^secure%-", "")
  seed, fresh = kind == "same" and "00000000-0000" or args[2], kind == "fresh"
  path = (secure == 1 and "/v2" or "/v1") .. (kind == "passed" and "/blobs" or "/charges")
  if kind == "get" then
    made[1] = wrk.format("GET", "/v1/blobs")
    return
  end
  for number = 1, fresh and 40000 or 500 do
    made[number] = build(number)
  end
end

function request()
  asked = asked + 1
  if fresh then
    return made[asked] or build(asked)
  end
  return made[(asked - 1) % #made + 1]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format("\nasked %d %d %d %d\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50)))
end
