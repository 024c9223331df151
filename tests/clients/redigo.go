// Redigo with its defaults: arguments PORT and a list of commands. Built with GO111MODULE=off and the packages of Debian.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/gomodule/redigo/redis"
)

func must(ok bool, what string) {
	if !ok {
		log.Fatal(what)
	}
}

func main() {
	c, err := redis.Dial("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	pong, err := redis.String(c.Do("PING"))
	must(err == nil && pong == "PONG", "PING")
	said, err := redis.String(c.Do("SET", "go", "1", "EX", 1000))
	must(err == nil && said == "OK", "SET")
	number, err := redis.Int(c.Do("INCR", "go"))
	must(err == nil && number == 2, "INCR")
	left, err := redis.Int(c.Do("TTL", "go"))
	must(err == nil && 500 < left && left <= 1000, "TTL")
	_, err = redis.String(c.Do("GET", "none"))
	must(err == redis.ErrNil, "GET of nothing")
	c.Send("MULTI")
	c.Send("SET", "tx", "1")
	c.Send("INCR", "tx")
	both, err := redis.Values(c.Do("EXEC"))
	must(err == nil && len(both) == 2 && both[1] == int64(2), "EXEC")
	big := strings.Repeat("x", 300000)
	_, err = c.Do("SET", "big", big)
	must(err == nil, "SET of a long value")
	got, err := redis.String(c.Do("GETDEL", "big"))
	must(err == nil && got == big, "GETDEL of a long value")
	commands, err := os.ReadFile(os.Args[2])
	must(err == nil, "the list of commands")
	for _, line := range strings.Split(string(commands), "\n") {
		words := strings.Fields(strings.TrimPrefix(line, "!"))
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		args := []interface{}{}
		for _, word := range words[1:] {
			args = append(args, word)
		}
		reply, err := c.Do(words[0], args...)
		must((err != nil) == strings.HasPrefix(line, "!"), fmt.Sprint(line, ": ", reply, " ", err))
	}
	fmt.Println("done")
}
