//! redis-rs with its defaults: arguments PORT and a list of commands.

use redis::{Commands, RedisResult};

fn main() -> RedisResult<()> {
    let port = std::env::args().nth(1).expect("a port");
    let mut one = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?.get_connection()?;
    let () = one.set_ex("rs", "1", 1000)?;
    let number: i64 = one.incr("rs", 1)?;
    let left: i64 = one.ttl("rs")?;
    let none: Option<String> = one.get("none")?;
    assert_eq!((number, none), (2, None));
    assert!((500..=1000).contains(&left), "{left}");
    let both: (String, i64) = redis::pipe().atomic().set("tx", 1).incr("tx", 1).query(&mut one)?;
    assert_eq!(both, ("OK".to_owned(), 2));
    let big = "x".repeat(300_000);
    let () = one.set("big", &big)?;
    let got: String = one.get_del("big")?;
    assert!(got == big, "a long value");
    let list = std::env::args().nth(2).expect("a list of commands");
    let list = std::fs::read_to_string(list).expect("the list of commands");
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.trim_start_matches('!').split(' ');
        let mut command = redis::cmd(words.next().expect("a name"));
        for word in words {
            command.arg(word);
        }
        let reply: RedisResult<redis::Value> = command.query(&mut one);
        assert_eq!(reply.is_err(), line.starts_with('!'), "{line}: {reply:?}");
    }
    println!("done");
    Ok(())
}
