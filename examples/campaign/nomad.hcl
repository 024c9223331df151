# A campaign of 100,000 seeds as 20 allocations, which write their reports to the host volume `reports`. When all have ended,
# where that volume is:
#
#     obol sim merge *.json
job "obol-campaign" {
  type = "batch"

  group "campaign" {
    count = 20

    # A task that finds a violation ends with 1, and its report is whole: another try would find the same.
    restart {
      attempts = 0
      mode     = "fail"
    }

    reschedule {
      attempts  = 0
      unlimited = false
    }

    volume "reports" {
      type   = "host"
      source = "reports"
    }

    task "campaign" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args = [
          "-c",
          "exec obol sim campaign --count 100000 --shards 20 --index-from-env --out /reports --json >/reports/$NOMAD_ALLOC_INDEX.json",
        ]
      }

      volume_mount {
        volume      = "reports"
        destination = "/reports"
      }

      resources {
        cores  = 4
        memory = 1024
      }
    }
  }
}
