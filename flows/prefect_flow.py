"""The Prefect flows of a search and of a night: what deployments point at and `--prefect` runs.

Importing this module imports prefect; `flows.prefect_shell.prepare_environment` goes first.

A search is not retried by Prefect on its own: what it fails of is a file, a disk or a log, and the
next attempt would fail of it too. A flow run that is run once more (`prefect flow-run retry`, after
its process was killed) takes up what it left, and repeats nothing that finished. A night may be
retried: it is one night however often it is fired, and what it decided stays decided.
"""

from collections.abc import Sequence

from prefect import flow
from prefect.runtime import flow_run

from flows.forking import fork as fork_run
from flows.ledger import Listener
from flows.nightly import Done, run_night
from flows.prefect_runner import on_the_flows_runner
from flows.prefect_shell import as_task, concealed
from flows.progress import progress
from flows.publishing import publish_night, publish_search
from flows.requests import ForkRequest, NightRequest, ResumeRequest, TuneRequest
from flows.terminal import say
from flows.tune import resume as resume_run
from flows.tune import tune as run_tune
from schemas.errors import NothingToResume, SpecChanged


@flow(name="refold-tune", persist_result=False, retries=0)
def tune(request: TuneRequest) -> str:
    """Searches for the recipe of a workload on a cluster; returns the run's id."""
    with concealed(), progress(request.store) as listeners:
        run_id = _tune(on_the_flows_runner(request), listeners)
    publish_search(request.store, run_id)
    return run_id


@flow(name="refold-resume", persist_result=False, retries=0)
def resume(request: ResumeRequest) -> str:
    """Takes up an unfinished run; returns its id."""
    with concealed(), progress(request.store) as listeners:
        run_id = resume_run(on_the_flows_runner(request), stage=as_task, listeners=listeners)
    publish_search(request.store, run_id)
    return run_id


@flow(name="refold-fork", persist_result=False, retries=0)
def fork(request: ForkRequest) -> str:
    """Continues a run as another one, with something changed; returns the new run's id."""
    with concealed(), progress(request.store) as listeners:
        run_id = fork_run(on_the_flows_runner(request), stage=as_task, listeners=listeners)
    publish_search(request.store, run_id)
    return run_id


@flow(name="refold-nightly", persist_result=False)
def nightly(request: NightRequest) -> Done:
    """Does the night that is due: what changed is tuned again, the rest is looked at.

    The one flow whose retries are Prefect's settings: a slot is one night, and a night that was cut
    off goes on. `prefect.yaml` sets them for the deployment.
    """
    with concealed(), progress(request.store) as listeners:
        done = run_night(on_the_flows_runner(request), stage=as_task, listeners=listeners)
    if not done.already or flow_run.run_count > 1:  # else whoever did it has shown it
        publish_night(request.store, done.night)
    return done


def _tune(request: TuneRequest, listeners: Sequence[Listener]) -> str:
    if flow_run.run_count > 1:
        again = request.model_copy(update={"resume": True})
        try:
            return run_tune(again, stage=as_task, listeners=listeners)
        except (NothingToResume, SpecChanged):
            say("Prefect runs this flow once more, and no search of it is unfinished: a new one")
    return run_tune(request, stage=as_task, listeners=listeners)
