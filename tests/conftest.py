"""Settings for every test: no wall-time limit on a property, since the machine may be busy; caches
of its own, since what this machine has kept from other runs must not answer for the code."""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repo",
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repo")

os.environ["DISCO_CACHE"] = tempfile.mkdtemp(prefix="disco-cache-")  # processes inherit it
atexit.register(shutil.rmtree, os.environ["DISCO_CACHE"], ignore_errors=True)
