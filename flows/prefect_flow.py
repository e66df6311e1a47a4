"""The Prefect flows of a search: what deployments point at and `--prefect` runs.

Importing this module imports prefect; `flows.prefect_shell.prepare_environment` goes first.
"""

from prefect import flow

from flows.forking import fork as fork_run
from flows.nightly import Done, run_night
from flows.prefect_runner import on_the_flows_runner
from flows.prefect_shell import as_task, concealed
from flows.progress import progress
from flows.requests import ForkRequest, NightRequest, ResumeRequest, TuneRequest
from flows.tune import resume as resume_run
from flows.tune import tune as run_tune


@flow(name="refold-tune", persist_result=False)
def tune(request: TuneRequest) -> str:
    """Searches for the recipe of a workload on a cluster; returns the run's id."""
    with concealed(), progress(request.store) as listeners:
        return run_tune(on_the_flows_runner(request), stage=as_task, listeners=listeners)


@flow(name="refold-resume", persist_result=False)
def resume(request: ResumeRequest) -> str:
    """Takes up an unfinished run; returns its id."""
    with concealed(), progress(request.store) as listeners:
        return resume_run(on_the_flows_runner(request), stage=as_task, listeners=listeners)


@flow(name="refold-fork", persist_result=False)
def fork(request: ForkRequest) -> str:
    """Continues a run as another one, with something changed; returns the new run's id."""
    with concealed(), progress(request.store) as listeners:
        return fork_run(on_the_flows_runner(request), stage=as_task, listeners=listeners)


@flow(name="refold-nightly", persist_result=False)
def nightly(request: NightRequest) -> Done:
    """Does the night that is due: what changed is tuned again, the rest is looked at."""
    with concealed(), progress(request.store) as listeners:
        return run_night(on_the_flows_runner(request), stage=as_task, listeners=listeners)
