from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.fixtures", "tests.longest_first"]

# a machine that has much else to do is no failure
settings.register_profile("redrive", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("redrive")
