# redis-py with its defaults: argument PORT. Each command of docs/redis.md, by the method that people call. Only its
# timeout is longer than the default of 5 s, which a busy machine may need for a long value.
import sys, time, redis

port = int(sys.argv[1])
r = redis.Redis(port=port, decode_responses=True, socket_timeout=100)


def near(left, span):
    # What is left of a span that has just begun, however busy the machine is.
    return span / 2 < left <= span


def refused(why, call, *args):
    try:
        call(*args)
    except redis.RedisError as error:
        assert why in str(error), error
    else:
        raise SystemExit(f"taken: {args}")


assert r.ping() and r.echo("said") == "said"
assert r.set("py", "1") and r.get("py") == "1" and r.get("none") is None
assert r.mget("py", "none") == ["1", None] and r.incr("py") == 2 and r.incrby("py", 3) == 5
assert r.decr("py") == 4 and r.decrby("py", 2) == 2
# Its incr and decr are INCRBY and DECRBY.
assert r.execute_command("INCR", "py") == 3 and r.execute_command("DECR", "py") == 2
assert r.set("py", "x", nx=True) is None and r.append("py", "0") == 2 and r.strlen("py") == 2
assert r.setnx("lock", "me") == 1 and r.expire("lock", 1000) and near(r.ttl("lock"), 1000)
assert r.exists("py", "lock", "none") == 2 and r.dbsize() == 2
assert r.pexpire("lock", 700_000) and near(r.pttl("lock"), 700_000) and r.persist("lock") and r.ttl("lock") == -1
now = int(time.time())
assert r.expireat("lock", now + 1000) and near(r.ttl("lock"), 1001)
assert r.pexpireat("lock", (now + 500) * 1000) and near(r.ttl("lock"), 501)
assert r.getex("lock", ex=300) == "me" and near(r.ttl("lock"), 300) and r.getset("lock", "you") == "me"
assert r.setex("s", 200, "a") and r.psetex("s", 200_000, "b") and near(r.ttl("s"), 200) and r.get("s") == "b"
assert r.getdel("lock") == "you" and r.type("py") == "string" and r.unlink("py", "s") == 2
assert r.client_setname("me") and r.client_getname() == "me" and r.client_id() > 0
assert r.client_list()[0]["name"] == "me" and r.config_get("save") == {"save": ""} and r.client_info()["db"] == 0
assert r.info()["store_state"] == "ok" and r.info()["redis_version"] and r.command() == {} and r.select(0)
refused("no password is set", r.auth, "secret")
p = r.pipeline(transaction=False)
assert p.set("p", "1").incr("p").get("none").execute() == [True, 2, None]
assert r.pipeline().set("tx", "1").incr("tx").get("none").execute() == [True, 2, None]
refused("FLUSHALL", r.pipeline().set("tx", "1").flushall().execute)
assert r.get("tx") == "2"
one = r.client()
assert one.execute_command("MULTI") and one.execute_command("INCR", "tx") == "QUEUED" and one.execute_command("DISCARD")
assert one.get("tx") == "2" and one.execute_command("UNWATCH")
refused("WATCH is not supported", one.execute_command, "WATCH", "tx")
assert one.quit()
assert redis.Redis(port=port, protocol=2).get("none") is None

big = "0123456789abcdef" * 65536
assert r.set("big", big) and r.get("big") == big and r.strlen("big") == len(big)
names = ["k%d" % n for n in range(400)]
assert r.mset({name: "v" * 300 for name in names})
assert r.mget(names) == ["v" * 300] * 400
assert sorted(r.scan_iter()) == sorted(names + ["big", "p", "tx"])
assert sorted(r.scan_iter("k1?", count=100, _type="string")) == ["k1%d" % n for n in range(10)]
cursor, some = r.scan()
assert cursor > 0 and some
refused("invalid cursor", r.scan, cursor ^ 1 << 40)
assert r.delete(*names) == 400
assert r.getdel("big") == big and r.get("big") is None
refused("1048576", r.set, "big", big + "x")
assert r.flushdb() and r.dbsize() == 0 and r.flushall()
print("done")
