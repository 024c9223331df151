# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_obol_global_optspecs
    string join \n cluster= root= h/help
end

function __fish_obol_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_obol_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_obol_using_subcommand
    set -l cmd (__fish_obol_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c obol -n "__fish_obol_needs_command" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_needs_command" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_needs_command" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_needs_command" -f -a "up" -d 'Start a cluster on this host and show it live'
complete -c obol -n "__fish_obol_needs_command" -f -a "console" -d 'Watch a cluster live: members, leases, events'
complete -c obol -n "__fish_obol_needs_command" -f -a "record" -d 'Record a cluster to a file until Ctrl-C; `replay` shows it again'
complete -c obol -n "__fish_obol_needs_command" -f -a "replay" -d 'Show a recording on the console\'s screens'
complete -c obol -n "__fish_obol_needs_command" -f -a "report" -d 'Report on a recording, or on a cluster that is looked at for a while'
complete -c obol -n "__fish_obol_needs_command" -f -a "status" -d 'Show a cluster\'s health; exit code 0 healthy, 1 degraded, 2 unreachable, 3 unavailable'
complete -c obol -n "__fish_obol_needs_command" -f -a "events" -d 'Print the flight recorders of all processes, merged by time'
complete -c obol -n "__fish_obol_needs_command" -f -a "watch" -d 'Follow the views: who joined, left or failed, in order and without a gap'
complete -c obol -n "__fish_obol_needs_command" -f -a "mark" -d 'Note something for every console and recorder of the cluster: it divides before from after'
complete -c obol -n "__fish_obol_needs_command" -f -a "kill" -d 'Kill a process with SIGKILL, by name (app-2) or by role (leader)'
complete -c obol -n "__fish_obol_needs_command" -f -a "stop" -d 'Let a process leave the cluster gracefully and end; nobody counts it as failed'
complete -c obol -n "__fish_obol_needs_command" -f -a "start" -d 'Start a process of the cluster that is down'
complete -c obol -n "__fish_obol_needs_command" -f -a "down" -d 'End a cluster, and clean up what a crashed `up` left behind'
complete -c obol -n "__fish_obol_needs_command" -f -a "run" -d 'Run any program as a member, without a change to it'
complete -c obol -n "__fish_obol_needs_command" -f -a "kv" -d 'A replicated cache on the cluster, whose clients hardly see a failover'
complete -c obol -n "__fish_obol_needs_command" -f -a "drill" -d 'Break a cluster on purpose, and judge how it bears that'
complete -c obol -n "__fish_obol_needs_command" -f -a "tune" -d 'Find the lease and the heartbeat that this machine sustains, and write a profile'
complete -c obol -n "__fish_obol_needs_command" -f -a "bench" -d 'Measure this host\'s floor and the product in one run, and print their ratios'
complete -c obol -n "__fish_obol_needs_command" -f -a "sim" -d 'Run whole clusters in virtual time under faults and check them against the invariants'
complete -c obol -n "__fish_obol_needs_command" -f -a "profile" -d 'Show and check profiles: every constant of a deployment'
complete -c obol -n "__fish_obol_needs_command" -f -a "config" -d 'Check and print how the console is configured: theme, keys, columns'
complete -c obol -n "__fish_obol_needs_command" -f -a "fabric" -d 'Show this host\'s RDMA devices, and what is missing to use them'
complete -c obol -n "__fish_obol_needs_command" -f -a "host" -d 'Make this host ready for a cluster of several hosts, which a file describes'
complete -c obol -n "__fish_obol_needs_command" -f -a "detector" -d 'Show which death detector this host has; load and unload the eBPF programs, for hosts without the kernel module'
complete -c obol -n "__fish_obol_needs_command" -f -a "man" -d 'Print the manual page of obol, or write those of all its commands'
complete -c obol -n "__fish_obol_needs_command" -f -a "completions" -d 'Print a shell completion script'
complete -c obol -n "__fish_obol_needs_command" -f -a "coordinator" -d 'Change who decides while the cluster runs: add, remove or replace coordinators'
complete -c obol -n "__fish_obol_needs_command" -f -a "lease" -d 'Show how long leases last, or change it while the cluster runs'
complete -c obol -n "__fish_obol_using_subcommand up" -l coordinators -d 'Coordinators (1 to 7; a majority must live)' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l apps -d 'App nodes: an agent and a demo app attached to it, each' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l caches -d 'Lease caches, which renew the leases of agents so that coordinators need not' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l profile -d 'Profile: a name that `obol profile list` knows, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l environment -d 'What this place is called; a drill runs only where it was made for' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l rdma -d 'Join the processes over RDMA, by this address of the host, instead of shared memory; try the profile soft-roce' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l record -d 'Record what the console sees to this file' -r -F
complete -c obol -n "__fish_obol_using_subcommand up" -l config -d 'Theme, keys and columns [default: console.toml in ~/.config/obol]; see `obol config`' -r -F
complete -c obol -n "__fish_obol_using_subcommand up" -l theme -d 'Colours: dark, light, safe (for all kinds of colour vision), 16 or mono [default: by TERM and NO_COLOR]' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l for -d 'End by itself after this time, such as 20s or 1500ms' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand up" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand up" -l kv -d 'A replicated cache beside the apps, with a gentle load: kill its primary and nobody notices'
complete -c obol -n "__fish_obol_using_subcommand up" -l headless -d 'Do not show the cluster; print one line when it is up'
complete -c obol -n "__fish_obol_using_subcommand up" -l plain -d 'Print lines instead of opening the console, as it does where there is no terminal'
complete -c obol -n "__fish_obol_using_subcommand up" -l ascii -d 'Draw lines and graphs in ASCII, as where the locale has no UTF-8'
complete -c obol -n "__fish_obol_using_subcommand up" -l bell -d 'Sound the terminal\'s bell when something new is alerted'
complete -c obol -n "__fish_obol_using_subcommand up" -l arm -d 'Let drills be armed in the console, on screen 6'
complete -c obol -n "__fish_obol_using_subcommand up" -l json -d 'Print events, and at the end a summary, as lines of JSON'
complete -c obol -n "__fish_obol_using_subcommand up" -l temporary -d 'Read the profile from standard input, and end with it (asked for by commands with a cluster of their own)'
complete -c obol -n "__fish_obol_using_subcommand up" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand console" -l config -d 'Theme, keys and columns [default: console.toml in ~/.config/obol]; see `obol config`' -r -F
complete -c obol -n "__fish_obol_using_subcommand console" -l theme -d 'Colours: dark, light, safe (for all kinds of colour vision), 16 or mono [default: by TERM and NO_COLOR]' -r
complete -c obol -n "__fish_obol_using_subcommand console" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand console" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand console" -l ascii -d 'Draw lines and graphs in ASCII, as where the locale has no UTF-8'
complete -c obol -n "__fish_obol_using_subcommand console" -l bell -d 'Sound the terminal\'s bell when something new is alerted'
complete -c obol -n "__fish_obol_using_subcommand console" -l arm -d 'Let drills be armed on screen 6: a preview, the cluster\'s name typed, and a key'
complete -c obol -n "__fish_obol_using_subcommand console" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand record" -l for -d 'End by itself after this time, such as 20s or 1500ms' -r
complete -c obol -n "__fish_obol_using_subcommand record" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand record" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand record" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand replay" -l config -d 'Theme, keys and columns [default: console.toml in ~/.config/obol]; see `obol config`' -r -F
complete -c obol -n "__fish_obol_using_subcommand replay" -l theme -d 'Colours: dark, light, safe (for all kinds of colour vision), 16 or mono [default: by TERM and NO_COLOR]' -r
complete -c obol -n "__fish_obol_using_subcommand replay" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand replay" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand replay" -l ascii -d 'Draw lines and graphs in ASCII, as where the locale has no UTF-8'
complete -c obol -n "__fish_obol_using_subcommand replay" -l bell -d 'Sound the terminal\'s bell when something new is alerted'
complete -c obol -n "__fish_obol_using_subcommand replay" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand report" -l format -d 'How it is written' -r -f -a "md\t''
json\t''
csv\t''
perfetto\t''
html\t''
hdr\t''
openmetrics\t''"
complete -c obol -n "__fish_obol_using_subcommand report" -l for -d 'How long a cluster is looked at; flight recorders tell of earlier failovers, too' -r
complete -c obol -n "__fish_obol_using_subcommand report" -s o -l output -d 'Write it to this file' -r -F
complete -c obol -n "__fish_obol_using_subcommand report" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand report" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand report" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand status" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand status" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand status" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand status" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand events" -l last -d 'So many of the newest events' -r
complete -c obol -n "__fish_obol_using_subcommand events" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand events" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand events" -l json -d 'Print one JSON object per event'
complete -c obol -n "__fish_obol_using_subcommand events" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand watch" -l from -d 'Begin with this view instead of the newest' -r
complete -c obol -n "__fish_obol_using_subcommand watch" -l count -d 'End after so many views and gaps' -r
complete -c obol -n "__fish_obol_using_subcommand watch" -l save -d 'Keep the newest view in this file, for `obol coordinator recover` after a disaster' -r -F
complete -c obol -n "__fish_obol_using_subcommand watch" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand watch" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand watch" -l once -d 'End as soon as the newest view is told'
complete -c obol -n "__fish_obol_using_subcommand watch" -l json -d 'Print one JSON object per view or gap'
complete -c obol -n "__fish_obol_using_subcommand watch" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand mark" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand mark" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand mark" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kill" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kill" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kill" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand stop" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand stop" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand stop" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand start" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand start" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand start" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand down" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand down" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand down" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand run" -l name -d 'The name that the program has in the cluster' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l node -d 'The agent that it belongs to; may be left out where this host has just one' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l on-view -d 'A program to execute whenever a view with this member becomes active' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l on-lost -d 'A program to execute when the membership is lost, and before it is given up when the program was asked to end. Without one the program is killed when the membership is lost' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l views-to -d 'A program that is started once, and told all that by lines on its standard input: "view ID INCARNATION MEMBER.." and "lost ID INCARNATION WHY"' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l grace -d 'How long the program has to end after SIGTERM or SIGINT; then it is killed with all that it started. A second signal kills at once' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l hook-timeout -d 'A hook or health command that takes longer is killed' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l health -d 'A program to execute now and then; the member joins after its first success, however long that takes' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l health-every -d 'How often the health command is executed' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l health-failures -d 'So many failures of it in a row after its first success, and the program is killed' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l restart -d 'When the program is started again after it has ended' -r -f -a "never\t'Never: `run` ends with the program'
on-failure\t'When it ended with another exit code than 0, or by a signal'
always\t'Whenever it ended'"
complete -c obol -n "__fish_obol_using_subcommand run" -l restart-pause -d 'The pause before the first start again; doubles with each one' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l restart-pause-max -d 'The longest pause; a program that lived as long starts with short ones again' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand run" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand run" -l no-group -d 'Do not use a control group, even where one could be made'
complete -c obol -n "__fish_obol_using_subcommand run" -l shell -d 'Hooks and the health command are lines for /bin/sh, not programs'
complete -c obol -n "__fish_obol_using_subcommand run" -l json -d 'Tell what happens as JSON lines on standard error'
complete -c obol -n "__fish_obol_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -f -a "server" -d 'Serve: the oldest server is the primary, the next two are its backups'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -f -a "get" -d 'Read a key'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -f -a "put" -d 'Write a key'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -f -a "load" -d 'Read and write now and then, as a demo'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -f -a "check" -d 'Start servers, kill primaries, and hold every answer against what was written'
complete -c obol -n "__fish_obol_using_subcommand kv; and not __fish_seen_subcommand_from server get put load check bench" -f -a "bench" -d 'Measure a replicated cache beside memcached and Redis, where they are installed'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l name -d 'Its name: kv- and something' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l shards -d 'Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l poll-every -d 'How often it looks into its memory; 0 keeps a core for each shard busy that nobody else wants' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l core -d 'Stay on this core; further shards on those that follow' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l begin-anew -d 'Begin with nothing if this is the first server, even if others had the state and died; end all servers of before first'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l json -d 'Print where it stands as JSON lines'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l tied -d 'End with the process that started it'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -l temporary -d 'Its keys are nobody\'s but those of the command that started it'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from server" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from get" -l name -d 'Its name in the cluster' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from get" -l timeout -d 'Give up after so long' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from get" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from get" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from put" -l name -d 'Its name in the cluster' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from put" -l timeout -d 'Give up after so long' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from put" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from put" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from put" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l name -d 'Its name in the cluster' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l every -d 'Four operations so often' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l tell-every -d 'Tell how it goes so often' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l json -d 'Print JSON lines'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -l tied -d 'End with the process that started it'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from load" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l for -d 'For how long' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l servers -d 'Servers; one that is killed is started again' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l shards -d 'Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l clients -d 'Clients, each a thread and a member' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l kill-every -d 'Kill the primary so often, when its backup has everything' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l freeze-every -d 'Freeze a server about so often, whatever else goes on' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l freeze-max -d 'For so long at most' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l poll-every -d 'How often servers and clients look into their memory' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -l json -d 'Print one JSON object'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l turn -d 'How long each server is asked in each round' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l rounds -d 'Rounds; figures are the medians of all' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l backups -d 'Backups of the cache\'s primary' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l shards -d 'Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -l json -d 'Print one JSON object per server'
complete -c obol -n "__fish_obol_using_subcommand kv; and __fish_seen_subcommand_from bench" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l count -d 'Repetitions; a p99 is claimed from 299 on' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l gap -d 'Pause between repetitions' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l observe -d 'Whose failover: the members\', or beside it that of a client of a replicated cache, whose primary is then the app' -r -f -a "members\t'Until every survivor\'s view is active'
client\t'From a client\'s last success to its first at the new primary'"
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l shards -d 'Split the keys among so many threads of each server, which share nothing; all servers of a cache need the same number' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "list" -d 'List the drills that ship'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "show" -d 'Print a drill that ships, as a start for one\'s own'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "schema" -d 'Print the JSON Schema of drill files, or of journals'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "plan" -d 'Tell what a drill would hit, and what each guard says; touches nothing'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "probes" -d 'Look whether the steady state of a drill holds'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "run" -d 'Run a drill: steady state, cue, failover, undo, and again; then the verdict'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "replay" -d 'Play the faults of a simulator\'s script on processes, and wait until the cluster is healthy'
complete -c obol -n "__fish_obol_using_subcommand drill; and not __fish_seen_subcommand_from list show schema plan probes run replay recover" -a "recover" -d 'Undo what a drill left behind when its processes were killed; twice gives the same result'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from list" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from list" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from show" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from show" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from schema" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from schema" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from schema" -l journal -d 'Of `journal.json`, which a run leaves'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from schema" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from plan" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from plan" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from plan" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from probes" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from probes" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from probes" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from probes" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l count -d 'Repetitions, in place of the file\'s' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l out -d 'Directory for the files of the report, which must not exist yet [default: drill-NAME-N where the drill names files]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l ssh -d 'Let the fault agent inject on this host, by your own ssh: your configuration, agent and known hosts; it never asks' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l ssh-config -d 'A configuration for ssh in place of your own' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l ssh-program -d 'The path of obol on that host [default: as here]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l profile -d 'With --sim or table2: the profile of the clusters, a name or a file' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l progress -d 'Tell each repetition on standard error (asked for by the console)'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l sim -d 'Run it in the simulator, on a cluster of 3 coordinators, 3 app nodes and, where the drill hits any, 3 lease caches: no process is touched, and the same drill gives the same result'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l yes -d 'Say yes to a drill that requires it'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -l no-fence -d 'table2 only: measure each cell without fences as well, so that failovers wait for leases as in the paper'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from replay" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from replay" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from replay" -l yes -d 'Say yes to what the script does'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from replay" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from recover" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from recover" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from recover" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand drill; and __fish_seen_subcommand_from recover" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand tune" -l share -d 'Renewals that must come in time, in percent' -r
complete -c obol -n "__fish_obol_using_subcommand tune" -l time -d 'How long each step is measured; one that can not reach the share any more ends early' -r
complete -c obol -n "__fish_obol_using_subcommand tune" -l profile -d 'The profile to start from: a name that `obol profile list` knows, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand tune" -l write -d 'Write the recommended profile to this file, which must not exist yet' -r -F
complete -c obol -n "__fish_obol_using_subcommand tune" -l html -d 'Write the evidence to this file, as a page that needs no other' -r -F
complete -c obol -n "__fish_obol_using_subcommand tune" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand tune" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand tune" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand tune" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -l count -d 'Failovers, and failovers of the floor program' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -l rdma -d 'Measure consensus over RDMA instead, by this address of the host' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -l profile -d 'Profile for --rdma: a name that `obol profile list` knows, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand bench; and not __fish_seen_subcommand_from console" -f -a "console" -d 'Measure what the console costs, and how quick its keys are, in a terminal of 200x50 on synthetic clusters'
complete -c obol -n "__fish_obol_using_subcommand bench; and __fish_seen_subcommand_from console" -l nodes -d 'Measure this cluster only' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and __fish_seen_subcommand_from console" -l seconds -d 'How long each share of a core is measured' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and __fish_seen_subcommand_from console" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand bench; and __fish_seen_subcommand_from console" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand bench; and __fish_seen_subcommand_from console" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand bench; and __fish_seen_subcommand_from console" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "campaign" -d 'Run many seeds; exit code 1 if an invariant is violated'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "replay" -d 'Run one seed or scenario file again and print what happened'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "shrink" -d 'Drop from a violating seed or scenario whatever the violation does not need, and save the rest'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "mutants" -d 'Plant each bug and count the seeds until it is caught (in a build with the feature `mutants`)'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "table2" -d 'uKharon\'s Table 2 on a simulated testbed: failover times beside the published ones'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "leases" -d 'uKharon\'s Figure 3 on a simulated testbed: how long leases must be to be renewed in time'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "scale" -d 'How failovers and renewals scale on a simulated testbed, from 8 to 4096 members'
complete -c obol -n "__fish_obol_using_subcommand sim; and not __fish_seen_subcommand_from campaign replay shrink mutants table2 leases scale report" -f -a "report" -d 'Run table2, leases and scale, and draw them into one HTML page'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -l seeds -d 'How many seeds' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -l seed -d 'The first seed' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -l keep -d 'Where the scenarios are saved to which violating seeds are shrunk' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from campaign" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from replay" -l mutant -d 'Plant this bug (in a build with the feature `mutants`) instead of what the file names' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from replay" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from replay" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from shrink" -l mutant -d 'Plant this bug (in a build with the feature `mutants`)' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from shrink" -s o -l output -d 'Where to save it [default: obol-seed-SEED.toml]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from shrink" -l budget -d 'Runs that it may take' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from shrink" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from shrink" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from shrink" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from mutants" -l budget -d 'Seeds that a bug may survive before the campaign has failed' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from mutants" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from mutants" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from mutants" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from mutants" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -l repetitions -d 'Failovers behind each figure' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -l model -d 'Testbed: infiniband, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -l seed -d 'The first seed; the same seed gives the same figures' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from table2" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -l span-ms -d 'Simulated time of each load' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -l model -d 'Testbed: infiniband, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -l seed -d 'The first seed; the same seed gives the same figures' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from leases" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l up-to -d 'The largest size; sizes double from 8 on' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l repetitions -d 'Failovers behind each figure' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l model -d 'Testbed: infiniband, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l seed -d 'The first seed; the same seed gives the same figures' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from scale" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from report" -l up-to -d 'The largest size for `scale`' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from report" -l model -d 'Testbed: infiniband, or a file' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from report" -l seed -d 'The first seed; the same seed gives the same figures' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from report" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from report" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand sim; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -f -a "list" -d 'List the built-in profiles'
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -f -a "show" -d 'Print a profile with every constant'
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -f -a "check" -d 'Check a profile file; every mistake is named with line and column'
complete -c obol -n "__fish_obol_using_subcommand profile; and not __fish_seen_subcommand_from list show check reference" -f -a "reference" -d 'Print what each constant means, its unit and bounds'
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from list" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from list" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from show" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from show" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from check" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from check" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from reference" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from reference" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand profile; and __fish_seen_subcommand_from reference" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand config; and not __fish_seen_subcommand_from check print schema" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand config; and not __fish_seen_subcommand_from check print schema" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand config; and not __fish_seen_subcommand_from check print schema" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand config; and not __fish_seen_subcommand_from check print schema" -f -a "check" -d 'Check a configuration; every mistake is named with line and column'
complete -c obol -n "__fish_obol_using_subcommand config; and not __fish_seen_subcommand_from check print schema" -f -a "print" -d 'Print a configuration whole, with what it leaves out'
complete -c obol -n "__fish_obol_using_subcommand config; and not __fish_seen_subcommand_from check print schema" -f -a "schema" -d 'Print the JSON Schema of configurations, for editors'
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from check" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from check" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from print" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from print" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from print" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from schema" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from schema" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand config; and __fish_seen_subcommand_from schema" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand fabric; and not __fish_seen_subcommand_from list" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand fabric; and not __fish_seen_subcommand_from list" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand fabric; and not __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand fabric; and not __fish_seen_subcommand_from list" -f -a "list" -d 'List devices, ports and GIDs, mark what would be used, and say what is missing and how to get it'
complete -c obol -n "__fish_obol_using_subcommand fabric; and __fish_seen_subcommand_from list" -l address -d 'Use the port that this own IP address belongs to' -r
complete -c obol -n "__fish_obol_using_subcommand fabric; and __fish_seen_subcommand_from list" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand fabric; and __fish_seen_subcommand_from list" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand fabric; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object'
complete -c obol -n "__fish_obol_using_subcommand fabric; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -f -a "example" -d 'Print a file to start from, with an identity drawn for a new cluster'
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -f -a "check" -d 'Check the file; every mistake is named with line and column'
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -f -a "prepare" -d 'Make the memory in which this host\'s processes of the cluster meet; done once after each boot'
complete -c obol -n "__fish_obol_using_subcommand host; and not __fish_seen_subcommand_from example check prepare clean" -f -a "clean" -d 'Remove the cluster\'s memory from this host; its processes must have ended'
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from example" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from example" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from example" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from check" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from check" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from check" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from prepare" -l address -d 'Which of the file\'s hosts this is, where its addresses do not tell' -r
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from prepare" -l state -d 'Where to note, across boots, that this host\'s coordinator has voted' -r -F
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from prepare" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from prepare" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from prepare" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from clean" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from clean" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand host; and __fish_seen_subcommand_from clean" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand detector; and not __fish_seen_subcommand_from show load unload" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand detector; and not __fish_seen_subcommand_from show load unload" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand detector; and not __fish_seen_subcommand_from show load unload" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand detector; and not __fish_seen_subcommand_from show load unload" -f -a "show" -d 'Show whether the module, eBPF programs or neither would report the deaths of this user\'s processes, and why'
complete -c obol -n "__fish_obol_using_subcommand detector; and not __fish_seen_subcommand_from show load unload" -f -a "load" -d 'Load the eBPF programs, as root; they stay until `unload` or a reboot'
complete -c obol -n "__fish_obol_using_subcommand detector; and not __fish_seen_subcommand_from show load unload" -f -a "unload" -d 'Take the eBPF programs out, as root; no death is lost meanwhile'
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from show" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from show" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object'
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from load" -l group -d 'Let this group use them, by name or number; without it only root may' -r
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from load" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from load" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from load" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from unload" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from unload" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand detector; and __fish_seen_subcommand_from unload" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand man" -l dir -d 'Write a page for obol and one for each command into this directory, which must exist' -r -F
complete -c obol -n "__fish_obol_using_subcommand man" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand man" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand man" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand completions" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand completions" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand completions" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -f -a "add" -d 'Start another coordinator, and let it decide'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -f -a "remove" -d 'Let a coordinator decide no more, and stop it if it runs'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -f -a "replace" -d 'Add a coordinator, then remove another, dead or alive'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -f -a "recover" -d 'After a disaster: go on with new coordinators from a view that survived; what was decided after it is lost'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and not __fish_seen_subcommand_from add remove replace recover found" -f -a "found" -d 'What this host still has of a cluster of several: evidence for `obol coordinator recover` on another host'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from add" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from add" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from add" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from remove" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from remove" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from remove" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from replace" -l with -d 'The number of the one that comes [default: the lowest that is free]' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from replace" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from replace" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from replace" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from replace" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l from -d 'Where the view comes from: `agents`, the newest that any process knows, or a file of `obol coordinator run --save` or `obol watch --save`' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l found -d 'What `obol coordinator found --json` printed on another host; once for each' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l lost -d 'Give up another host: it is off for good, or was started anew, and nothing of the cluster from before runs there' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l longest-lease -d 'Wait for leases of this duration if that is longer than lease.max: where one was set with --beyond-max, and a host that is given up may have had it' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from recover" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from found" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from found" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from found" -l json -d 'Print what `obol coordinator recover --found` reads'
complete -c obol -n "__fish_obol_using_subcommand coordinator; and __fish_seen_subcommand_from found" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand lease; and not __fish_seen_subcommand_from show set" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand lease; and not __fish_seen_subcommand_from show set" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand lease; and not __fish_seen_subcommand_from show set" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand lease; and not __fish_seen_subcommand_from show set" -f -a "show" -d 'Show how long leases last now, and within which limits they adapt'
complete -c obol -n "__fish_obol_using_subcommand lease; and not __fish_seen_subcommand_from show set" -f -a "set" -d 'Have leases of another duration; a view that says so is decided, and no lease is disturbed'
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from show" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from show" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from show" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from set" -l cluster -d 'Name of the cluster; several can run side by side' -r
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from set" -l root -d 'Directory that holds the clusters of this host [default: /dev/shm/obol-UID]' -r -F
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from set" -l beyond-max -d 'Let it be longer than the profile\'s lease.max'
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from set" -l json -d 'Print one JSON object for scripts'
complete -c obol -n "__fish_obol_using_subcommand lease; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help'
