#!/bin/sh
# A campaign of 100,000 seeds as an array of 20 tasks: sbatch slurm.sh. When all have ended, in the same directory:
#
#     obol sim merge report-*.json
#SBATCH --job-name=obol-campaign
#SBATCH --array=0-19
#SBATCH --cpus-per-task=4
#SBATCH --mem=1G
exec obol sim campaign --count 100000 --shards 20 --index-from-env --json >"report-$SLURM_ARRAY_TASK_ID.json"
