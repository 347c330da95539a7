"""Settings for every test: no wall-time limit on a property, since the machine may be busy."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repo",
    deadline=None,
    max_examples=100,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("repo")
