"""Records: what a trial is, how it reaches the disk, how a later run finds it again, and measured times.

One JSON line per trial in ``outputs/runs/<run_id>/trials-<worker>.jsonl``, appended and flushed the moment it is known,
and one ``run.json`` per run. Nothing written is ever rewritten; a re-run reads every earlier run and does only what is
missing.
"""

from mxfp4lab.records.environment import environment, git_state
from mxfp4lab.records.log import (
    RecordsError,
    TrialLog,
    find_trial_files,
    new_run_id,
    read_all_trials,
    read_trials,
    write_run_json,
)
from mxfp4lab.records.times import best_published, published_times, recorded_times
from mxfp4lab.records.trial import SCHEMA, Counts, Evidence, LaunchCounts, Status, Trial, content_hash

PICK_SCHEMA = 1
PICK_MIME = "application/vnd.mxfp4lab.pick+json"
"""A notebook's results cell shows its pick under this type, so that the file alone is enough to export from."""

__all__ = [
    "PICK_MIME", "PICK_SCHEMA", "SCHEMA", "Counts", "Evidence", "LaunchCounts", "RecordsError", "Status", "Trial",
    "TrialLog", "best_published", "content_hash", "environment", "find_trial_files", "git_state", "new_run_id",
    "published_times", "read_all_trials", "read_trials", "recorded_times", "write_run_json",
]  # fmt: skip
