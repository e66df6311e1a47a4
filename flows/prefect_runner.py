"""A flow that was given a Dask or Ray task runner scores on that runner's cluster.

The runner itself takes Prefect tasks, of which a search has one per stage and none per trial; its
cluster takes plain calls. Nothing here imports prefect-dask or prefect-ray: who has such a runner
has loaded it.
"""

import os
from typing import TypeVar

from prefect.context import FlowRunContext

from flows.requests import ForkRequest, NightRequest, ResumeRequest, TuneRequest
from schemas.scoring import Scoring
from tasks.scoring.choice import ENGINE_VARIABLE

Request = TypeVar("Request", TuneRequest, ResumeRequest, ForkRequest, NightRequest)


def on_the_flows_runner(request: Request) -> Request:
    """`request`, scored on the cluster of the flow's task runner where that has one and neither the
    request nor the environment says where to score."""
    asked = request.scoring or Scoring()
    if asked.engine is not None or os.environ.get(ENGINE_VARIABLE):
        return request
    context = FlowRunContext.get()
    runner = None if context is None else context.task_runner
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(runner).__mro__}
    if "prefect_dask.task_runners.DaskTaskRunner" in kinds:
        address = getattr(runner, "client").scheduler.address  # noqa: B009 - not its base class's
        scoring = Scoring(engine="dask", address=address)
    elif "prefect_ray.task_runners.RayTaskRunner" in kinds:
        scoring = Scoring(engine="ray")  # to which the runner has connected this process
    else:
        return request
    return request.model_copy(update={"scoring": scoring})
