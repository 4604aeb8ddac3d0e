"""Where ONNX Runtime spends a model's time, by its own profile: seconds of one run by kernel.

The profile gives the time that the processor spends in a node; where kernels run on a GPU it gives
only that of launching them, and there is nothing to learn from it.
"""

from __future__ import annotations

import tempfile

from xflow.core.deadline import Deadline
from xflow.core.errors import ModelError
from xflow.cost.kernels import Profile
from xflow.cost.measure import Setting, Target, check_provider
from xflow.cost.worker import Failed, ModelSource, Worker, model_to_wire


def profiled(
    model: ModelSource,
    target: Target,
    worker: Worker,
    setting: Setting,
    *,
    seconds: float,
    deadline: Deadline,
    seed: int = 0,
) -> Profile | Failed:
    """The profile of a model that runs for about so many seconds, but at least twice.

    Raises `ProviderError` if the target's provider does not work here.
    """
    check_provider(target, worker)
    try:
        feeds = setting.fed_to(model, seed, {})
    except ModelError as error:
        return Failed(str(error))
    with tempfile.TemporaryDirectory(prefix="xflow-") as folder:
        request = {
            "kind": "profile",
            "model": model_to_wire(model),
            "options": target.session_options(),
            "feeds": feeds,
            "seconds": seconds,
            "folder": folder,
        }
        found: Profile | Failed = worker.ask(request, deadline)
    return found
