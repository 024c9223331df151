import sys, redis
r = redis.Redis(port=int(sys.argv[1]), decode_responses=True)
assert r.ping()
assert r.set("py", "1") and r.get("py") == "1" and r.get("none") is None
assert r.mget("py", "none") == ["1", None] and r.incr("py") == 2
assert r.set("py", "x", nx=True) is None
assert r.setnx("lock", "me") == 1 and r.expire("lock", 100) and r.ttl("lock") == 100
assert r.getdel("lock") == "me" and r.type("py") == "string" and r.unlink("py") == 1
assert r.client_setname("me") and r.client_getname() == "me" and r.client_id() > 0
assert r.client_list()[0]["name"] == "me" and r.config_get("save") == {"save": ""}
assert r.info()["store_state"] == "ok" and r.info()["redis_version"]
p = r.pipeline(transaction=False)
assert p.set("p", "1").incr("p").get("none").execute() == [True, 2, None]
assert r.pipeline().set("tx", "1").incr("tx").get("none").execute() == [True, 2, None]
try:
    r.pipeline().set("tx", "1").flushall().execute()
    raise SystemExit("a transaction removes all keys")
except redis.ResponseError as error:
    assert "FLUSHALL" in str(error) and r.get("tx") == "2"
assert redis.Redis(port=int(sys.argv[1]), protocol=2).get("none") is None
big = "0123456789abcdef" * 65536
assert r.set("big", big) and r.get("big") == big and r.strlen("big") == len(big)
assert r.mset({"k%d" % n: "v" * 300 for n in range(400)})
assert r.mget(["k%d" % n for n in range(400)]) == ["v" * 300] * 400
assert r.delete(*["k%d" % n for n in range(400)]) == 400
assert r.getdel("big") == big and r.get("big") is None
try:
    r.set("big", big + "x")
    raise SystemExit("a value above the limit is taken")
except redis.ResponseError as error:
    assert "1048576" in str(error)
print("done")
