#compdef obol

autoload -U is-at-least

_obol() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol_commands" \
"*::: :->obol" \
&& ret=0
    case $state in
    (obol)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-command-$line[1]:"
        case $line[1] in
            (up)
_arguments "${_arguments_options[@]}" : \
'--coordinators=[Coordinators (1 to 7; a majority must live)]:N:_default' \
'--apps=[App nodes\: an agent and a demo app attached to it, each]:N:_default' \
'--caches=[Lease caches, which renew the leases of agents so that coordinators need not]:N:_default' \
'--profile=[Profile\: a name that \`obol profile list\` knows, or a file]:NAME|FILE:_default' \
'--environment=[What this place is called; a drill runs only where it was made for]:LABEL:_default' \
'--rdma=[Join the processes over RDMA, by this address of the host, instead of shared memory; try the profile soft-roce]:IP[:PORT]:_default' \
'(--headless --plain --json)--record=[Record what the console sees to this file]:FILE:_files' \
'--config=[Theme, keys and columns \[default\: console.toml in ~/.config/obol\]; see \`obol config\`]:FILE:_files' \
'--theme=[Colours\: dark, light, safe (for all kinds of colour vision), 16 or mono \[default\: by TERM and NO_COLOR\]]:NAME:_default' \
'--for=[End by itself after this time, such as 20s or 1500ms]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--kv[A replicated cache beside the apps, with a gentle load\: kill its primary and nobody notices]' \
'--headless[Do not show the cluster; print one line when it is up]' \
'--plain[Print lines instead of opening the console, as it does where there is no terminal]' \
'--ascii[Draw lines and graphs in ASCII, as where the locale has no UTF-8]' \
'--bell[Sound the terminal'\''s bell when something new is alerted]' \
'(--headless --plain --json)--arm[Let drills be armed in the console, on screen 6]' \
'--json[Print events, and at the end a summary, as lines of JSON]' \
'--temporary[Read the profile from standard input, and end with it (asked for by commands with a cluster of their own)]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(console)
_arguments "${_arguments_options[@]}" : \
'--config=[Theme, keys and columns \[default\: console.toml in ~/.config/obol\]; see \`obol config\`]:FILE:_files' \
'--theme=[Colours\: dark, light, safe (for all kinds of colour vision), 16 or mono \[default\: by TERM and NO_COLOR\]]:NAME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--ascii[Draw lines and graphs in ASCII, as where the locale has no UTF-8]' \
'--bell[Sound the terminal'\''s bell when something new is alerted]' \
'--arm[Let drills be armed on screen 6\: a preview, the cluster'\''s name typed, and a key]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(record)
_arguments "${_arguments_options[@]}" : \
'--for=[End by itself after this time, such as 20s or 1500ms]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':file -- The file; one that is there already is not overwritten:_files' \
&& ret=0
;;
(replay)
_arguments "${_arguments_options[@]}" : \
'--config=[Theme, keys and columns \[default\: console.toml in ~/.config/obol\]; see \`obol config\`]:FILE:_files' \
'--theme=[Colours\: dark, light, safe (for all kinds of colour vision), 16 or mono \[default\: by TERM and NO_COLOR\]]:NAME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--ascii[Draw lines and graphs in ASCII, as where the locale has no UTF-8]' \
'--bell[Sound the terminal'\''s bell when something new is alerted]' \
'-h[Print help]' \
'--help[Print help]' \
':file -- The recording:_files' \
&& ret=0
;;
(report)
_arguments "${_arguments_options[@]}" : \
'--format=[How it is written]:FORMAT:(md json csv perfetto html hdr openmetrics)' \
'()--for=[How long a cluster is looked at; flight recorders tell of earlier failovers, too]:TIME:_default' \
'-o+[Write it to this file]:FILE:_files' \
'--output=[Write it to this file]:FILE:_files' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
'::file -- A recording \[default\: the cluster, looked at now\]:_files' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(events)
_arguments "${_arguments_options[@]}" : \
'--last=[So many of the newest events]:N:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object per event]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(watch)
_arguments "${_arguments_options[@]}" : \
'--from=[Begin with this view instead of the newest]:VIEW:_default' \
'--count=[End after so many views and gaps]:N:_default' \
'--save=[Keep the newest view in this file, for \`obol coordinator recover\` after a disaster]:FILE:_files' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--once[End as soon as the newest view is told]' \
'--json[Print one JSON object per view or gap]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(mark)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':text -- What to note, on one line:_default' \
&& ret=0
;;
(kill)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':target -- A process by name (app-2, node-1, cache-1, coord-3) or by role (leader):_default' \
&& ret=0
;;
(stop)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':target -- A process by name (app-2, node-1, cache-1, coord-3) or by role (leader):_default' \
&& ret=0
;;
(start)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':target -- A process by name (app-2, node-1, cache-1, coord-3) or by role (leader):_default' \
&& ret=0
;;
(down)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
'--name=[The name that the program has in the cluster]:NAME:_default' \
'--node=[The agent that it belongs to; may be left out where this host has just one]:AGENT:_default' \
'--on-view=[A program to execute whenever a view with this member becomes active]:HOOK:_default' \
'--on-lost=[A program to execute when the membership is lost, and before it is given up when the program was asked to end. Without one the program is killed when the membership is lost]:HOOK:_default' \
'--views-to=[A program that is started once, and told all that by lines on its standard input\: "view ID INCARNATION MEMBER.." and "lost ID INCARNATION WHY"]:HOOK:_default' \
'--grace=[How long the program has to end after SIGTERM or SIGINT; then it is killed with all that it started. A second signal kills at once]:TIME:_default' \
'--hook-timeout=[A hook or health command that takes longer is killed]:TIME:_default' \
'--health=[A program to execute now and then; the member joins after its first success, however long that takes]:COMMAND:_default' \
'--health-every=[How often the health command is executed]:TIME:_default' \
'--health-failures=[So many failures of it in a row after its first success, and the program is killed]:N:_default' \
'--restart=[When the program is started again after it has ended]:RESTART:((never\:"Never\: \`run\` ends with the program"
on-failure\:"When it ended with another exit code than 0, or by a signal"
always\:"Whenever it ended"))' \
'--restart-pause=[The pause before the first start again; doubles with each one]:TIME:_default' \
'--restart-pause-max=[The longest pause; a program that lived as long starts with short ones again]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--no-group[Do not use a control group, even where one could be made]' \
'--shell[Hooks and the health command are lines for /bin/sh, not programs]' \
'--json[Tell what happens as JSON lines on standard error]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'*::words -- The program and its arguments:_default' \
&& ret=0
;;
(kv)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__kv_commands" \
"*::: :->kv" \
&& ret=0

    case $state in
    (kv)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-kv-command-$line[1]:"
        case $line[1] in
            (server)
_arguments "${_arguments_options[@]}" : \
'--name=[Its name\: kv- and something]:NAME:_default' \
'--shards=[Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number]:N:_default' \
'--poll-every=[How often it looks into its memory; 0 keeps a core for each shard busy that nobody else wants]:TIME:_default' \
'--core=[Stay on this core; further shards on those that follow]:N:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--begin-anew[Begin with nothing if this is the first server, even if others had the state and died; end all servers of before first]' \
'--json[Print where it stands as JSON lines]' \
'--tied[End with the process that started it]' \
'--temporary[Its keys are nobody'\''s but those of the command that started it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(get)
_arguments "${_arguments_options[@]}" : \
'--name=[Its name in the cluster]:NAME:_default' \
'--timeout=[Give up after so long]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':key -- The key:_default' \
&& ret=0
;;
(put)
_arguments "${_arguments_options[@]}" : \
'--name=[Its name in the cluster]:NAME:_default' \
'--timeout=[Give up after so long]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':key -- The key:_default' \
':value -- The value, at most 1024 bytes:_default' \
&& ret=0
;;
(load)
_arguments "${_arguments_options[@]}" : \
'--name=[Its name in the cluster]:NAME:_default' \
'--every=[Four operations so often]:TIME:_default' \
'--tell-every=[Tell how it goes so often]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print JSON lines]' \
'--tied[End with the process that started it]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
'--for=[For how long]:TIME:_default' \
'--servers=[Servers; one that is killed is started again]:N:_default' \
'--shards=[Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number]:N:_default' \
'--clients=[Clients, each a thread and a member]:N:_default' \
'--kill-every=[Kill the primary so often, when its backup has everything]:TIME:_default' \
'--freeze-every=[Freeze a server about so often, whatever else goes on]:TIME:_default' \
'--freeze-max=[For so long at most]:TIME:_default' \
'--poll-every=[How often servers and clients look into their memory]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bench)
_arguments "${_arguments_options[@]}" : \
'--turn=[How long each server is asked in each round]:TIME:_default' \
'--rounds=[Rounds; figures are the medians of all]:N:_default' \
'--backups=[Backups of the cache'\''s primary]:N:_default' \
'--shards=[Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number]:N:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object per server]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(drill)
_arguments "${_arguments_options[@]}" : \
'--count=[Repetitions; a p99 is claimed from 299 on]:N:_default' \
'--gap=[Pause between repetitions]:TIME:_default' \
'--observe=[Whose failover\: the members'\'', or beside it that of a client of a replicated cache, whose primary is then the app]:OBSERVE:((members\:"Until every survivor'\''s view is active"
client\:"From a client'\''s last success to its first at the new primary"))' \
'--shards=[Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number]:N:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':kind -- Who dies\: an app, the leading coordinator, a lease cache, or several at once:(app leader cache app+leader app+cache app+leader+cache)' \
":: :_obol__subcmd__drill_commands" \
"*::: :->drill" \
&& ret=0

    case $state in
    (drill)
        words=($line[2] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-drill-command-$line[2]:"
        case $line[2] in
            (list)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':drill -- Its name:_default' \
&& ret=0
;;
(schema)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--journal[Of \`journal.json\`, which a run leaves]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(plan)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':drill -- A drill that ships (`obol drill list`), or a file if it has a '\''/'\'' or ends in .toml:_default' \
&& ret=0
;;
(probes)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':drill -- A drill that ships (`obol drill list`), or a file if it has a '\''/'\'' or ends in .toml:_default' \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
'--count=[Repetitions, in place of the file'\''s]:N:_default' \
'--out=[Directory for the files of the report, which must not exist yet \[default\: drill-NAME-N where the drill names files\]]:DIR:_files' \
'--ssh=[Let the fault agent inject on this host, by your own ssh\: your configuration, agent and known hosts; it never asks]:[USER@]HOST:_default' \
'--ssh-config=[A configuration for ssh in place of your own]:FILE:_files' \
'--ssh-program=[The path of obol on that host \[default\: as here\]]:FILE:_files' \
'--profile=[With --sim or table2\: the profile of the clusters, a name or a file]:NAME|FILE:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'--progress[Tell each repetition on standard error (asked for by the console)]' \
'(--ssh --no-fence)--sim[Run it in the simulator, on a cluster of 3 coordinators, 3 app nodes and, where the drill hits any, 3 lease caches\: no process is touched, and the same drill gives the same result]' \
'--yes[Say yes to a drill that requires it]' \
'--no-fence[table2 only\: measure each cell without fences as well, so that failovers wait for leases as in the paper]' \
'-h[Print help]' \
'--help[Print help]' \
':drill -- A drill that ships (`obol drill list`), or a file if it has a '\''/'\'' or ends in .toml:_default' \
&& ret=0
;;
(replay)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--yes[Say yes to what the script does]' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':script -- A script of the simulator:_files' \
&& ret=0
;;
(recover)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(tune)
_arguments "${_arguments_options[@]}" : \
'--share=[Renewals that must come in time, in percent]:PERCENT:_default' \
'--time=[How long each step is measured; one that can not reach the share any more ends early]:TIME:_default' \
'--profile=[The profile to start from\: a name that \`obol profile list\` knows, or a file]:NAME|FILE:_default' \
'--write=[Write the recommended profile to this file, which must not exist yet]:FILE:_files' \
'--html=[Write the evidence to this file, as a page that needs no other]:FILE:_files' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bench)
_arguments "${_arguments_options[@]}" : \
'--count=[Failovers, and failovers of the floor program]:N:_default' \
'--rdma=[Measure consensus over RDMA instead, by this address of the host]:IP[:PORT]:_default' \
'--profile=[Profile for --rdma\: a name that \`obol profile list\` knows, or a file]:NAME|FILE:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__bench_commands" \
"*::: :->bench" \
&& ret=0

    case $state in
    (bench)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-bench-command-$line[1]:"
        case $line[1] in
            (console)
_arguments "${_arguments_options[@]}" : \
'--nodes=[Measure this cluster only]:32|512:_default' \
'--seconds=[How long each share of a core is measured]:S:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(sim)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__sim_commands" \
"*::: :->sim" \
&& ret=0

    case $state in
    (sim)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-sim-command-$line[1]:"
        case $line[1] in
            (campaign)
_arguments "${_arguments_options[@]}" : \
'--seeds=[How many seeds]:N:_default' \
'--seed=[The first seed]:S:_default' \
'--keep=[Where the scenarios are saved to which violating seeds are shrunk]:DIR:_files' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(replay)
_arguments "${_arguments_options[@]}" : \
'--mutant=[Plant this bug (in a build with the feature \`mutants\`) instead of what the file names]:NAME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':what -- A seed, or a scenario file:_default' \
&& ret=0
;;
(shrink)
_arguments "${_arguments_options[@]}" : \
'--mutant=[Plant this bug (in a build with the feature \`mutants\`)]:NAME:_default' \
'-o+[Where to save it \[default\: obol-seed-SEED.toml\]]:FILE:_files' \
'--output=[Where to save it \[default\: obol-seed-SEED.toml\]]:FILE:_files' \
'--budget=[Runs that it may take]:N:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':what -- A seed, or a scenario file:_default' \
&& ret=0
;;
(mutants)
_arguments "${_arguments_options[@]}" : \
'--budget=[Seeds that a bug may survive before the campaign has failed]:N:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(table2)
_arguments "${_arguments_options[@]}" : \
'--repetitions=[Failovers behind each figure]:N:_default' \
'--model=[Testbed\: infiniband, or a file]:NAME|FILE:_default' \
'--seed=[The first seed; the same seed gives the same figures]:S:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(leases)
_arguments "${_arguments_options[@]}" : \
'--span-ms=[Simulated time of each load]:MS:_default' \
'--model=[Testbed\: infiniband, or a file]:NAME|FILE:_default' \
'--seed=[The first seed; the same seed gives the same figures]:S:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(scale)
_arguments "${_arguments_options[@]}" : \
'--up-to=[The largest size; sizes double from 8 on]:MEMBERS:_default' \
'--repetitions=[Failovers behind each figure]:N:_default' \
'--model=[Testbed\: infiniband, or a file]:NAME|FILE:_default' \
'--seed=[The first seed; the same seed gives the same figures]:S:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(report)
_arguments "${_arguments_options[@]}" : \
'--up-to=[The largest size for \`scale\`]:MEMBERS:_default' \
'--model=[Testbed\: infiniband, or a file]:NAME|FILE:_default' \
'--seed=[The first seed; the same seed gives the same figures]:S:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':to -- Where to write it\: a file, or a directory that exists:_files' \
&& ret=0
;;
        esac
    ;;
esac
;;
(profile)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__profile_commands" \
"*::: :->profile" \
&& ret=0

    case $state in
    (profile)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-profile-command-$line[1]:"
        case $line[1] in
            (list)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(show)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':profile -- Profile\: a name that `obol profile list` knows, or a file:_default' \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':file -- The file:_files' \
&& ret=0
;;
(reference)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(config)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__config_commands" \
"*::: :->config" \
&& ret=0

    case $state in
    (config)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-config-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
'::file -- The file \[default\: the one that a console would take\]:_files' \
&& ret=0
;;
(print)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
'::file -- The file \[default\: the one that a console would take\]:_files' \
&& ret=0
;;
(schema)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(fabric)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__fabric_commands" \
"*::: :->fabric" \
&& ret=0

    case $state in
    (fabric)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-fabric-command-$line[1]:"
        case $line[1] in
            (list)
_arguments "${_arguments_options[@]}" : \
'--address=[Use the port that this own IP address belongs to]:IP:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(host)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__host_commands" \
"*::: :->host" \
&& ret=0

    case $state in
    (host)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-host-command-$line[1]:"
        case $line[1] in
            (example)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(check)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':file -- The file, the same on all hosts:_files' \
&& ret=0
;;
(prepare)
_arguments "${_arguments_options[@]}" : \
'--address=[Which of the file'\''s hosts this is, where its addresses do not tell]:IP:_default' \
'--state=[Where to note, across boots, that this host'\''s coordinator has voted]:DIR:_files' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':file -- The file, the same on all hosts:_files' \
&& ret=0
;;
(clean)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':file -- The file, the same on all hosts:_files' \
&& ret=0
;;
        esac
    ;;
esac
;;
(detector)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__detector_commands" \
"*::: :->detector" \
&& ret=0

    case $state in
    (detector)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-detector-command-$line[1]:"
        case $line[1] in
            (show)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(load)
_arguments "${_arguments_options[@]}" : \
'--group=[Let this group use them, by name or number; without it only root may]:GROUP:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(unload)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(man)
_arguments "${_arguments_options[@]}" : \
'--dir=[Write a page for obol and one for each command into this directory, which must exist]:DIR:_files' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
':shell -- Which shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(coordinator)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__coordinator_commands" \
"*::: :->coordinator" \
&& ret=0

    case $state in
    (coordinator)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-coordinator-command-$line[1]:"
        case $line[1] in
            (add)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
'::number -- Its number \[default\: the lowest that is free\]:_default' \
&& ret=0
;;
(remove)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':number -- Its number:_default' \
&& ret=0
;;
(replace)
_arguments "${_arguments_options[@]}" : \
'--with=[The number of the one that comes \[default\: the lowest that is free\]]:NUMBER:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':number -- The number of the one that goes:_default' \
&& ret=0
;;
(recover)
_arguments "${_arguments_options[@]}" : \
'--from=[Where the view comes from\: \`agents\`, the newest that any process knows, or a file of \`obol coordinator run --save\` or \`obol watch --save\`]:agents|FILE:_default' \
'*--found=[What \`obol coordinator found --json\` printed on another host; once for each]:FILE:_files' \
'*--lost=[Give up another host\: it is off for good, or was started anew, and nothing of the cluster from before runs there]:HOST:_default' \
'--longest-lease=[Wait for leases of this duration if that is longer than lease.max\: where one was set with --beyond-max, and a host that is given up may have had it]:TIME:_default' \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(found)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print what \`obol coordinator recover --found\` reads]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
        esac
    ;;
esac
;;
(lease)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'-h[Print help]' \
'--help[Print help]' \
":: :_obol__subcmd__lease_commands" \
"*::: :->lease" \
&& ret=0

    case $state in
    (lease)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:obol-lease-command-$line[1]:"
        case $line[1] in
            (show)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(set)
_arguments "${_arguments_options[@]}" : \
'--cluster=[Name of the cluster; several can run side by side]:NAME:_default' \
'--root=[Directory that holds the clusters of this host \[default\: /dev/shm/obol-UID\]]:DIR:_files' \
'--beyond-max[Let it be longer than the profile'\''s lease.max]' \
'--json[Print one JSON object for scripts]' \
'-h[Print help]' \
'--help[Print help]' \
':length -- The duration, such as 40ms; or usual, or max\: what the profile says:_default' \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_obol_commands] )) ||
_obol_commands() {
    local commands; commands=(
'up:Start a cluster on this host and show it live' \
'console:Watch a cluster live\: members, leases, events' \
'record:Record a cluster to a file until Ctrl-C; \`replay\` shows it again' \
'replay:Show a recording on the console'\''s screens' \
'report:Report on a recording, or on a cluster that is looked at for a while' \
'status:Show a cluster'\''s health; exit code 0 healthy, 1 degraded, 2 unreachable, 3 unavailable' \
'events:Print the flight recorders of all processes, merged by time' \
'watch:Follow the views\: who joined, left or failed, in order and without a gap' \
'mark:Note something for every console and recorder of the cluster\: it divides before from after' \
'kill:Kill a process with SIGKILL, by name (app-2) or by role (leader)' \
'stop:Let a process leave the cluster gracefully and end; nobody counts it as failed' \
'start:Start a process of the cluster that is down' \
'down:End a cluster, and clean up what a crashed \`up\` left behind' \
'run:Run any program as a member, without a change to it' \
'kv:A replicated cache on the cluster, whose clients hardly see a failover' \
'drill:Break a cluster on purpose, and judge how it bears that' \
'tune:Find the lease and the heartbeat that this machine sustains, and write a profile' \
'bench:Measure this host'\''s floor and the product in one run, and print their ratios' \
'sim:Run whole clusters in virtual time under faults and check them against the invariants' \
'profile:Show and check profiles\: every constant of a deployment' \
'config:Check and print how the console is configured\: theme, keys, columns' \
'fabric:Show this host'\''s RDMA devices, and what is missing to use them' \
'host:Make this host ready for a cluster of several hosts, which a file describes' \
'detector:Show which death detector this host has; load and unload the eBPF programs, for hosts without the kernel module' \
'man:Print the manual page of obol, or write those of all its commands' \
'completions:Print a shell completion script' \
'coordinator:Change who decides while the cluster runs\: add, remove or replace coordinators' \
'lease:Show how long leases last, or change it while the cluster runs' \
    )
    _describe -t commands 'obol commands' commands "$@"
}
(( $+functions[_obol__subcmd__bench_commands] )) ||
_obol__subcmd__bench_commands() {
    local commands; commands=(
'console:Measure what the console costs, and how quick its keys are, in a terminal of 200x50 on synthetic clusters' \
    )
    _describe -t commands 'obol bench commands' commands "$@"
}
(( $+functions[_obol__subcmd__bench__subcmd__console_commands] )) ||
_obol__subcmd__bench__subcmd__console_commands() {
    local commands; commands=()
    _describe -t commands 'obol bench console commands' commands "$@"
}
(( $+functions[_obol__subcmd__completions_commands] )) ||
_obol__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'obol completions commands' commands "$@"
}
(( $+functions[_obol__subcmd__config_commands] )) ||
_obol__subcmd__config_commands() {
    local commands; commands=(
'check:Check a configuration; every mistake is named with line and column' \
'print:Print a configuration whole, with what it leaves out' \
'schema:Print the JSON Schema of configurations, for editors' \
    )
    _describe -t commands 'obol config commands' commands "$@"
}
(( $+functions[_obol__subcmd__config__subcmd__check_commands] )) ||
_obol__subcmd__config__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'obol config check commands' commands "$@"
}
(( $+functions[_obol__subcmd__config__subcmd__print_commands] )) ||
_obol__subcmd__config__subcmd__print_commands() {
    local commands; commands=()
    _describe -t commands 'obol config print commands' commands "$@"
}
(( $+functions[_obol__subcmd__config__subcmd__schema_commands] )) ||
_obol__subcmd__config__subcmd__schema_commands() {
    local commands; commands=()
    _describe -t commands 'obol config schema commands' commands "$@"
}
(( $+functions[_obol__subcmd__console_commands] )) ||
_obol__subcmd__console_commands() {
    local commands; commands=()
    _describe -t commands 'obol console commands' commands "$@"
}
(( $+functions[_obol__subcmd__coordinator_commands] )) ||
_obol__subcmd__coordinator_commands() {
    local commands; commands=(
'add:Start another coordinator, and let it decide' \
'remove:Let a coordinator decide no more, and stop it if it runs' \
'replace:Add a coordinator, then remove another, dead or alive' \
'recover:After a disaster\: go on with new coordinators from a view that survived; what was decided after it is lost' \
'found:What this host still has of a cluster of several\: evidence for \`obol coordinator recover\` on another host' \
    )
    _describe -t commands 'obol coordinator commands' commands "$@"
}
(( $+functions[_obol__subcmd__coordinator__subcmd__add_commands] )) ||
_obol__subcmd__coordinator__subcmd__add_commands() {
    local commands; commands=()
    _describe -t commands 'obol coordinator add commands' commands "$@"
}
(( $+functions[_obol__subcmd__coordinator__subcmd__found_commands] )) ||
_obol__subcmd__coordinator__subcmd__found_commands() {
    local commands; commands=()
    _describe -t commands 'obol coordinator found commands' commands "$@"
}
(( $+functions[_obol__subcmd__coordinator__subcmd__recover_commands] )) ||
_obol__subcmd__coordinator__subcmd__recover_commands() {
    local commands; commands=()
    _describe -t commands 'obol coordinator recover commands' commands "$@"
}
(( $+functions[_obol__subcmd__coordinator__subcmd__remove_commands] )) ||
_obol__subcmd__coordinator__subcmd__remove_commands() {
    local commands; commands=()
    _describe -t commands 'obol coordinator remove commands' commands "$@"
}
(( $+functions[_obol__subcmd__coordinator__subcmd__replace_commands] )) ||
_obol__subcmd__coordinator__subcmd__replace_commands() {
    local commands; commands=()
    _describe -t commands 'obol coordinator replace commands' commands "$@"
}
(( $+functions[_obol__subcmd__detector_commands] )) ||
_obol__subcmd__detector_commands() {
    local commands; commands=(
'show:Show whether the module, eBPF programs or neither would report the deaths of this user'\''s processes, and why' \
'load:Load the eBPF programs, as root; they stay until \`unload\` or a reboot' \
'unload:Take the eBPF programs out, as root; no death is lost meanwhile' \
    )
    _describe -t commands 'obol detector commands' commands "$@"
}
(( $+functions[_obol__subcmd__detector__subcmd__load_commands] )) ||
_obol__subcmd__detector__subcmd__load_commands() {
    local commands; commands=()
    _describe -t commands 'obol detector load commands' commands "$@"
}
(( $+functions[_obol__subcmd__detector__subcmd__show_commands] )) ||
_obol__subcmd__detector__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'obol detector show commands' commands "$@"
}
(( $+functions[_obol__subcmd__detector__subcmd__unload_commands] )) ||
_obol__subcmd__detector__subcmd__unload_commands() {
    local commands; commands=()
    _describe -t commands 'obol detector unload commands' commands "$@"
}
(( $+functions[_obol__subcmd__down_commands] )) ||
_obol__subcmd__down_commands() {
    local commands; commands=()
    _describe -t commands 'obol down commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill_commands] )) ||
_obol__subcmd__drill_commands() {
    local commands; commands=(
'list:List the drills that ship' \
'show:Print a drill that ships, as a start for one'\''s own' \
'schema:Print the JSON Schema of drill files, or of journals' \
'plan:Tell what a drill would hit, and what each guard says; touches nothing' \
'probes:Look whether the steady state of a drill holds' \
'run:Run a drill\: steady state, cue, failover, undo, and again; then the verdict' \
'replay:Play the faults of a simulator'\''s script on processes, and wait until the cluster is healthy' \
'recover:Undo what a drill left behind when its processes were killed; twice gives the same result' \
    )
    _describe -t commands 'obol drill commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__list_commands] )) ||
_obol__subcmd__drill__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill list commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__plan_commands] )) ||
_obol__subcmd__drill__subcmd__plan_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill plan commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__probes_commands] )) ||
_obol__subcmd__drill__subcmd__probes_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill probes commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__recover_commands] )) ||
_obol__subcmd__drill__subcmd__recover_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill recover commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__replay_commands] )) ||
_obol__subcmd__drill__subcmd__replay_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill replay commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__run_commands] )) ||
_obol__subcmd__drill__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill run commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__schema_commands] )) ||
_obol__subcmd__drill__subcmd__schema_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill schema commands' commands "$@"
}
(( $+functions[_obol__subcmd__drill__subcmd__show_commands] )) ||
_obol__subcmd__drill__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'obol drill show commands' commands "$@"
}
(( $+functions[_obol__subcmd__events_commands] )) ||
_obol__subcmd__events_commands() {
    local commands; commands=()
    _describe -t commands 'obol events commands' commands "$@"
}
(( $+functions[_obol__subcmd__fabric_commands] )) ||
_obol__subcmd__fabric_commands() {
    local commands; commands=(
'list:List devices, ports and GIDs, mark what would be used, and say what is missing and how to get it' \
    )
    _describe -t commands 'obol fabric commands' commands "$@"
}
(( $+functions[_obol__subcmd__fabric__subcmd__list_commands] )) ||
_obol__subcmd__fabric__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'obol fabric list commands' commands "$@"
}
(( $+functions[_obol__subcmd__host_commands] )) ||
_obol__subcmd__host_commands() {
    local commands; commands=(
'example:Print a file to start from, with an identity drawn for a new cluster' \
'check:Check the file; every mistake is named with line and column' \
'prepare:Make the memory in which this host'\''s processes of the cluster meet; done once after each boot' \
'clean:Remove the cluster'\''s memory from this host; its processes must have ended' \
    )
    _describe -t commands 'obol host commands' commands "$@"
}
(( $+functions[_obol__subcmd__host__subcmd__check_commands] )) ||
_obol__subcmd__host__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'obol host check commands' commands "$@"
}
(( $+functions[_obol__subcmd__host__subcmd__clean_commands] )) ||
_obol__subcmd__host__subcmd__clean_commands() {
    local commands; commands=()
    _describe -t commands 'obol host clean commands' commands "$@"
}
(( $+functions[_obol__subcmd__host__subcmd__example_commands] )) ||
_obol__subcmd__host__subcmd__example_commands() {
    local commands; commands=()
    _describe -t commands 'obol host example commands' commands "$@"
}
(( $+functions[_obol__subcmd__host__subcmd__prepare_commands] )) ||
_obol__subcmd__host__subcmd__prepare_commands() {
    local commands; commands=()
    _describe -t commands 'obol host prepare commands' commands "$@"
}
(( $+functions[_obol__subcmd__kill_commands] )) ||
_obol__subcmd__kill_commands() {
    local commands; commands=()
    _describe -t commands 'obol kill commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv_commands] )) ||
_obol__subcmd__kv_commands() {
    local commands; commands=(
'server:Serve\: the oldest server is the primary, the next two are its backups' \
'get:Read a key' \
'put:Write a key' \
'load:Read and write now and then, as a demo' \
'check:Start servers, kill primaries, and hold every answer against what was written' \
'bench:Measure a replicated cache beside memcached and Redis, where they are installed' \
    )
    _describe -t commands 'obol kv commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv__subcmd__bench_commands] )) ||
_obol__subcmd__kv__subcmd__bench_commands() {
    local commands; commands=()
    _describe -t commands 'obol kv bench commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv__subcmd__check_commands] )) ||
_obol__subcmd__kv__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'obol kv check commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv__subcmd__get_commands] )) ||
_obol__subcmd__kv__subcmd__get_commands() {
    local commands; commands=()
    _describe -t commands 'obol kv get commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv__subcmd__load_commands] )) ||
_obol__subcmd__kv__subcmd__load_commands() {
    local commands; commands=()
    _describe -t commands 'obol kv load commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv__subcmd__put_commands] )) ||
_obol__subcmd__kv__subcmd__put_commands() {
    local commands; commands=()
    _describe -t commands 'obol kv put commands' commands "$@"
}
(( $+functions[_obol__subcmd__kv__subcmd__server_commands] )) ||
_obol__subcmd__kv__subcmd__server_commands() {
    local commands; commands=()
    _describe -t commands 'obol kv server commands' commands "$@"
}
(( $+functions[_obol__subcmd__lease_commands] )) ||
_obol__subcmd__lease_commands() {
    local commands; commands=(
'show:Show how long leases last now, and within which limits they adapt' \
'set:Have leases of another duration; a view that says so is decided, and no lease is disturbed' \
    )
    _describe -t commands 'obol lease commands' commands "$@"
}
(( $+functions[_obol__subcmd__lease__subcmd__set_commands] )) ||
_obol__subcmd__lease__subcmd__set_commands() {
    local commands; commands=()
    _describe -t commands 'obol lease set commands' commands "$@"
}
(( $+functions[_obol__subcmd__lease__subcmd__show_commands] )) ||
_obol__subcmd__lease__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'obol lease show commands' commands "$@"
}
(( $+functions[_obol__subcmd__man_commands] )) ||
_obol__subcmd__man_commands() {
    local commands; commands=()
    _describe -t commands 'obol man commands' commands "$@"
}
(( $+functions[_obol__subcmd__mark_commands] )) ||
_obol__subcmd__mark_commands() {
    local commands; commands=()
    _describe -t commands 'obol mark commands' commands "$@"
}
(( $+functions[_obol__subcmd__profile_commands] )) ||
_obol__subcmd__profile_commands() {
    local commands; commands=(
'list:List the built-in profiles' \
'show:Print a profile with every constant' \
'check:Check a profile file; every mistake is named with line and column' \
'reference:Print what each constant means, its unit and bounds' \
    )
    _describe -t commands 'obol profile commands' commands "$@"
}
(( $+functions[_obol__subcmd__profile__subcmd__check_commands] )) ||
_obol__subcmd__profile__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'obol profile check commands' commands "$@"
}
(( $+functions[_obol__subcmd__profile__subcmd__list_commands] )) ||
_obol__subcmd__profile__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'obol profile list commands' commands "$@"
}
(( $+functions[_obol__subcmd__profile__subcmd__reference_commands] )) ||
_obol__subcmd__profile__subcmd__reference_commands() {
    local commands; commands=()
    _describe -t commands 'obol profile reference commands' commands "$@"
}
(( $+functions[_obol__subcmd__profile__subcmd__show_commands] )) ||
_obol__subcmd__profile__subcmd__show_commands() {
    local commands; commands=()
    _describe -t commands 'obol profile show commands' commands "$@"
}
(( $+functions[_obol__subcmd__record_commands] )) ||
_obol__subcmd__record_commands() {
    local commands; commands=()
    _describe -t commands 'obol record commands' commands "$@"
}
(( $+functions[_obol__subcmd__replay_commands] )) ||
_obol__subcmd__replay_commands() {
    local commands; commands=()
    _describe -t commands 'obol replay commands' commands "$@"
}
(( $+functions[_obol__subcmd__report_commands] )) ||
_obol__subcmd__report_commands() {
    local commands; commands=()
    _describe -t commands 'obol report commands' commands "$@"
}
(( $+functions[_obol__subcmd__run_commands] )) ||
_obol__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'obol run commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim_commands] )) ||
_obol__subcmd__sim_commands() {
    local commands; commands=(
'campaign:Run many seeds; exit code 1 if an invariant is violated' \
'replay:Run one seed or scenario file again and print what happened' \
'shrink:Drop from a violating seed or scenario whatever the violation does not need, and save the rest' \
'mutants:Plant each bug and count the seeds until it is caught (in a build with the feature \`mutants\`)' \
'table2:uKharon'\''s Table 2 on a simulated testbed\: failover times beside the published ones' \
'leases:uKharon'\''s Figure 3 on a simulated testbed\: how long leases must be to be renewed in time' \
'scale:How failovers and renewals scale on a simulated testbed, from 8 to 4096 members' \
'report:Run table2, leases and scale, and draw them into one HTML page' \
    )
    _describe -t commands 'obol sim commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__campaign_commands] )) ||
_obol__subcmd__sim__subcmd__campaign_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim campaign commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__leases_commands] )) ||
_obol__subcmd__sim__subcmd__leases_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim leases commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__mutants_commands] )) ||
_obol__subcmd__sim__subcmd__mutants_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim mutants commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__replay_commands] )) ||
_obol__subcmd__sim__subcmd__replay_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim replay commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__report_commands] )) ||
_obol__subcmd__sim__subcmd__report_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim report commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__scale_commands] )) ||
_obol__subcmd__sim__subcmd__scale_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim scale commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__shrink_commands] )) ||
_obol__subcmd__sim__subcmd__shrink_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim shrink commands' commands "$@"
}
(( $+functions[_obol__subcmd__sim__subcmd__table2_commands] )) ||
_obol__subcmd__sim__subcmd__table2_commands() {
    local commands; commands=()
    _describe -t commands 'obol sim table2 commands' commands "$@"
}
(( $+functions[_obol__subcmd__start_commands] )) ||
_obol__subcmd__start_commands() {
    local commands; commands=()
    _describe -t commands 'obol start commands' commands "$@"
}
(( $+functions[_obol__subcmd__status_commands] )) ||
_obol__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'obol status commands' commands "$@"
}
(( $+functions[_obol__subcmd__stop_commands] )) ||
_obol__subcmd__stop_commands() {
    local commands; commands=()
    _describe -t commands 'obol stop commands' commands "$@"
}
(( $+functions[_obol__subcmd__tune_commands] )) ||
_obol__subcmd__tune_commands() {
    local commands; commands=()
    _describe -t commands 'obol tune commands' commands "$@"
}
(( $+functions[_obol__subcmd__up_commands] )) ||
_obol__subcmd__up_commands() {
    local commands; commands=()
    _describe -t commands 'obol up commands' commands "$@"
}
(( $+functions[_obol__subcmd__watch_commands] )) ||
_obol__subcmd__watch_commands() {
    local commands; commands=()
    _describe -t commands 'obol watch commands' commands "$@"
}

if [ "$funcstack[1]" = "_obol" ]; then
    _obol "$@"
else
    compdef _obol obol
fi
