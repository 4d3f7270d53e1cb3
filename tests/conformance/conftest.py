"""Nothing to configure: the folder is on the path, so that tests import `run` and `testbed`."""
