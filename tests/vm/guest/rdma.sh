#!/bin/bash
# rdma.sh OBOL TESTS DECIDE - what the tests with real processes hold over shared memory, they hold over RDMA; and what
# the two cost beside each other and beside the bare device.
set -euo pipefail
# shellcheck source=lib.sh
. "$VM_GUEST/lib.sh"
cd /tmp

# Binaries are read once from the host, not page by page. The tests start the program by its path there.
cp "/host$1" obol
cp "/host$2" tests
cp "/host$3" decide
if [ ! -e "$1" ]; then
  mkdir -p "$(dirname "$1")"
  touch "$1"
fi
mount --bind obol "$1"

dummy dummy0 10.1.0.1/24
soft_roce rxe0 dummy0
export OBOL_TEST_UP="--rdma 10.1.0.1 --profile soft-roce"
step "a cluster of real processes over RDMA"
./tests --test-threads 1 --exact \
  life::a_killed_app_is_removed_and_comes_back_under_its_name_as_a_new_incarnation \
  life::the_leader_can_be_killed_by_its_role_and_another_leads \
  life::every_kind_of_process_leaves_gracefully_when_it_is_stopped_and_nobody_fails \
  faults::without_a_majority_nothing_is_active_and_with_it_all_is_again \
  faults::a_cluster_whose_coordinators_all_died_goes_on_where_they_stopped \
  faults::an_agent_that_dies_takes_its_app_out_and_the_app_attaches_to_its_successor \
  frozen::a_frozen_app_is_excluded_and_comes_back_as_somebody_new \
  frozen::a_frozen_agent_is_fenced_and_its_app_goes_with_it_and_both_come_back \
  frozen::a_frozen_leader_is_replaced_and_leads_no_view_when_it_wakes \
  caches::agents_change_their_cache_when_it_dies_and_need_none \
  drills::each_drill_reports_one_object \
  console::an_operator_sees_the_cluster_and_gets_the_terminal_back

step "the same with keys: connections and datagrams are authenticated"
OBOL_TEST_UP="$OBOL_TEST_UP --rdma-keys" ./tests --test-threads 1 --exact \
  life::a_killed_app_is_removed_and_comes_back_under_its_name_as_a_new_incarnation \
  life::the_leader_can_be_killed_by_its_role_and_another_leads \
  faults::without_a_majority_nothing_is_active_and_with_it_all_is_again \
  faults::an_agent_that_dies_takes_its_app_out_and_the_app_attaches_to_its_successor \
  smr::with_permissions_a_store_survives_its_leader_and_refuses_replicas_of_another_preset

# Debian's kernel has netem, which a machine that runs the tests may lack.
step "a drill delays the packets between hosts"
emulated_profile ./obol emulated.toml
# Loading them in the middle of a drill takes an emulated processor longer than a cue may.
modprobe -a ifb sch_netem sch_ingress cls_bpf act_mirred
OBOL_TEST_UP="--profile emulated.toml" OBOL_NETEM=require ./tests --test-threads 1 --exact \
  network::a_drill_delays_the_packets_of_a_host_and_leaves_the_queues_of_its_interface_alone

# median FIELD: of the JSON object on standard input, `"FIELD":{.."p50":N..` or `"FIELD":N`.
median() {
  sed -n "s/.*\"$1\":\({[^}]*\"p50\":\)\{0,1\}\([0-9.]*\).*/\2/p"
}

# far_out WHAT MEASURED FLOOR MUST: prints the ratio; more than three times what it must be is a fault.
far_out() {
  awk -v what="$1" -v measured="$2" -v floor="$3" -v must="$4" 'BEGIN {
    ratio = measured / floor
    printf "%s: %.1f us against %.1f us, ratio %.2f (must be at most %.1f)\n", what, measured, floor, ratio, must
    exit !(ratio <= 3 * must)
  }'
}

# Both sides of a ratio are measured in turns: what else the one processor does changes within minutes.
readonly ROUNDS=3

# middle FILE: the median of its lines.
middle() {
  sort -g "$1" | sed -n "$(((ROUNDS + 1) / 2))p"
}

step "consensus beside the bare device"
for ((round = 0; round < ROUNDS; round++)); do
  ./obol bench --rdma 10.1.0.1 --json >bench.json
  bytes=$(sed -n 's/.*"value_bytes":\([0-9]*\).*/\1/p' bench.json)
  median decide_us <bench.json >>decide.log
  ./decide rxe0 "$(gid_index rxe0)" "$bytes" >>floor.log
done
far_out "decide" "$(middle decide.log)" "$(middle floor.log)" 1.5 || fail "a decision is far from its floor"

# field NAME FILE: a number, or true or false, of the JSON object in a file.
field() {
  sed -n "s/.*\"$1\":\([a-z0-9.]*\).*/\1/p" "$2"
}

step "the cache, whose primaries are killed"
./obol up --headless --profile soft-roce --apps 1 --rdma 10.1.0.1 >up.log 2>&1 &
up=$!
until_true "a healthy cluster" ./obol status
# It fails if an answer is wrong, or if the cache is not redundant again after each kill. A host that is overloaded may have
# others fail beside those that are killed; then the state is lost, and the run proves nothing.
for try in 1 2 3; do
  ./obol kv check --for 6s --kill-every 2s --clients 1 --poll-every 2ms --json >kv.json 2>kv.log && break
  if [ "$(field lost kv.json)" != true ] || [ "$try" = 3 ]; then
    cat kv.json kv.log up.log >&2
    fail "the check of the cache"
  fi
done
cat kv.json
[ "$(field wrong kv.json)" = 0 ] || fail "answers of the cache are wrong"
for what in kills failovers gets puts; do
  [ "$(field $what kv.json)" -ge 1 ] || fail "no $what"
done

step "replicated stores whose replicas give permissions, and whose leaders are killed"
# leads REPLICAS PRESET: one of these (a regular expression) leads a log of this preset.
leads() {
  ./obol smr status --json >smr.json && grep -q "\"preset\":\"$2\"" smr.json && grep -Eq "\"leader\":\"($1)\"" smr.json
}

# holds VALUE: the store answers with it.
holds() {
  [ "$(./obol smr get a)" = "$1" ]
}

# With mu, replicas that get no processor for a while take the permissions from each other, so all of this may take some
# attempts.
for preset in mu+views mu dare; do
  replicas=()
  for name in smr-1 smr-2 smr-3; do
    begin=()
    [ "$name" != smr-1 ] || begin=(--force-empty)
    ./obol smr server --name "$name" --preset "$preset" "${begin[@]}" --json >"$name.json" 2>"$name.log" &
    replicas+=($!)
    until_true "an answer of a store with $preset" ./obol smr put a "$preset"
  done
  until_true "three votes on all that is written" grep -q '"redundancy":3' smr-{1,2,3}.json
  until_true "the first one leads" leads smr-1 "$preset"
  kill -KILL "${replicas[0]}"
  until_true "another one leads" leads "smr-2|smr-3" "$preset"
  until_true "what was written is there" holds "$preset"
  ./obol smr status
  kill "${replicas[@]:1}"
  wait "${replicas[@]}" || true
done
kill "$up"
wait "$up"

# failover ARGUMENT...: the median of the failovers of a cluster that is started so.
failover() {
  ./obol up --headless --profile soft-roce "$@" >up.log 2>&1 &
  local up=$!
  until_true "a healthy cluster" ./obol status
  ./obol drill app --count 15 --json >drill.json || { cat drill.json up.log >&2; fail "the drill of an app"; }
  kill "$up"
  wait "$up"
  median failover_us <drill.json
}

step "failover over both fabrics"
for ((round = 0; round < ROUNDS; round++)); do
  failover >>shm.log
  failover --rdma 10.1.0.1 >>rdma.log
done
far_out "failover" "$(middle rdma.log)" "$(middle shm.log)" 2 || fail "a failover over RDMA is far from one over shared memory"
